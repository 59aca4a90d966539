"""Writes tiny random models as GGUF files, for tests. Needs only NumPy; the same options give the same bytes.

    python3 make_tiny_gguf.py tiny.gguf --arch qwen3 --dtype Q4_K --hidden 256 --ffn 512

Weights are random normal, scaled so that activations keep their size from layer to layer. Matrices are stored in
--dtype; where the row length is no multiple of its block they fall back to Q8_0, then to F16, as real files do. Norms
and biases are F32.
"""

import argparse
import struct

import numpy as np

from gguf_reader import DEFAULT_ALIGNMENT, MAGIC, TENSOR_TYPES

# ---- Quantisers: float64 rows cut into blocks [n, weights a block] -> bytes [n, bytes a block]. Plain min-max scales;
# codes are chosen for the scales as rounded to fp16, so that a round trip is as close as the format allows. ----


def as_bytes(column):
    """A column of numbers as fp16 bytes [n, 2], and as the numbers those bytes stand for."""
    rounded = column.astype("<f2")
    return rounded.view(np.uint8).reshape(-1, 2), rounded.astype(np.float64)


def divide(x, scale):
    """x / scale, 0 where the scale is 0 (an all-zero block)."""
    return np.divide(x, scale, out=np.zeros_like(x), where=scale != 0)


def codes_for(x, scale, low, high):
    return np.clip(np.rint(divide(x, scale)), low, high).astype(np.int64)


def pack_nibbles(codes):
    """Codes [..., 2m] -> bytes [..., m]: the first half in the low bits, the second in the high bits."""
    first, second = np.split(codes & 15, 2, axis=-1)
    return (first | second << 4).astype(np.uint8)


def pack_fifth_bits(codes):
    return np.packbits((codes >> 4).astype(np.uint8), axis=1, bitorder="little")


def largest(x):
    """The element of largest magnitude of each block, with its sign, as a column."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)


def q4_0(x):
    d_bytes, d = as_bytes(largest(x) / -8)
    return np.hstack([d_bytes, pack_nibbles(codes_for(x, d, -8, 7) + 8)])


def q4_1(x):
    m_bytes, m = as_bytes(x.min(axis=1, keepdims=True))
    d_bytes, d = as_bytes((x.max(axis=1, keepdims=True) - m) / 15)
    return np.hstack([d_bytes, m_bytes, pack_nibbles(codes_for(x - m, d, 0, 15))])


def q5_0(x):
    d_bytes, d = as_bytes(largest(x) / -16)
    codes = codes_for(x, d, -16, 15) + 16
    return np.hstack([d_bytes, pack_fifth_bits(codes), pack_nibbles(codes)])


def q5_1(x):
    m_bytes, m = as_bytes(x.min(axis=1, keepdims=True))
    d_bytes, d = as_bytes((x.max(axis=1, keepdims=True) - m) / 31)
    codes = codes_for(x - m, d, 0, 31)
    return np.hstack([d_bytes, m_bytes, pack_fifth_bits(codes), pack_nibbles(codes)])


def q8_0(x):
    d_bytes, d = as_bytes(np.abs(x).max(axis=1, keepdims=True) / 127)
    return np.hstack([d_bytes, codes_for(x, d, -127, 127).astype(np.int8).view(np.uint8)])


def pack_k_scales(scales, minima):
    """6-bit scales and minima of 8 sub-blocks -> 12 bytes; see gguf_reader.unpack_k_scales."""
    head = scales[:, :4] | scales[:, 4:] >> 4 << 6
    tail = minima[:, :4] | minima[:, 4:] >> 4 << 6
    mixed = scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4
    return np.hstack([head, tail, mixed]).astype(np.uint8)


def k_affine(x, max_code):
    """Header bytes and codes [n, 8, 32] of the formats with a 6-bit scale and minimum per sub-block."""
    sub = x.reshape(-1, 8, 32)
    minimum = np.maximum(-sub.min(axis=2), 0)
    scale = np.maximum(sub.max(axis=2) + minimum, 0) / max_code
    d_bytes, d = as_bytes(scale.max(axis=1, keepdims=True) / 63)
    dmin_bytes, dmin = as_bytes(minimum.max(axis=1, keepdims=True) / 63)
    scales, minima = codes_for(scale, d, 0, 63), codes_for(minimum, dmin, 0, 63)
    codes = codes_for(sub + (dmin * minima)[:, :, None], (d * scales)[:, :, None], 0, max_code)
    return np.hstack([d_bytes, dmin_bytes, pack_k_scales(scales, minima)]), codes


def pack_k_nibbles(codes):
    return pack_nibbles(codes.reshape(-1, 4, 64)).reshape(-1, 128)


def q4_k(x):
    header, codes = k_affine(x, 15)
    return np.hstack([header, pack_k_nibbles(codes)])


def q5_k(x):
    header, codes = k_affine(x, 31)
    high = ((codes >> 4) << np.arange(8)[None, :, None]).sum(axis=1).astype(np.uint8)  # bit j: sub-block j
    return np.hstack([header, high, pack_k_nibbles(codes)])


def q6_k(x):
    sub = x.reshape(-1, 16, 16)
    scale = np.abs(sub).max(axis=2) / 31
    d_bytes, d = as_bytes(scale.max(axis=1, keepdims=True) / 127)
    scales = codes_for(scale, d, 0, 127)
    codes = (codes_for(sub, (d * scales)[:, :, None], -32, 31) + 32).reshape(-1, 2, 4, 32)  # half, quarter
    low = pack_nibbles(codes.reshape(-1, 2, 128)).reshape(-1, 128)
    high = (codes >> 4 << (2 * np.arange(4)).reshape(1, 1, 4, 1)).sum(axis=2).astype(np.uint8).reshape(-1, 64)
    return np.hstack([low, high, scales.astype(np.int8).view(np.uint8), d_bytes])


BLOCK_FORMATS = {"Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "Q4_K": q4_k, "Q5_K": q5_k,
                 "Q6_K": q6_k}


def bf16(x):
    """Rounds to nearest even. x holds no NaN."""
    bits = x.astype("<f4").view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def quantize(type_name, x):
    """Array -> the tensor's bytes in the file."""
    x = np.asarray(x, np.float64)
    if type_name == "F32":
        return x.astype("<f4").tobytes()
    if type_name == "F16":
        return x.astype("<f2").tobytes()
    if type_name == "BF16":
        return bf16(x).tobytes()
    return BLOCK_FORMATS[type_name](x.reshape(-1, TENSOR_TYPES[type_name].block)).tobytes()


