"""The compiled module: libllmspeed for Python. Use llm_speed, which is documented; this is what stands below it.

The ops take the fields of their C structs in order, and the stream; tests/python/test_package.py keeps this file true.
"""

from collections.abc import Sequence
from typing import Any, SupportsIndex, SupportsInt

# Anything with DLPack or the buffer protocol.
_Array = Any
_Int = SupportsInt | SupportsIndex

# ---- Ops ---------------------------------------------------------------------------------------------

def op_names() -> list[str]: ...
def op_fields(op: str, /) -> list[tuple[str, str]]: ...
def embed(
    table: _Array,
    table_type: str | None,
    ids: _Array,
    out: _Array,
    scale: float,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def rmsnorm(
    x: _Array,
    weight: _Array | None,
    residual: _Array | None,
    residual_out: _Array | None,
    out: _Array,
    eps: float,
    weight_offset: float,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def layernorm(
    x: _Array,
    weight: _Array | None,
    bias: _Array | None,
    out: _Array,
    eps: float,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def gemm(
    a: _Array,
    b: _Array,
    c: _Array | None,
    bias: _Array | None,
    residual: _Array | None,
    scale_a: _Array | None,
    scale_b: _Array | None,
    scale_out: _Array | None,
    out: _Array,
    alpha: float,
    beta: float,
    act: int,
    gated: bool,
    flags: int,
    config: str | None,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def gemm_grouped(
    a: _Array,
    b: _Array,
    offsets: _Array,
    bias: _Array | None,
    scale_a: _Array | None,
    scale_b: _Array | None,
    out: _Array,
    alpha: float,
    act: int,
    gated: bool,
    flags: int,
    config: str | None,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def linear(
    x: _Array,
    weight: _Array,
    weight_type: str | None,
    bias: _Array | None,
    out: _Array,
    compute: int,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def rope(
    x: _Array,
    x2: _Array | None,
    positions: _Array | None,
    cos: _Array | None,
    sin: _Array | None,
    out: _Array,
    out2: _Array | None,
    style: int,
    rotary_dim: int,
    theta: float,
    freq_factors: Sequence[float] | None,
    scaling_type: int,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
    beta_fast: float,
    beta_slow: float,
    attention_factor: float,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def kv_write(
    k: _Array,
    v: _Array,
    k_cache: _Array,
    v_cache: _Array,
    slots: _Array,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def attn_prefill(
    q: _Array,
    k: _Array,
    v: _Array,
    cu_seqlens_q: _Array | None,
    cu_seqlens_kv: _Array | None,
    bias: _Array | None,
    alibi_slopes: _Array | None,
    sinks: _Array | None,
    out: _Array,
    lse: _Array | None,
    max_q_len: int,
    causal: bool,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def attn_decode(
    q: _Array,
    k_cache: _Array,
    v_cache: _Array,
    kv_lens: _Array,
    page_table: _Array | None,
    cu_seqlens_q: _Array | None,
    alibi_slopes: _Array | None,
    sinks: _Array | None,
    out: _Array,
    lse: _Array | None,
    max_q_len: int,
    num_splits: int,
    causal: bool,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def attn_merge(
    a: _Array,
    lse_a: _Array,
    b: _Array,
    lse_b: _Array,
    out: _Array,
    lse: _Array | None,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def gated_act(
    gate: _Array,
    up: _Array | None,
    out: _Array,
    act: int,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...
def sample(
    logits: _Array,
    temperature: _Array | None,
    top_k: _Array | None,
    top_p: _Array | None,
    min_p: _Array | None,
    repetition_penalty: _Array | None,
    seed: _Array | None,
    step: _Array | None,
    history: _Array | None,
    history_lens: _Array | None,
    out_ids: _Array,
    out_probs: _Array | None,
    variant: str | None,
    stream: int | None,
    /,
) -> None: ...

class PackedWeight:
    def __init__(self, weights: list[_Array], weight_type: str | None = None) -> None: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

# ---- Library, devices, threads -----------------------------------------------------------------------

def variants() -> list[dict[str, Any]]: ...
def build_info() -> dict[str, Any]: ...
def cuda_devices() -> list[dict[str, Any]]: ...
def block_size(name: str) -> tuple[int, int]: ...
def set_num_threads(num_threads: _Int) -> None: ...
def get_num_threads() -> int: ...
def reserve_workspace(device: _Int, stream: _Int, bytes: _Int) -> None: ...

# ---- Profiles ----------------------------------------------------------------------------------------

def record_start() -> None: ...
def record_stop() -> list[dict[str, Any]]: ...
def measure_ceilings(cuda: bool, device_index: _Int) -> Ceilings: ...

class Ceilings:
    @property
    def read_bytes_per_s(self) -> float: ...
    @property
    def f32_flops(self) -> float: ...
    @property
    def f16_flops(self) -> float: ...
    @property
    def i8_ops(self) -> float: ...
    @property
    def tf32_flops(self) -> float: ...
    @property
    def f8_flops(self) -> float: ...
    def classify(self, math: _Int, flops: float, bytes: float, seconds: float) -> tuple[str, float]: ...

# ---- Models ------------------------------------------------------------------------------------------

class Model:
    def __init__(self, path: str | bytes) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def tokenize(self, text: str | bytes, add_special: bool, parse_special: bool) -> list[int]: ...
    def tokenize_chat(self, messages: Sequence[tuple[str | bytes, str | bytes]]) -> list[int]: ...
    def token_bytes(self, id: _Int) -> bytes | None: ...

class Detokenizer:
    def __init__(self, model: Model, prompt: Sequence[int], show_control: bool) -> None: ...
    def next(self, id: _Int) -> str: ...

class Engine:
    def __init__(
        self,
        model: Model,
        cuda: bool,
        device_index: _Int,
        num_threads: _Int,
        context_length: _Int,
        max_sequences: _Int,
        kv_tokens: _Int,
        kv_dtype: str,
        page_size: _Int,
        chunk_tokens: _Int,
        f32_activations: bool,
    ) -> None: ...
    def logits(self, id: _Int) -> bytes | None: ...
    def stats(self) -> dict[str, Any]: ...
    def reset_stats(self) -> None: ...
    def close(self) -> None: ...

class Session:
    def __init__(self, engine: Engine) -> None: ...
    def add(
        self,
        prompt: Sequence[int],
        max_new_tokens: _Int,
        ignore_stop_tokens: bool,
        stop_tokens: Sequence[int],
        temperature: float,
        top_k: _Int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        seed: _Int,
    ) -> int: ...
    def cancel(self, id: _Int) -> None: ...
    def step(self) -> tuple[list[tuple[int, int, float, int]], int]: ...
    def close(self) -> None: ...
