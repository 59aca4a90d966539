"""llm_speed.integrations.transformers on tiny random models: the same numbers as the model's own code, by our ops."""

from __future__ import annotations

import copy
import functools
from typing import Any, Dict, List, Optional

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import llm_speed.integrations.transformers as fast
from llm_speed import ops
from llm_speed.errors import ArgumentError, Error, UnsupportedError
from llm_speed.integrations import _transformers_layers as layers
from oracle import check

# The older of the two names works in all releases that this package supports.
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")

WINDOW = 5  # smaller than every prompt here
MODELS: Dict[str, Dict[str, Any]] = {
    "Llama": {},
    "Qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "Qwen3": {"head_dim": 32},
    "Mistral": {"sliding_window": WINDOW},
    # softcap, which only the eager attention of transformers honours in all releases; 1 + weight; gelu_tanh
    "Gemma2": {"head_dim": 16, "sliding_window": WINDOW, "attn_implementation": "eager"},
}
NORMS = {"Llama": 5, "Qwen2": 5, "Qwen3": 9, "Mistral": 5, "Gemma2": 9}


def config(name: str, **more: Any) -> Any:
    sizes = {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.2,  # large enough for attention to be far from uniform
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    return getattr(transformers, f"{name}Config")(**{**sizes, **MODELS.get(name, {}), **more})


@functools.lru_cache(maxsize=None)
def prototype(name: str) -> Any:
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}ForCausalLM")(config(name)).eval()
    for norm_name, weight in model.named_parameters():
        if "norm" in norm_name:  # ones or zeros as they are made
            weight.data += 0.3 * torch.randn_like(weight)
    return model


def make(name: str, device: str = "cpu", dtype: Any = None) -> Any:
    return copy.deepcopy(prototype(name)).to(device, dtype)


def prompts(device: str, lengths: List[int], side: str = "left") -> Dict[str, Any]:
    """Random ids, padded to the longest with id 0, and their attention mask."""
    longest = max(lengths)
    ids = torch.randint(1, 128, (len(lengths), longest))
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, longest - length :] = 1
    if side == "right":
        mask = mask.flip(1)
    return {"input_ids": (ids * mask).to(device), "attention_mask": mask.to(device)}


