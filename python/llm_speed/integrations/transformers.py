"""Hugging Face transformers on the ops of this library.

    import llm_speed.integrations.transformers as fast

    model = fast.enable(AutoModelForCausalLM.from_pretrained(name, dtype="auto", device_map="cuda"))
    print(fast.report(model))  # {'attention': 32, 'rmsnorm': 65, 'rope': 32, 'mlp': 32}
    with torch.no_grad():
        model.generate(**inputs)

Importing this module also registers the attention alone, for
`from_pretrained(name, attn_implementation="llm_speed")`. `import llm_speed` does not: a package that only happens to be
installed should not reach into another one's import, nor fail there.

Outputs agree with the model's own up to rounding. Where the two differ, the ops round once at the end: transformers'
Llama-style RMSNorm rounds the normalised values and their product with the weight, and its rope every product and sum.

Nothing here has gradients. Where grad mode is on and an input or a weight requires grad, as in training or in a forward
without torch.no_grad(), every part computes as it did before.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, Dict, Iterable, Iterator, List, Optional

from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from ..errors import ArgumentError, Error
from ._transformers_attention import attention, make_mask
from ._transformers_layers import find_swap, own_forward

__all__ = ["KINDS", "NAME", "disable", "enable", "report"]

NAME = "llm_speed"
KINDS = ("attention", "rmsnorm", "rope", "mlp")

if "q_offset" not in inspect.signature(sdpa_mask).parameters:
    raise ImportError("llm_speed.integrations.transformers needs a newer transformers: pip install -U transformers")
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, make_mask)


def enable(model: nn.Module, kinds: Iterable[str] = KINDS) -> nn.Module:
    """Puts the ops into a loaded model, in place, and returns it. Enabling twice is the same as once.

    kinds, of KINDS:

    - "attention": all layers that choose theirs through the config; it is set in the config, so that models built on
      one config object share it, as with the model's own set_attn_implementation.
    - "rmsnorm": modules named ..RMSNorm that compute x / rms(x) * weight, or (1 + weight).
    - "rope": attention modules that rotate (i, i + head_dim/2) by cos and sin of whole heads.
    - "mlp": modules that compute down_proj(act_fn(gate_proj(x)) * up_proj(x)) with SiLU or GELU. The projections stay
      as they are, so quantised and LoRA ones keep working.

    A module that computes something else, or whose forward someone else has replaced, is left alone; `report` counts
    what was swapped. ArgumentError for an unknown kind.
    """
    kinds = tuple(kinds)
    for kind in kinds:
        if kind not in KINDS:
            raise ArgumentError(f'enable: kind "{kind}" is none of {", ".join(KINDS)}')
    if "attention" in kinds:
        _enable_attention(model)
    for module in model.modules():
        slot = _forward_slot(module, type(module).forward)
        swap = find_swap(module) if slot else None
        if slot and swap and swap.kind in kinds:
            vars(module)[_SWAP] = swap
            # A bound method, so that a deep copy of the model is bound to the copy's modules.
            vars(module)[slot] = types.MethodType(swap.forward, module)
    return model


def disable(model: nn.Module) -> nn.Module:
    """Undoes `enable`: the model computes bit for bit what it did before. Returns it.

    Error if someone else has replaced a forward since, with nothing undone.
    """
    swapped = [(module, vars(module)[_SWAP]) for module in model.modules() if _SWAP in vars(module)]
    for module, swap in swapped:
        if _forward_slot(module, swap.forward) is None:
            raise Error(f"disable: the forward of a {type(module).__name__} has been replaced since enable")
    for module, swap in swapped:
        if _forward_slot(module, swap.forward) == "forward":
            del vars(module)["forward"]
        else:
            vars(module)[_HOOKED] = own_forward(module)
        del vars(module)[_SWAP]
    for module in model.modules():
        for config, implementation in vars(module).pop(_ATTENTION, ()):
            config._attn_implementation = implementation
    return model


def report(model: nn.Module) -> Dict[str, int]:
    """How many modules of each kind run on the ops: {"attention": 32, "rmsnorm": 65, "rope": 32, "mlp": 32}."""
    counts = dict.fromkeys(KINDS, 0)
    for module in model.modules():
        if _SWAP in vars(module):
            counts[vars(module)[_SWAP].kind] += 1
        if _chooses_attention(module) and vars(module)["config"]._attn_implementation == NAME:
            counts["attention"] += 1
    return counts


# ---- Attention: by the config -----------------------------------------------------------------------

_ATTENTION = "_llm_speed_attention"  # the attribute of an enabled model that holds what its configs said before


def _enable_attention(model: nn.Module) -> None:
    before = [(config, config._attn_implementation) for config in _configs(model)]
    for pretrained in _outermost(model):
        pretrained.set_attn_implementation(NAME)
    changed = [(config, name) for config, name in before if name != config._attn_implementation]
    if changed:
        vars(model).setdefault(_ATTENTION, []).extend(changed)


def _outermost(module: nn.Module) -> Iterator[PreTrainedModel]:
    """The models of transformers in a module that may wrap them, without those inside one of them."""
    if isinstance(module, PreTrainedModel):
        yield module
    else:
        for child in module.children():
            yield from _outermost(child)


def _configs(model: nn.Module) -> List[PreTrainedConfig]:
    """Each config once, a composite one before its parts: setting the whole sets its parts too."""
    found: Dict[int, PreTrainedConfig] = {}

    def add(config: PreTrainedConfig) -> None:
        if id(config) not in found:
            found[id(config)] = config
            for part in config.sub_configs:
                if getattr(config, part, None) is not None:
                    add(getattr(config, part))

    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            add(module.config)
    return list(found.values())


def _chooses_attention(module: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names and "config" in vars(module)


# ---- The rest: by each module's forward -------------------------------------------------------------

_SWAP = "_llm_speed"  # the attribute of a swapped module that holds its Swap
_HOOKED = "_old_forward"  # where accelerate's hooks (device_map over several devices, offloading) keep the forward


def _forward_slot(module: nn.Module, function: Any) -> Optional[str]:
    """The attribute through which the module's forward is `function`; None if it is another one."""
    slot = _HOOKED if "_hf_hook" in vars(module) else "forward"
    return slot if getattr(getattr(module, slot), "__func__", None) is function else None
