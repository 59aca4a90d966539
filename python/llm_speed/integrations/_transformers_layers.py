"""RMSNorm, rotary embedding and gated MLP of transformers' models, one module at a time.

Model code has dozens of classes for these three, most of them copies of one another and some of them not quite. So a
module is judged by what it computes, on a few numbers, and not by its name.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch import nn
from torch.nn import functional

from .. import ops
from ._transformers_attention import takes

Forward = Callable[..., Any]


class Swap(NamedTuple):
    """What a module has been given: kept in its `_llm_speed`, for the forward that replaces its own and for undoing."""

    kind: str
    forward: Forward
    setting: Any


def find_swap(module: nn.Module) -> Optional[Swap]:
    """The swap that suits this module, None if none does."""
    return _rmsnorm_swap(module) or _mlp_swap(module) or _rope_swap(module)


def own_forward(module: nn.Module) -> Forward:
    """The forward that the module's class gives it."""
    return types.MethodType(type(module).forward, module)


def _takes_one_tensor(module: nn.Module) -> bool:
    return len(inspect.signature(type(module).forward).parameters) == 2


def _ramp(low: float, high: float, *shape: int) -> torch.Tensor:
    size = torch.Size(shape).numel()
    return torch.linspace(low, high, size, dtype=torch.float32, device="cpu").view(shape)


def _agree(module: nn.Module, parts: Dict[str, Dict[str, Any]], x: torch.Tensor, expected: torch.Tensor) -> bool:
    """Does the module, with some of its weights or submodules exchanged for small ones, map x to `expected`?"""
    stand_in = copy.copy(module)
    for place, members in parts.items():
        stand_in.__dict__[place] = {**stand_in.__dict__[place], **members}
    try:
        with torch.no_grad():
            got = type(module).forward(stand_in, x)
    except Exception:  # it is another sort of module, and may say so in any way
        return False
    return isinstance(got, torch.Tensor) and got.shape == expected.shape and torch.allclose(got, expected, 1e-5, 1e-6)


# ---- RMSNorm -----------------------------------------------------------------------------------------


