"""An independent float64 forward pass in NumPy, and the fixtures of the engine's tests that it records.

    golden_forward.py logits  model.gguf 1,2,3        prints the logits of every position, one line each
    golden_forward.py smollm2 model.gguf tests/golden records smollm2.json and smollm2.logits.f32
    golden_forward.py tiny    tests/golden            records tiny_*.gguf, tiny.json and tiny.logits.f32

It shares no code with the engine: weights are dequantised to float64, every sum is float64, nothing is fused.
`smollm2` needs the `tokenizers` package; everything else only NumPy.
"""

import argparse
import hashlib
import json
import math
import pathlib
import re

import numpy as np

from gguf_reader import GGUF

GREEDY_STEPS = 64
LOGITS_STEPS = (0, GREEDY_STEPS - 1)  # the steps whose logits are kept whole: 4 bytes x vocabulary each


class Config:
    def __init__(self, gguf):
        self.arch = gguf.kv["general.architecture"]

        def get(key, default=None):
            return gguf.kv.get(f"{self.arch}.{key}", default)

        self.hidden = get("embedding_length")
        self.num_layers = get("block_count")
        self.num_heads = get("attention.head_count")
        self.num_kv_heads = get("attention.head_count_kv", self.num_heads)
        self.head_dim = get("attention.key_length", self.hidden // self.num_heads)
        self.rms_eps = get("attention.layer_norm_rms_epsilon")
        self.rotary_dim = get("rope.dimension_count", self.head_dim)
        self.theta = get("rope.freq_base", 10000.0)
        self.scaling = get("rope.scaling.type", "none")
        self.factor = get("rope.scaling.factor", 1.0)
        self.original_context = get("rope.scaling.original_context_length", get("context_length"))
        self.interleaved = self.arch == "llama"
        self.window = get("attention.sliding_window", 0)  # keys a query sees, itself included; 0: all


def rope_frequencies(config, factors):
    """Angle per position of each pair [rotary_dim / 2], and the factor on cos and sin."""
    dim = config.rotary_dim
    pair = np.arange(dim // 2)
    freq = config.theta ** (-2.0 * pair / dim) / factors
    if config.scaling == "linear":
        return freq / config.factor, 1.0
    if config.scaling == "yarn":  # Peng et al. 2023, section 3.2 and 3.4

        def pair_that_turns(turns):  # the pair that turns so often over the original context
            return dim * math.log(config.original_context / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

        low = max(math.floor(pair_that_turns(32)), 0)
        high = min(math.ceil(pair_that_turns(1)), dim - 1)
        interpolated = np.clip((pair - low) / max(high - low, 0.001), 0, 1)
        return freq * (1 - interpolated) + freq / config.factor * interpolated, 0.1 * math.log(config.factor) + 1
    if config.scaling != "none":
        raise ValueError(f"rope scaling {config.scaling!r}")
    return freq, 1.0


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Model:
    def __init__(self, path):
        self.gguf = GGUF(path)
        self.config = Config(self.gguf)
        self.weights = {name: tensor.dequantize() for name, tensor in self.gguf.tensors.items()}
        factors = self.weights.get("rope_freqs.weight", np.ones(self.config.rotary_dim // 2))
        self.freq, self.magnitude = rope_frequencies(self.config, factors)
        self.head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        self.reset()

    def reset(self):
        shape = (0, self.config.num_kv_heads, self.config.head_dim)
        self.cache = [(np.zeros(shape), np.zeros(shape)) for _ in range(self.config.num_layers)]
        self.length = 0

    def rope(self, x, positions):
        """x [tokens, heads, head_dim]"""
        dim = self.config.rotary_dim
        angle = positions[:, None, None] * self.freq
        cos, sin = np.cos(angle) * self.magnitude, np.sin(angle) * self.magnitude
        if self.config.interleaved:
            first, second = slice(0, dim, 2), slice(1, dim, 2)
        else:
            first, second = slice(0, dim // 2), slice(dim // 2, dim)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def linear(self, x, name):
        y = x @ self.weights[f"{name}.weight"].T
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def attention(self, x, layer, positions):
        c, prefix = self.config, f"blk.{layer}."
        tokens = len(x)
        q = self.linear(x, prefix + "attn_q").reshape(tokens, c.num_heads, c.head_dim)
        k = self.linear(x, prefix + "attn_k").reshape(tokens, c.num_kv_heads, c.head_dim)
        v = self.linear(x, prefix + "attn_v").reshape(tokens, c.num_kv_heads, c.head_dim)
        if prefix + "attn_q_norm.weight" in self.weights:
            q = rms_norm(q, self.weights[prefix + "attn_q_norm.weight"], c.rms_eps)
            k = rms_norm(k, self.weights[prefix + "attn_k_norm.weight"], c.rms_eps)
        q, k = self.rope(q, positions), self.rope(k, positions)
        k, v = (np.concatenate(pair) for pair in zip(self.cache[layer], (k, v)))
        self.cache[layer] = k, v

        distance = positions[:, None] - np.arange(len(k))  # of key from query; negative: in the future
        hidden = (distance < 0) | (distance >= c.window) if c.window else distance < 0
        group = c.num_heads // c.num_kv_heads
        out = np.empty_like(q)
        for head in range(c.num_heads):
            scores = q[:, head] @ k[:, head // group].T / math.sqrt(c.head_dim)
            scores[hidden] = -np.inf
            out[:, head] = softmax(scores) @ v[:, head // group]
        return self.linear(out.reshape(tokens, -1), prefix + "attn_output")

    def mlp(self, x, layer):
        gate = self.linear(x, f"blk.{layer}.ffn_gate")
        up = self.linear(x, f"blk.{layer}.ffn_up")
        return self.linear(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")

    def forward(self, ids, last_only=True):
        """Appends ids to the sequence; the logits of the last position [1, vocab], or of all of them."""
        c, w = self.config, self.weights
        positions = self.length + np.arange(len(ids))
        self.length += len(ids)
        x = w["token_embd.weight"][np.asarray(ids)]
        for layer in range(c.num_layers):
            x = x + self.attention(rms_norm(x, w[f"blk.{layer}.attn_norm.weight"], c.rms_eps), layer, positions)
            x = x + self.mlp(rms_norm(x, w[f"blk.{layer}.ffn_norm.weight"], c.rms_eps), layer)
        if last_only:
            x = x[-1:]
        return rms_norm(x, w["output_norm.weight"], c.rms_eps) @ self.head.T

    def greedy(self, ids, steps):
        """Yields (id, logits it was chosen from) for a fresh sequence that begins with ids."""
        self.reset()
        for _ in range(steps):
            logits = self.forward(ids)[0]
            ids = [int(np.argmax(logits))]  # the lowest index among equals
            yield ids[0], logits


# ---- Fixtures --------------------------------------------------------------------------------------


class LogitsFile:
    """Vectors of float32, one after another; entries say at which element each begins."""

    def __init__(self, path):
        self.path = path
        self.vectors = []

    def add(self, logits):
        self.vectors.append(logits.astype("<f4").reshape(-1))
        return sum(len(v) for v in self.vectors[:-1])

    def write(self):
        self.path.write_bytes(np.concatenate(self.vectors).tobytes())


def write_json(path, data):
    text = json.dumps(data, ensure_ascii=False, indent=1)
    text = re.sub(r"\[[\s\d.,e-]+\]", lambda numbers: re.sub(r"\s+", " ", numbers.group()), text)  # a list a line
    path.write_text(text + "\n", encoding="utf-8")


def smollm2_tokenizer(gguf):
    """Hugging Face's BPE over the file's own vocabulary, split as tokenizer.ggml.pre = "smollm" asks."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = gguf.kv["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in gguf.kv["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = np.flatnonzero(gguf.kv["tokenizer.ggml.token_type"] == 3)
    tokenizer.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False) for i in control])
    return tokenizer


def smollm2_chat(user):
    """The file's chat template for one user turn: it puts a system message of its own first."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
    return turns + "<|im_start|>assistant\n"


def record_smollm2(model_path, folder):
    model = Model(model_path)
    tokenizer = smollm2_tokenizer(model.gguf)
    logits_file = LogitsFile(folder / "smollm2.logits.f32")
    prompts = []
    for path in sorted((folder / "prompts").glob("*.txt")):
        user = path.read_text(encoding="utf-8").removesuffix("\n")
        prompt = smollm2_chat(user)
        ids = tokenizer.encode(prompt).ids
        entry = {"name": path.stem, "user": user, "prompt": prompt, "prompt_ids": ids, "greedy_ids": [],
                 "top2_gap": [], "logits": []}
        for step, (token, logits) in enumerate(model.greedy(ids, GREEDY_STEPS)):
            second, first = np.partition(logits, -2)[-2:]
            entry["greedy_ids"].append(token)
            entry["top2_gap"].append(round(float(first - second), 6))
            if step in LOGITS_STEPS:
                entry["logits"].append({"step": step, "offset": logits_file.add(logits)})
        prompts.append(entry)
        print(f"{path.stem}: {len(ids)} tokens -> {tokenizer.decode(entry['greedy_ids'])!r}, "
              f"smallest gap {min(entry['top2_gap'])}", flush=True)
    logits_file.write()
    write_json(folder / "smollm2.json", {
        "about": "Written by tools/golden_forward.py. greedy_ids[s] is the argmax of the logits after prompt_ids and "
                 "greedy_ids[:s]; top2_gap[s] is its lead over the second in nats. Logits are vocab_size float32 at "
                 "element `offset` of logits_file.",
        "model": pathlib.Path(model_path).name,
        "model_sha256": hashlib.sha256(pathlib.Path(model_path).read_bytes()).hexdigest(),
        "vocab_size": len(model.head),
        "logits_file": logits_file.path.name,
        "prompts": prompts,
    })


def record_tiny(folder):
    import make_tiny_gguf

    logits_file = LogitsFile(folder / "tiny.logits.f32")
    models = []
    for name, options in make_tiny_gguf.FIXTURES.items():
        path = folder / f"tiny_{name}.gguf"
        make_tiny_gguf.write_model(path, **options)
        model = Model(path)
        vocab = len(model.head)
        ids = [(7 * i * i + 3 * i + 1) % vocab for i in range(24)]
        offset = logits_file.add(model.forward(ids, last_only=False))
        models.append({"file": path.name, "vocab_size": vocab, "ids": ids, "offset": offset})
    logits_file.write()
    write_json(folder / "tiny.json", {
        "about": "Written by tools/golden_forward.py. Logits are [len(ids), vocab_size] float32 at element `offset` "
                 "of logits_file.",
        "logits_file": logits_file.path.name,
        "models": models,
    })


def print_logits(model_path, ids):
    for row in Model(model_path).forward([int(i) for i in ids.split(",")], last_only=False):
        print(" ".join(f"{x:.9g}" for x in row))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    logits = commands.add_parser("logits", help="print the logits of every position")
    logits.add_argument("model")
    logits.add_argument("ids", help="comma-separated token ids")
    smollm2 = commands.add_parser("smollm2", help="record the fixture of the real model")
    smollm2.add_argument("model")
    smollm2.add_argument("folder", type=pathlib.Path)
    tiny = commands.add_parser("tiny", help="record the fixtures of the tiny random models")
    tiny.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    if args.command == "logits":
        print_logits(args.model, args.ids)
    elif args.command == "smollm2":
        record_smollm2(args.model, args.folder)
    else:
        record_tiny(args.folder)


if __name__ == "__main__":
    main()