def positions(mask: Any) -> Any:
    """What generate() gives the model: left padding does not count."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def generate(model: Any, inputs: Dict[str, Any], **options: Any) -> Any:
    return model.generate(**inputs, max_new_tokens=6, do_sample=False, disable_compile=True, **options)


class Calls(Dict[str, List[Dict[str, Any]]]):
    """The keyword arguments of each call of the ops, by op."""

    def count(self, op: str) -> int:
        return len(self.get(op, []))


@pytest.fixture
def calls(monkeypatch: Any) -> Calls:
    recorded = Calls()

    def record(op: str) -> Any:
        real = getattr(ops, op)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            recorded.setdefault(op, []).append(kwargs)
            return real(*args, **kwargs)

        return wrapper

    for op in ("rmsnorm", "rope", "attn_prefill", "attn_decode", "gated_act"):
        monkeypatch.setattr(ops, op, record(op))
    return recorded


def stored_masks(calls: Calls) -> int:
    return sum(call.get("bias") is not None for call in calls.get("attn_prefill", []))


# ---- The same numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_float32(name: str, device: str, calls: Calls) -> None:
    model, inputs = make(name, device), {"input_ids": prompts(device, [11, 11])["input_ids"]}
    original = model(**inputs).logits
    assert fast.enable(model) is model
    assert fast.report(model) == {"attention": 2, "rmsnorm": NORMS[name], "rope": 2, "mlp": 2}
    torch.testing.assert_close(model(**inputs).logits, original, rtol=1e-5, atol=1e-5)
    assert {op: calls.count(op) for op in ("rmsnorm", "rope", "attn_prefill", "gated_act")} == {
        "rmsnorm": NORMS[name],
        "rope": 2,
        "attn_prefill": 2,
        "gated_act": 2,
    }
    assert stored_masks(calls) == 0


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name: str, device: str) -> None:
    inputs = prompts(device, [7, 11])
    seen = inputs["attention_mask"].bool()
    inputs["position_ids"] = positions(seen)
    model = make(name, device, torch.bfloat16)
    double = copy.deepcopy(model).double()
    exact = torch.cat([double(ids[None, row]).logits[0] for ids, row in zip(inputs["input_ids"], seen, strict=True)])
    working = model(**inputs).logits
    got = fast.enable(model)(**inputs).logits
    check(got[seen], exact, working[seen])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", MODELS)
def test_generate(name: str, device: str, cache: str, calls: Calls) -> None:
    model = make(name, device)
    alone, batch = prompts(device, [11]), prompts(device, [7, 11, 3])
    expected = [generate(model, inputs, cache_implementation=cache) for inputs in (alone, batch)]
    fast.enable(model)
    assert generate(model, alone, cache_implementation=cache).equal(expected[0])
    assert calls.count("attn_prefill") > 0 and calls.count("rope") == 12
    if name in ("Llama", "Qwen3") or cache == "dynamic":
        assert stored_masks(calls) == 0 and calls.count("attn_decode") == 10
    assert generate(model, batch, cache_implementation=cache).equal(expected[1])
    assert stored_masks(calls) > 0


def test_padding_that_has_left_the_window(device: str, calls: Calls) -> None:
    model, inputs = make("Mistral", device), prompts(device, [9, 11])
    expected = generate(model, inputs)
    assert generate(fast.enable(model), inputs).equal(expected)
    assert stored_masks(calls) == 2 and calls.count("attn_decode") == 10  # the prompt's, and none since


def test_right_padding(device: str) -> None:
    model, inputs = make("Mistral", device), prompts(device, [7, 11, 3], "right")
    seen = inputs["attention_mask"].bool()
    original = model(**inputs).logits[seen]
    torch.testing.assert_close(fast.enable(model)(**inputs).logits[seen], original, rtol=1e-5, atol=1e-5)


def test_window_that_only_the_mask_knows(device: str, calls: Calls) -> None:
    """Qwen2Moe does not tell its attention of the sliding window that its masks have."""
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
    experts["shared_expert_intermediate_size"] = 16
    made = config("Qwen2Moe", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2, **experts)
    model = transformers.Qwen2MoeForCausalLM(made).to(device).eval()
    ids = prompts(device, [11])["input_ids"]
    original = model(ids).logits
    fast.enable(model, kinds=["attention"])
    torch.testing.assert_close(model(ids).logits, original, rtol=1e-5, atol=1e-5)
    assert [call["window"] for call in calls["attn_prefill"]] == [(WINDOW - 1, -1), (-1, -1)]


@pytest.mark.parametrize("name", ["Llama", "Mistral"])
@pytest.mark.parametrize("static", [False, True])
def test_prompt_in_two_parts(name: str, static: bool, device: str) -> None:
    model, ids = make(name, device), prompts(device, [13])["input_ids"]
    whole = model(ids).logits
    fast.enable(model)
    cache = transformers.StaticCache(model.config, 32) if static else transformers.DynamicCache(config=model.config)
    parts = [model(part, past_key_values=cache).logits for part in (ids[:, :6], ids[:, 6:12], ids[:, 12:])]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)


def test_packed_sequences(device: str) -> None:
    """Position ids that start anew begin another sequence, which must not see the one before."""
    model, ids = make("Llama", device), prompts(device, [11])["input_ids"]
    fast.enable(model)
    packed = model(ids, position_ids=torch.tensor([[*range(4), *range(7)]], device=device), use_cache=False).logits
    apart = [model(part).logits for part in (ids[:, :4], ids[:, 4:])]
    torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=1e-5, atol=1e-5)


def test_masks_of_the_caller(device: str) -> None:
    """Four axes: True sees in a bool one, numbers are added in a float one."""
    model, ids = make("Llama", device), prompts(device, [9])["input_ids"]
    visible = (torch.rand(1, 1, 9, 9, device=device) < 0.6).tril() | torch.eye(9, device=device, dtype=torch.bool)
    added = torch.zeros(1, 1, 9, 9, device=device).masked_fill(~visible, torch.finfo(torch.float32).min)
    original = model(ids, attention_mask=visible).logits
    fast.enable(model)
    for mask in (visible, added):
        torch.testing.assert_close(model(ids, attention_mask=mask).logits, original, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cached", [False, True])
def test_compile(device: str, cached: bool) -> None:
    """One graph of our operators: a forward, and a decoding step over a static cache."""
    model, ids = fast.enable(make("Llama", device)), prompts(device, [9])["input_ids"]
    operators: Dict[str, int] = {}

    def backend(graph: Any, _: Any) -> Any:
        for node in graph.graph.nodes:
            if "llm_speed" in str(node.target):
                operators[str(node.target)] = operators.get(str(node.target), 0) + 1
        return graph

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    whole = model(ids).logits
    if cached:
        cache = transformers.StaticCache(model.config, 16)
        model(ids[:, :8], past_key_values=cache)
        got, whole = compiled(ids[:, 8:], past_key_values=cache).logits, whole[:, 8:]
    else:
        got = compiled(ids).logits
    torch.testing.assert_close(got, whole, rtol=1e-5, atol=1e-5)
    counts = {"rmsnorm": 5, "rope": 2, "gated_act": 2, "attn_decode" if cached else "attn_prefill": 2}
    assert operators == {f"llm_speed.{op}_out.default": count for op, count in counts.items()}


# ---- In and out --------------------------------------------------------------------------------------


def test_enable_twice_disable_once(device: str, calls: Calls) -> None:
    model, inputs = make("Qwen3", device), prompts(device, [7, 11])
    original, implementation = model(**inputs).logits, model.config._attn_implementation
    fast.enable(fast.enable(model))
    assert fast.report(model) == {"attention": 2, "rmsnorm": 9, "rope": 2, "mlp": 2}
    model(**inputs)
    assert calls.count("rope") == 2
    assert fast.disable(model) is model
    calls.clear()
    assert model(**inputs).logits.equal(original) and not calls
    assert model.config._attn_implementation == implementation
    assert not any(fast.report(model).values())
    assert not any("_llm_speed" in name for module in model.modules() for name in vars(module))
    fast.disable(model)


def test_some_kinds(calls: Calls) -> None:
    model, ids = make("Llama"), prompts("cpu", [5])["input_ids"]
    fast.enable(model, kinds=("rope", "mlp"))
    model(ids)
    assert set(calls) == {"rope", "gated_act"}
    assert fast.report(model) == {"attention": 0, "rmsnorm": 0, "rope": 2, "mlp": 2}
    fast.enable(model, kinds=["rmsnorm"])
    assert fast.report(model) == {"attention": 0, "rmsnorm": 5, "rope": 2, "mlp": 2}
    with pytest.raises(ArgumentError, match='"linear"'):
        fast.enable(model, kinds=["linear"])


def test_only_the_model_given(calls: Calls) -> None:
    """Another model of the same classes keeps its own code; a deep copy has its own swaps."""
    model, other, ids = make("Llama"), make("Llama"), prompts("cpu", [9])["input_ids"]
    fast.enable(model)
    expected = other(ids).logits
    assert not calls
    twin = copy.deepcopy(model)
    for module in twin.modules():
        assert getattr(module.forward, "__self__", module) is module
    fast.disable(model)
    assert model(ids).logits.equal(expected) and not calls
    twin(ids)
    assert calls.count("rmsnorm") == 5
    assert fast.disable(twin)(ids).logits.equal(expected)


def test_attention_alone_by_name(device: str, tmp_path: Any, calls: Calls) -> None:
    inputs = prompts(device, [7, 11])
    model = make("Mistral", device)
    expected = generate(model, inputs)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="llm_speed").to(device)
    assert generate(loaded.eval(), inputs).equal(expected)
    assert set(calls) <= {"attn_prefill", "attn_decode"} and calls.count("attn_prefill") > 0
    assert fast.report(loaded) == {"attention": 2, "rmsnorm": 0, "rope": 0, "mlp": 0}
    fast.disable(fast.enable(loaded))
    assert loaded.config._attn_implementation == "llm_speed"
    made = transformers.AutoModelForCausalLM.from_config(config("Llama"), attn_implementation="llm_speed")
    assert made.config._attn_implementation == "llm_speed"


def test_hooked_modules(calls: Calls) -> None:
    """accelerate's hooks call module._old_forward from the forward that they put in its place."""
    model, ids, hooked = make("Llama"), prompts("cpu", [5])["input_ids"], []

    def hook(module: Any) -> None:
        module._hf_hook, module._old_forward = object(), module.forward
        module.forward = lambda *args, **kwargs: (hooked.append(module), module._old_forward(*args, **kwargs))[1]

    original = model(ids).logits
    before, after = model.model.norm, model.model.layers[0].mlp
    hook(before)
    fast.enable(model)
    hook(after)
    torch.testing.assert_close(model(ids).logits, original, rtol=1e-5, atol=1e-5)
    assert calls.count("rmsnorm") == 5 and calls.count("gated_act") == 2 and {*hooked} == {before, after}
    fast.disable(model)
    calls.clear()
    assert model(ids).logits.equal(original) and not calls and len(hooked) == 4


