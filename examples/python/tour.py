"""A tour of llm_speed, cell by cell: python tour.py [MODEL.gguf]. Runs on a GPU where there is one, else on the CPU."""

# %% Ops: on the arrays that are there
import sys

import torch

import llm_speed
from llm_speed import ops

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32

batch, tokens, heads, kv_heads, head_dim = 2, 64, 8, 2, 32
hidden = heads * head_dim
x = torch.randn(batch, tokens, hidden, device=device, dtype=dtype)
weight = torch.ones(hidden, device=device, dtype=dtype)

normed, residual = llm_speed.add_rmsnorm(x, x, weight)  # h = x + x, and its norm
assert torch.equal(residual, x + x)
print("add_rmsnorm", tuple(normed.shape), normed.dtype)

# %% A layer's attention, with a paged cache
qkv = llm_speed.linear(normed, torch.randn((heads + 2 * kv_heads) * head_dim, hidden, device=device, dtype=dtype) / 16)
q, k, v = qkv.unflatten(-1, (-1, head_dim)).split([heads, kv_heads, kv_heads], dim=2)  # views, read in place
positions = torch.arange(tokens, device=device, dtype=torch.int32).expand(batch, -1)
q, k = llm_speed.rope(q, positions, x2=k, theta=10000.0)
attended = llm_speed.attn_prefill(q, k, v, causal=True)

page = 16
k_cache, v_cache = torch.zeros(2, batch * tokens // page, page, kv_heads, head_dim, device=device, dtype=dtype)
slots = torch.arange(batch * tokens, device=device).view(batch, tokens)
llm_speed.kv_write(k, v, k_cache, v_cache, slots)
page_table = torch.arange(batch * tokens // page, device=device, dtype=torch.int32).view(batch, -1)
kv_lens = torch.full((batch,), tokens, device=device, dtype=torch.int32)
last = llm_speed.attn_decode(q[:, -1:], k_cache, v_cache, kv_lens, page_table=page_table)
torch.testing.assert_close(last, attended[:, -1:], rtol=0.02, atol=0.02)
print("the last token attends to the cache as to the keys themselves")

# %% Names that other packages gave these functions
same = llm_speed.flash_attn_func(q, k, v, causal=True)
assert torch.equal(same, attended)
heads_first = [t.transpose(1, 2) for t in (q, k, v)]
torch_says = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=True)
we_say = llm_speed.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=True)
torch.testing.assert_close(we_say, torch_says, rtol=0.02, atol=0.02)
print("flash_attn_func and scaled_dot_product_attention agree")

# %% NumPy arrays, the same functions
import numpy as np

array = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
print("rms_norm of a NumPy array:", llm_speed.rms_norm(array)[0])


# %% torch.compile: the ops are torch operators, so that nothing breaks the graph
@torch.compile(fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
def feed_forward(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = llm_speed.linear(x, gate_up).chunk(2, dim=-1)
    return llm_speed.linear(llm_speed.gated_act(gate, up), down)


gate_up = torch.randn(4 * hidden, hidden, device=device, dtype=dtype) / 16
down = torch.randn(hidden, 2 * hidden, device=device, dtype=dtype) / 16
print("compiled feed-forward", tuple(feed_forward(normed, gate_up, down).shape))

# %% How fast is it, and how fast could it be?
rows = torch.randn(256, 2048, device=device, dtype=dtype)
print(llm_speed.profile(ops.rmsnorm, rows, torch.ones(2048, device=device, dtype=dtype)))
print(llm_speed.profile(feed_forward, normed, gate_up, down, repeat=10))

# %% A Hugging Face model, in place
try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    print("transformers is not installed")
else:
    import llm_speed.integrations.transformers as fast

    config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
    model = LlamaForCausalLM(config).to(device).eval()
    ids = torch.arange(16, device=device)[None]
    with torch.no_grad():
        before = model(ids).logits
        fast.enable(model)
        torch.testing.assert_close(model(ids).logits, before, rtol=1e-3, atol=1e-3)
    print("Hugging Face, same logits with", fast.report(model))

# %% A GGUF file, with its own tokenizer
if len(sys.argv) > 1:
    with llm_speed.Engine(sys.argv[1], device, max_sequences=4) as engine:
        print(engine.model, "on", device)
        for piece in engine.generate("The capital of France is", max_new_tokens=16, stream=True):
            print(piece.text, end="", flush=True)
        several = engine.generate(["One, two,", "Red, green,"], max_new_tokens=8, temperature=0.8, seed=1)
        print("\n", [completion.text for completion in several], sep="")
        print(engine.stats())
else:
    print("python tour.py MODEL.gguf generates text too")