# ---- The file --------------------------------------------------------------------------------------


def pack_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def pack_value(value):
    """The type number and bytes of a value; Python and NumPy types say which."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, pack_string(value)
    if isinstance(value, np.ndarray):
        element = {"int32": 5, "float32": 6}[value.dtype.name]
        return 9, struct.pack("<IQ", element, len(value)) + value.tobytes()
    return 9, struct.pack("<IQ", 8, len(value)) + b"".join(map(pack_string, value))  # a list of strings


class GGUFWriter:
    def __init__(self):
        self.kv = {}
        self.tensors = []  # name, type name, shape, bytes

    def tensor(self, name, type_name, x):
        self.tensors.append((name, type_name, x.shape, quantize(type_name, x)))

    def write(self, path):
        header = MAGIC + struct.pack("<IQQ", 3, len(self.tensors), len(self.kv))
        for key, value in self.kv.items():
            number, data = pack_value(value)
            header += pack_string(key) + struct.pack("<I", number) + data
        body = b""
        for name, type_name, shape, data in self.tensors:
            dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
            header += pack_string(name) + dims + struct.pack("<IQ", TENSOR_TYPES[type_name].number, len(body))
            body += data + bytes(-len(data) % DEFAULT_ALIGNMENT)
        header += bytes(-len(header) % DEFAULT_ALIGNMENT)
        with open(path, "wb") as file:
            file.write(header + body)


# ---- Vocabularies ----------------------------------------------------------------------------------

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
# Merges in order; _ stands for the space. Each result is a token.
MERGES = "_ t|h e|_t he|i n|a n|_ a|o n|r e|e r|_a n|i t|in g|_ s|o r|e s|_t o|_ o|_o f|l l|h i".split("|")
MERGES = [tuple(merge.split(" ")) for merge in MERGES]


def byte_characters():
    """GPT-2's printable stand-in of each byte: itself where it is printable, else the next one from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def bpe_vocabulary():
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = [tuple(part.replace("_", "\u0120") for part in merge) for merge in MERGES]
    tokens = specials + byte_characters() + ["".join(merge) for merge in merges]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([CONTROL] * 3 + [NORMAL] * (len(tokens) - 3), np.int32),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def spm_vocabulary():
    """SentencePiece: no merge list; a higher score merges first."""
    merges = [tuple(part.replace("_", "\u2581") for part in merge) for merge in MERGES]
    characters = sorted({c for merge in merges for part in merge for c in part})
    pieces = ["".join(merge) for merge in merges] + characters
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }


VOCABULARIES = {"bpe": bpe_vocabulary, "spm": spm_vocabulary, "none": dict}

# ---- The model -------------------------------------------------------------------------------------


def fitting_type(type_name, row_length):
    for candidate in (type_name, "Q8_0", "F16"):
        if row_length % TENSOR_TYPES[candidate].block == 0:
            return candidate


