#!/usr/bin/env python3
"""Records what Hugging Face's `tokenizers` and Google's `sentencepiece` make of tests/golden/text/corpus.txt.

    pip install tokenizers sentencepiece gguf jinja2
    tools/record_tokenizer_fixtures.py [SmolLM2-135M-Instruct.gguf]

Writes, to tests/golden/text:
    <family>.vocab    a small vocabulary, trained here on the corpus itself
    <family>.ids      a line for each line of the corpus: its ids; behind a '|', where it differs, its ids with control
                      tokens recognised in the text
    smollm2.ids       the same for the vocabulary of the GGUF file, if one is given
    chat.txt          chat templates, chats and what Jinja renders

A line of the corpus is one text, with \\n \\r \\t \\\\ and \\u{hex} for characters that are hard to see.
"""
import io
import json
import re
import sys
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent.parent / "tests" / "golden" / "text"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def unescape(line):
    plain = {"\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}
    return re.sub(r"\\\\|\\n|\\r|\\t|\\u\{([0-9a-f]+)\}",
                  lambda m: chr(int(m[1], 16)) if m[1] else plain[m[0]], line)


def escape(text):
    """Whatever would end a field or a line, or is no character of its own."""
    def one(c):
        if c == "\\":
            return "\\\\"
        return c if c.isprintable() and c != " " else f"\\u{{{ord(c):x}}}"
    return "".join(one(c) for c in text)


def corpus():
    with open(HERE / "corpus.txt", encoding="utf-8", newline="\n") as f:
        return [unescape(line) for line in f.read().split("\n")[:-1]]


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def smollm_split():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


def add_specials(tokenizer, tokens, types):
    for text, kind in zip(tokens, types):
        added = AddedToken(text, special=kind != USER_DEFINED, normalized=False)
        if kind == USER_DEFINED:
            tokenizer.add_tokens([added])
        elif kind in (CONTROL, UNKNOWN):
            tokenizer.add_special_tokens([added])


def write_vocab(name, keys, tokens, types, scores=None, merges=()):
    with open(HERE / f"{name}.vocab", "w", encoding="utf-8", newline="\n") as f:
        for key, value in keys.items():
            f.write(f"{key} {value}\n")
        f.write(f"tokens {len(tokens)}\n")
        for i, (text, kind) in enumerate(zip(tokens, types)):
            f.write(f"{kind} {scores[i] if scores else 0:g} {escape(text)}\n")
        f.write(f"merges {len(merges)}\n")
        for left, right in merges:
            f.write(f"{escape(left)} {escape(right)}\n")


def write_ids(name, tokenizer, texts):
    with open(HERE / f"{name}.ids", "w", encoding="utf-8", newline="\n") as f:
        for text in texts:
            ids = {}
            for as_text in (True, False):
                tokenizer.encode_special_tokens = as_text
                ids[as_text] = " ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids))
            f.write(ids[True] + ("" if ids[False] == ids[True] else "|" + ids[False]) + "\n")


def byte_level(name, pre, pre_tokenizer, texts, normalizer=None, ignore_merges=False):
    """A vocabulary with one token, Ġharbour, to which no merges lead: nothing is learned from the lines with it."""
    trained = Tokenizer(models.BPE())
    if normalizer:
        trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizer
    trained.train_from_iterator((t for t in texts if "harbour" not in t), trainers.BpeTrainer(
        vocab_size=900, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(m) for m in model["merges"]]
    types = [NORMAL] * len(tokens)
    assert "Ġharbour" not in tokens
    tokens += ["Ġharbour", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>"]
    types += [NORMAL, CONTROL, CONTROL, CONTROL, USER_DEFINED]

    oracle = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                                  ignore_merges=ignore_merges))
    if normalizer:
        oracle.normalizer = normalizer
    oracle.pre_tokenizer = pre_tokenizer
    add_specials(oracle, tokens, types)
    keys = {"model": "gpt2", "pre": pre, "bos": tokens.index("<|endoftext|>"), "eos": tokens.index("<|im_end|>")}
    write_vocab(name, keys, tokens, types, merges=merges)
    write_ids(name, oracle, texts)


def implied_merges(tokens, types, scores):
    """SentencePiece lists no merges: those of the pieces of higher score come first."""
    known = {t: i for i, t in enumerate(tokens) if types[i] == NORMAL}
    merges = []
    for text, i in known.items():
        cuts = [(text[:k], text[k:]) for k in range(1, len(text)) if text[:k] in known and text[k:] in known]
        cuts.sort(key=lambda m: (known[m[0]], known[m[1]]))
        merges += [(scores[i], m) for m in cuts]
    return [m for _, m in sorted(merges, key=lambda x: x[0], reverse=True)]


def llama_oracle(tokens, types, scores, byte_fallback):
    oracle = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)},
                                  merges=implied_merges(tokens, types, scores),
                                  unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    oracle.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    add_specials(oracle, tokens, types)
    return oracle


LLAMA_KEYS = {"model": "llama", "bos": 1, "eos": 2, "unk": 0, "add_space_prefix": 1}


def llama(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t for t in texts if t.isascii() or "é" in t), model_writer=model, model_type="bpe",
        vocab_size=1000, character_coverage=0.99, byte_fallback=True, split_digits=True,
        user_defined_symbols=["<tool>"],
        allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, normalization_rule_name="identity",
        num_threads=1, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens = [sp.id_to_piece(i) for i in range(sp.vocab_size())]
    scores = [sp.get_score(i) for i in range(sp.vocab_size())]
    types = [UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i) else
             USER_DEFINED if t == "<tool>" else NORMAL for i, t in enumerate(tokens)]
    oracle = llama_oracle(tokens, types, scores, byte_fallback=True)
    oracle.encode_special_tokens = True
    for text in texts:  # the two oracles agree, but for what follows an added token
        if "<tool>" not in text and "\0" not in text:
            assert oracle.encode(text, add_special_tokens=False).ids == sp.encode(text), text
    write_vocab("llama", LLAMA_KEYS, tokens, types, scores)
    write_ids("llama", oracle, texts)


def toy(texts):
    """A vocabulary that fits on a screen, without byte tokens."""
    tokens = ["<unk>", "<s>", "</s>", "<tool>", "▁text", "text", "▁", "▁▁", "te", "xt", "t", "e", "x", "▁t", "▁te"]
    types = [UNKNOWN, CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * (len(tokens) - 4)
    scores = [0, 0, 0, 0, -4, -3, -20, -6, -1, -2, -21, -22, -23, -7, -5]
    write_vocab("toy", LLAMA_KEYS, tokens, types, scores)
    write_ids("toy", llama_oracle(tokens, types, scores, byte_fallback=False), texts)


def smollm2(path, texts):
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{k}"].contents() for k in ("tokens", "token_type", "merges"))
    oracle = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)},
                                  merges=[tuple(m.split(" ")) for m in merges]))
    oracle.pre_tokenizer = smollm_split()
    add_specials(oracle, tokens, types)
    write_ids("smollm2", oracle, texts)


def main():
    texts = corpus()
    byte_level("gpt2", "gpt-2", split(GPT2), texts)
    byte_level("llama3", "llama-bpe", split(LLAMA3), texts, ignore_merges=True)
    byte_level("qwen2", "qwen2", split(QWEN2), texts, normalizer=normalizers.NFC())
    byte_level("smollm", "smollm", smollm_split(), texts)
    llama(texts)
    toy(texts)
    if len(sys.argv) > 1:
        smollm2(sys.argv[1], texts)


if __name__ == "__main__":
    main()