def test_replaced_since() -> None:
    model = fast.enable(make("Llama"))
    model.model.norm.forward = lambda x: x
    with pytest.raises(Error, match="LlamaRMSNorm has been replaced"):
        fast.disable(model)
    assert fast.report(model)["mlp"] == 2  # nothing undone


# ---- What is left alone ------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[7, 11], [11, 11]])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients(device: str, checkpointing: bool, lengths: List[int], calls: Calls) -> None:
    """With gradients wanted, the model trains as it did."""

    def gradients(model: Any) -> List[Any]:
        with torch.enable_grad():
            model(**inputs, labels=inputs["input_ids"]).loss.backward()
        return [weight.grad for weight in model.parameters()]

    inputs = prompts(device, lengths)
    model = make("Mistral", device)
    ours = fast.enable(make("Mistral", device))
    if checkpointing:
        for each in (model, ours):
            each.train().gradient_checkpointing_enable({"use_reentrant": False})
    for got, expected in zip(gradients(ours), gradients(model), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert not calls


def test_dropout(calls: Calls) -> None:
    """Training mode without gradients: the ops have no dropout, so torch's attention draws."""
    model = getattr(transformers, "LlamaForCausalLM")(config("Llama", attention_dropout=0.5)).train()
    ids = prompts("cpu", [9])["input_ids"]
    torch.manual_seed(3)
    original = model(ids).logits
    fast.enable(model)
    torch.manual_seed(3)
    torch.testing.assert_close(model(ids).logits, original, rtol=1e-5, atol=1e-5)
    assert "attn_prefill" not in calls


def test_other_formulas() -> None:
    """Cohere rotates pairs of neighbours and has a LayerNorm; its MLP is the usual one."""
    model = transformers.CohereForCausalLM(config("Cohere"))
    assert fast.report(fast.enable(model)) == {"attention": 2, "rmsnorm": 0, "rope": 0, "mlp": 2}


class PlainRMSNorm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))
        self.eps = 1e-5

    def forward(self, x: Any) -> Any:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class SquaredWeightRMSNorm(PlainRMSNorm):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.weight