def write_model(path, *, arch="llama", dtype="F16", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=64,
                vocab=288, context=64, tokenizer="bpe", tied=False, theta=10000.0, rope_freqs=False, window=0,
                scaling=None, seed=0):
    """arch: llama, mistral (llama with a window), qwen2 or qwen3. vocab may exceed the tokenizer's tokens: the rest is
    padding. kv_heads None leaves the key out (as many as heads), theta None its key (10000). scaling: (type, factor,
    original context)."""
    rng = np.random.default_rng(seed)
    writer = GGUFWriter()
    prefix = "llama" if arch == "mistral" else arch
    vocabulary = VOCABULARIES[tokenizer]()
    if len(vocabulary.get("tokenizer.ggml.tokens", [])) > vocab:
        raise ValueError(f"vocab is {vocab}, must be at least {len(vocabulary['tokenizer.ggml.tokens'])}")

    values = {
        "context_length": context,
        "embedding_length": hidden,
        "block_count": layers,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.sliding_window": window or (8 if arch == "mistral" else None),
        "rope.dimension_count": head_dim,
        "rope.freq_base": theta,
    }
    if scaling:
        for key, value in zip(("type", "factor", "original_context_length"), scaling):
            values[f"rope.scaling.{key}"] = value
    writer.kv["general.architecture"] = prefix
    writer.kv["general.name"] = f"tiny random {arch}"
    writer.kv.update({f"{prefix}.{key}": value for key, value in values.items() if value is not None})
    writer.kv.update(vocabulary)

    def matrix(name, rows, columns, scale=1.0):
        weights = rng.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        writer.tensor(f"{name}.weight", fitting_type(dtype, columns), weights)

    def norm(name, size):
        writer.tensor(f"{name}.weight", "F32", 1 + 0.1 * rng.standard_normal(size))

    q_rows, kv_rows = heads * head_dim, (kv_heads or heads) * head_dim
    matrix("token_embd", vocab, hidden, scale=2.0)
    if rope_freqs:  # what Llama 3 files hold: high frequencies kept, low ones divided
        writer.tensor("rope_freqs.weight", "F32", np.geomspace(1, 8, head_dim // 2))
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm", hidden)
        for name, rows in (("attn_q", q_rows), ("attn_k", kv_rows), ("attn_v", kv_rows)):
            matrix(block + name, rows, hidden, scale=1.5)
            if arch == "qwen2":
                writer.tensor(f"{block}{name}.bias", "F32", 0.3 * rng.standard_normal(rows))
        if arch == "qwen3":
            norm(block + "attn_q_norm", head_dim)
            norm(block + "attn_k_norm", head_dim)
        matrix(block + "attn_output", hidden, q_rows)
        norm(block + "ffn_norm", hidden)
        matrix(block + "ffn_gate", ffn, hidden)
        matrix(block + "ffn_up", ffn, hidden)
        matrix(block + "ffn_down", hidden, ffn)
    norm("output_norm", hidden)
    if not tied:
        matrix("output", vocab, hidden, scale=4.0)
    writer.write(path)


# The committed ones, tests/golden/tiny_<name>.gguf: each architecture, and between them each special case.
FIXTURES = {
    "llama": dict(arch="llama", dtype="F16", tied=True, rope_freqs=True, theta=500000.0, seed=1),
    "linear": dict(arch="llama", dtype="Q4_0", kv_heads=None, theta=None, scaling=("linear", 2.0), seed=2),
    "mistral": dict(arch="mistral", dtype="Q8_0", tokenizer="spm", vocab=300, window=6, seed=3),
    "qwen2": dict(arch="qwen2", dtype="Q5_1", scaling=("yarn", 4.0, 16), seed=4),
    "qwen3": dict(arch="qwen3", dtype="BF16", head_dim=16, tied=True, theta=1000000.0, seed=5),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--arch", choices=["llama", "mistral", "qwen2", "qwen3"], default="llama")
    parser.add_argument("--dtype", choices=TENSOR_TYPES, default="F16")
    parser.add_argument("--tokenizer", choices=VOCABULARIES, default="bpe")
    for name, value in dict(layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=64, vocab=288, context=64,
                            window=0, seed=0).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--theta", type=float, default=10000.0)
    parser.add_argument("--tied", action="store_true", help="no output.weight")
    parser.add_argument("--rope-freqs", action="store_true", help="with the tensor rope_freqs.weight")
    parser.add_argument("--scaling", choices=["linear", "yarn"], help="rope scaling, with factor 4 from context / 4")
    args = vars(parser.parse_args())
    if args["scaling"]:
        args["scaling"] = (args["scaling"], 4.0, args["context"] // 4)
    write_model(args.pop("path"), **args)


if __name__ == "__main__":
    main()
