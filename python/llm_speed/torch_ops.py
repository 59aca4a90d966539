"""The ops as torch operators, for torch.compile, export and graphs: imported by itself as soon as torch is.

- `torch.ops.llm_speed.<op>_out(...)` writes into the arrays it is given and returns nothing: the arguments of the C
  struct in order (`llm_speed._C.op_fields`). For engines that own their buffers.
- `torch.ops.llm_speed.<op>(...)` returns new tensors.

Both work on CPU and CUDA tensors, have fake kernels, and never synchronise. None has a gradient.
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch

from . import _C, arrays, ops

_library = torch.library.Library("llm_speed", "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_TYPES = {
    "in": "Tensor",
    "in?": "Tensor?",
    "out": "Tensor({letter}!)",
    "out?": "Tensor({letter}!)?",
    "float": "float",
    "int": "SymInt",
    "bool": "bool",
    "str?": "str?",
    "float[]?": "float[]?",
}


def _define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    _library.define(schema, tags=_TAGS)
    for device in ("CPU", "CUDA"):
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"llm_speed::{name}", fake, lib=_library)


# ---- <op>_out: from the binding's own table ----------------------------------------------------------


class _Graph:
    """Stands in for `_C` while torch.compile traces llm_speed.ops: the same calls, as operators."""


def _define_out(op: str) -> None:
    letters = iter("abcdefgh")
    arguments = ", ".join(
        f"{_TYPES[kind].format(letter=next(letters)) if kind.startswith('out') else _TYPES[kind]} {name}"
        for name, kind in _C.op_fields(op)
    )
    native = getattr(_C, op)

    def kernel(*args: Any) -> None:
        native(*args, None)

    _define(f"{op}_out({arguments}) -> ()", kernel, lambda *args: None)
    operator = getattr(torch.ops.llm_speed, f"{op}_out").default

    def traced(*args: Any) -> None:
        if args[-1] is not None:
            raise RuntimeError(f"{op}: stream= cannot be given inside torch.compile")
        operator(*args[:-1])

    setattr(_Graph, op, staticmethod(traced))


# ---- <op>: new tensors -------------------------------------------------------------------------------


def _functional(schema: str, fake: Callable[..., Any], function: Any = None, **fixed: Any) -> None:
    """An operator whose argument names are those of llm_speed.ops; `fake` makes its outputs."""
    parsed = torch._C.parse_schema(f"llm_speed::{schema}")
    names = [argument.name for argument in parsed.arguments]
    defaults = {a.name: a.default_value for a in parsed.arguments if a.has_default_value()}
    function = function or getattr(ops, schema.partition("(")[0])

    def named(args: Tuple[Any, ...]) -> dict[str, Any]:
        return {**defaults, **dict(zip(names, args))}  # the dispatcher leaves out trailing arguments at their defaults

    def kernel(*args: Any) -> Any:
        return function(**named(args), **fixed)

    _define(schema, kernel, lambda *args: fake(**named(args)))


def _like(name: str) -> Callable[..., torch.Tensor]:
    return lambda **a: arrays.empty_like(a[name])


def _embedded(ids: Any, table: Any, table_type: Any, dtype: Any, **_: Any) -> torch.Tensor:
    return ops._new_embedding(ids, table, table_type, dtype)


def _exact(act: str, gated: bool, **extras: Any) -> bool:
    return act == "none" and not gated and all(extras.get(name) is None for name in _GEMM_EXTRAS)


def _product(a: Any, b: Any, trans_a: bool, trans_b: bool, out_dtype: Any, **rest: Any) -> torch.Tensor:
    a, b = a.mT if trans_a else a, b.mT if trans_b else b
    return ops._new_product(a, b, out_dtype, rest["gated"], _exact(**rest))


def _grouped_product(a: Any, b: Any, trans_b: bool, out_dtype: Any, **rest: Any) -> torch.Tensor:
    return ops._new_grouped_product(a, b.mT if trans_b else b, out_dtype, rest["gated"], _exact(**rest))


def _attended(values: str) -> Callable[..., torch.Tensor]:
    return lambda **a: ops._new_attention(a["q"], a[values])


def _attended_lse(values: str) -> Callable[..., Tuple[torch.Tensor, torch.Tensor]]:
    return lambda **a: (ops._new_attention(a["q"], a[values]), ops._new_lse(a["q"]))


_ROPE = (
    "{x} Tensor? positions=None, Tensor? cos=None, Tensor? sin=None, str style='neox', int rotary_dim=0, "
    "float theta=10000.0, float[]? freq_factors=None, str scaling='none', float factor=0.0, float low_freq_factor=0.0, "
    "float high_freq_factor=0.0, int original_context=0, float beta_fast=0.0, float beta_slow=0.0, "
    "float attention_factor=0.0, str? variant=None"
)
_GEMM_EXTRAS = ("bias", "residual", "scale_a", "scale_b", "scale_out")
_GEMM_OPTIONS = (
    "str act='none', bool gated=False, bool tf32=False, bool batch_invariant=False, bool fast_accum=False, "
    "str? config=None"
)
_MASK = "int[2] window=[-1, -1], float? scale=None, float softcap=0.0"
_PREFILL = (
    f"Tensor q, Tensor k, Tensor v, bool causal=False, {_MASK}, Tensor? bias=None, Tensor? alibi_slopes=None, "
    "Tensor? sinks=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_kv=None, SymInt max_q_len=0, str? variant=None"
)
_DECODE = (
    "Tensor q, Tensor k_cache, Tensor v_cache, Tensor kv_lens, Tensor? page_table=None, Tensor? cu_seqlens_q=None, "
    f"SymInt max_q_len=0, bool causal=True, {_MASK}, Tensor? alibi_slopes=None, Tensor? sinks=None, int num_splits=0, "
    "str? variant=None"
)
_SAMPLE = (
    "Tensor logits, Tensor? temperature=None, Tensor? top_k=None, Tensor? top_p=None, Tensor? min_p=None, "
    "Tensor? repetition_penalty=None, Tensor? seed=None, Tensor? step=None, Tensor? history=None, "
    "Tensor? history_lens=None, str? variant=None"
)


def _sampled(dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    return lambda **a: a["logits"].new_empty(a["logits"].shape[:1], dtype=dtype)


def _define_all() -> None:
    for op in _C.op_names():
        _define_out(op)
    _functional(
        "embed(Tensor ids, Tensor table, float scale=1.0, str? table_type=None, str? dtype=None) -> Tensor", _embedded
    )
    _functional(
        "rmsnorm(Tensor x, Tensor? weight=None, float eps=1e-6, float weight_offset=0.0, str? variant=None) -> Tensor",
        _like("x"),
    )
    _functional(
        "add_rmsnorm(Tensor x, Tensor residual, Tensor? weight=None, float eps=1e-6, float weight_offset=0.0, "
        "str? variant=None) -> (Tensor, Tensor)",
        lambda **a: (_like("x")(**a), _like("x")(**a)),
    )
    _functional(
        "layernorm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5, str? variant=None) -> Tensor",
        _like("x"),
    )
    _functional(
        "gemm(Tensor a, Tensor b, Tensor? c=None, float alpha=1.0, float beta=0.0, bool trans_a=False, "
        "bool trans_b=False, str? out_dtype=None, str? variant=None, Tensor? bias=None, Tensor? residual=None, "
        f"Tensor? scale_a=None, Tensor? scale_b=None, Tensor? scale_out=None, {_GEMM_OPTIONS}) -> Tensor",
        _product,
    )
    _functional(
        "gemm_grouped(Tensor a, Tensor b, Tensor offsets, float alpha=1.0, bool trans_b=False, Tensor? bias=None, "
        f"Tensor? scale_a=None, Tensor? scale_b=None, str? out_dtype=None, {_GEMM_OPTIONS}, str? variant=None) "
        "-> Tensor",
        _grouped_product,
    )
    _functional(
        "linear(Tensor x, Tensor weight, Tensor? bias=None, str? weight_type=None, str? out_dtype=None, "
        "str? variant=None) -> Tensor",
        lambda x, weight, out_dtype, **_: ops._new_linear(x, weight, out_dtype),
    )
    _functional(f"rope({_ROPE.format(x='Tensor x,')}) -> Tensor", _like("x"))
    _functional(
        f"rope_pair({_ROPE.format(x='Tensor x, Tensor x2,')}) -> (Tensor, Tensor)",
        lambda **a: (_like("x")(**a), _like("x2")(**a)),
        ops.rope,
    )
    _functional(f"attn_prefill({_PREFILL}) -> Tensor", _attended("v"))
    _functional(
        f"attn_prefill_lse({_PREFILL}) -> (Tensor, Tensor)", _attended_lse("v"), ops.attn_prefill, return_lse=True
    )
    _functional(f"attn_decode({_DECODE}) -> Tensor", _attended("v_cache"))
    _functional(
        f"attn_decode_lse({_DECODE}) -> (Tensor, Tensor)", _attended_lse("v_cache"), ops.attn_decode, return_lse=True
    )
    _functional(
        "attn_merge(Tensor a, Tensor lse_a, Tensor b, Tensor lse_b, str? variant=None) -> (Tensor, Tensor)",
        lambda **a: (_like("a")(**a), _like("lse_a")(**a)),
    )
    _functional("gated_act(Tensor gate, Tensor? up=None, str act='silu', str? variant=None) -> Tensor", _like("gate"))
    _functional(f"sample({_SAMPLE}) -> Tensor", _sampled(torch.int32))
    _functional(
        f"sample_probs({_SAMPLE}) -> (Tensor, Tensor)",
        lambda **a: (_sampled(torch.int32)(**a), _sampled(torch.float32)(**a)),
        ops.sample,
        return_probs=True,
    )


_define_all()
ops._graph = _Graph
ops._compiling = torch.compiler.is_compiling
arrays._torch = torch