class GatedRMSNorm(PlainRMSNorm):
    def forward(self, x: Any, gate: Any = None) -> Any:
        return super().forward(x) if gate is None else super().forward(x) * gate


class ForgetfulRMSNorm(PlainRMSNorm):
    def forward(self, x: Any) -> Any:
        return x * x.square().mean(-1, keepdim=True).rsqrt() * self.weight


class MLP(torch.nn.Module):
    def __init__(self, act_fn: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (torch.nn.Linear(8, 8) for _ in range(3))
        self.act_fn = act_fn

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class ClippedMLP(MLP):
    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x).clamp(max=1))


def setting(module: Any) -> Optional[Any]:
    swap = layers.find_swap(module)
    return swap and swap.setting


def test_judged_by_what_they_compute() -> None:
    gelu, gelu_tanh = torch.nn.functional.gelu, torch.nn.GELU(approximate="tanh")
    assert setting(PlainRMSNorm()) == (1e-5, 0.0)
    assert [setting(other()) for other in (SquaredWeightRMSNorm, GatedRMSNorm, ForgetfulRMSNorm)] == [None] * 3
    assert [setting(MLP(act)) for act in (torch.nn.SiLU(), gelu, gelu_tanh)] == ["silu", "gelu", "gelu_tanh"]
    assert [setting(MLP(act)) for act in (torch.nn.ReLU(), lambda x: x * (1.702 * x).sigmoid())] == [None] * 2
    assert setting(ClippedMLP(torch.nn.SiLU())) is None


def test_refusals() -> None:
    model, ids = fast.enable(make("Llama")), prompts("cpu", [5])["input_ids"]
    attention = model.model.layers[0].self_attn
    qkv = [torch.zeros(1, heads, 5, 16) for heads in (4, 2, 2)]
    with pytest.raises(UnsupportedError, match="cu_seq_lens_q"):
        model(ids, cu_seq_lens_q=torch.tensor([0, 5]), use_cache=False)
    with pytest.raises(NotImplementedError, match="output_attentions"):
        fast.attention(attention, *qkv, None, output_attentions=True)
    with pytest.raises(UnsupportedError, match="2 axes"):
        fast.attention(attention, *qkv, torch.ones(1, 5))
    with pytest.raises(UnsupportedError, match="softcap"):
        fast.attention(attention, *qkv, None, dropout=0.1, softcap=30.0)
    with pytest.raises(UnsupportedError, match="not causal"):
        fast.attention(attention, *qkv, None, is_causal=False, sliding_window=3)
