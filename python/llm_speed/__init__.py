"""llm-speed: the kernels that LLM inference spends its time in, for PyTorch, NumPy, JAX and CuPy.

    import torch, llm_speed
    x, w = torch.randn(4, 4096, device="cuda", dtype=torch.bfloat16), torch.ones(4096, device="cuda")
    y = llm_speed.rms_norm(x, w)

`llm_speed.ops` has every op of the C library; the names of flash-attn, PyTorch and vLLM work as they do there
(`flash_attn_func`, `scaled_dot_product_attention`, `rms_norm`, ...); `Model` and `Engine` run GGUF files;
`llm_speed.integrations.transformers` speeds up a loaded Hugging Face model. Importing this imports no framework.
"""

from __future__ import annotations

from . import _C, errors, ops
from ._C import PackedWeight, get_num_threads, reserve_workspace, set_num_threads, variants
from ._import_hook import after_import as _after_import
from .engine import Completion, Engine, EngineStats, Event, Model, Piece
from .errors import Error
from .flash_attn import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from .layers import (
    apply_rope,
    flash_attention,
    fused_add_rms_norm,
    gelu_and_mul,
    gelu_tanh_and_mul,
    gemma_rms_norm,
    hgemm,
    int8_gemm,
    layer_norm,
    naive_attention,
    rms_norm,
    silu_and_mul,
    tensor_core_gemm,
    tiled_attention,
)
from .ops import (
    add_rmsnorm,
    attn_decode,
    attn_merge,
    attn_prefill,
    embed,
    gated_act,
    gemm,
    gemm_grouped,
    kv_write,
    layernorm,
    linear,
    linear_pack,
    rmsnorm,
    rope,
    sample,
)
from .profiler import OpCall, Profile, ceilings, profile
from .sdpa import scaled_dot_product_attention

__version__: str = _C.build_info()["version"]


def _register_torch_ops() -> None:
    from . import torch_ops  # noqa: F401


_after_import("torch", _register_torch_ops)