def _rmsnorm_swap(module: nn.Module) -> Optional[Swap]:
    """x / rms(x) * weight (Llama), or x / rms(x) * (1 + weight) (Gemma); the setting is (eps, weight_offset)."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if "RMSNorm" not in type(module).__name__ or not isinstance(weight, nn.Parameter) or not isinstance(eps, float):
        return None
    if weight.ndim != 1 or not _takes_one_tensor(module):
        return None
    x, w = _ramp(-1.5, 1.0, 3, 8) * eps**0.5, _ramp(0.5, 2.0, 8)  # so small that eps counts
    normed = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    for offset in (0.0, 1.0):
        if _agree(module, {"_parameters": {"weight": nn.Parameter(w)}}, x, normed * (w + offset)):
            return Swap("rmsnorm", _rmsnorm_forward, (eps, offset))
    return None


def _rmsnorm_forward(self: Any, x: torch.Tensor) -> Any:
    if not takes(x, self.weight):
        return own_forward(self)(x)
    eps, offset = self._llm_speed.setting
    return ops.rmsnorm(x, self.weight, eps, weight_offset=offset)


# ---- Gated MLP ---------------------------------------------------------------------------------------

_ACTS: Dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
}


def _mlp_swap(module: nn.Module) -> Optional[Swap]:
    """down_proj(act_fn(gate_proj(x)) * up_proj(x)), the projections being whatever they are; the setting is the act."""
    act_fn = getattr(module, "act_fn", None)
    projections = {"gate_proj", "up_proj", "down_proj"}
    if not callable(act_fn) or set(module._modules) - {"act_fn"} != projections or not _takes_one_tensor(module):
        return None
    x = _ramp(-4.0, 4.0, 3, 8)
    gate, up, down = nn.Identity(), nn.Hardtanh(-1.0, 3.0), nn.Softsign()
    parts = {"_modules": {"gate_proj": gate, "up_proj": up, "down_proj": down}}
    for name, act in _ACTS.items():
        if _agree(module, parts, x, down(act(x) * up(x))):
            return Swap("mlp", _mlp_forward, name)
    return None


def _mlp_forward(self: Any, x: torch.Tensor) -> Any:
    gate, up = self.gate_proj(x), self.up_proj(x)
    if takes(gate, up):
        return self.down_proj(ops.gated_act(gate, up, act=self._llm_speed.setting))
    return self.down_proj(self.act_fn(gate) * up)


# ---- Rotary embedding --------------------------------------------------------------------------------
#
# A model's attention calls the function apply_rotary_pos_emb of its own file, in the midst of a forward whose arguments
# and cache calls change between releases and models. Exchanging the function would reach every model of that file, and
# a forward of our own would have to follow every release. So a swapped module runs its class's own bytecode in which
# one global name is another: the name of a function that stands beside the original in the model's file. That also
# holds under torch.compile, which looks globals up by file and name.

_ORIGINAL = "apply_rotary_pos_emb"
_OURS = "_llm_speed_apply_rotary_pos_emb"


def _rope_swap(module: nn.Module) -> Optional[Swap]:
    forward = _with_our_rope(type(module).forward)
    return None if forward is None else Swap("rope", forward, None)


@functools.lru_cache(maxsize=None)
def _with_our_rope(forward: Forward) -> Optional[Forward]:
    """A copy of forward that calls our rope; None if it calls no rope, or one that rotates in another way."""
    inner = getattr(forward, "__wrapped__", None)
    if inner is not None and isinstance(forward, types.FunctionType):
        rewritten = _with_our_rope(inner)
        cells = forward.__closure__ or ()
        if rewritten is None or not any(cell.cell_contents is inner for cell in cells):
            return None
        closure = tuple(types.CellType(rewritten) if cell.cell_contents is inner else cell for cell in cells)
        return _rebuilt(forward, forward.__code__, closure)
    if not isinstance(forward, types.FunctionType) or _ORIGINAL not in forward.__code__.co_names:
        return None
    original: Any = forward.__globals__.get(_ORIGINAL)
    if not _rotates_halves(original):
        return None
    forward.__globals__.setdefault(_OURS, functools.partial(_apply_rope, original))
    names = tuple(_OURS if name == _ORIGINAL else name for name in forward.__code__.co_names)
    return _rebuilt(forward, forward.__code__.replace(co_names=names), forward.__closure__)


def _rebuilt(function: Any, code: types.CodeType, closure: Any) -> Forward:
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, function)


def _rotates_halves(apply: Any) -> bool:
    """Does apply(q, k, cos, sin) rotate (i, i + head_dim/2), by tables whose two halves are alike?"""
    q, k = _ramp(-1.0, 2.0, 2, 3, 5, 8), _ramp(1.0, -3.0, 2, 1, 5, 8)  # [batch, heads, tokens, head_dim]
    angles = _ramp(0.0, 6.0, 2, 5, 4)
    cos, sin = angles.cos(), angles.sin()

    def rotated(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    try:
        got = apply(q, k, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1))
        return all(torch.allclose(g, rotated(x), 1e-5, 1e-6) for g, x in zip(got, (q, k), strict=True))
    except Exception:  # another sort of function, with other arguments
        return False


def _apply_rope(
    original: Callable[..., Any],
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """(q, k) rotated: q [batch, num_heads, tokens, head_dim], k likewise; cos, sin [batch or 1, tokens, head_dim]."""
    batch, head_dim = q.shape[0], q.shape[3]
    if args or kwargs or cos.shape[-1] != head_dim or not takes(q, k, cos, sin):
        return original(q, k, cos, sin, *args, **kwargs)
    # The tables of a batch are views: the first half of each row, whose second half is the same.
    cos, sin = (t[..., : head_dim // 2].expand(batch, -1, -1).reshape(-1, head_dim // 2) for t in (cos, sin))
    q, k = ops.rope(q.transpose(1, 2), x2=k.transpose(1, 2), cos=cos, sin=sin)
    return q.transpose(1, 2), k.transpose(1, 2)
