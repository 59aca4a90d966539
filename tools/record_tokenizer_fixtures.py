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

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN_SPLIT = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O_SPLIT = (TEKKEN_SPLIT.replace(r"\p{M}]+|", r"\p{M}]+" + CONTRACTION + "|", 1)
               .replace(r"\p{M}]*|", r"\p{M}]*" + CONTRACTION + "|", 1).replace(r"|\p{N}|", r"|\p{N}{1,3}|"))


def unescape(line):
    plain = {"\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}
    return re.sub(r"\\\\|\\n|\\r|\\t|\\u\{([0-9a-f]+)\}",
                  lambda m: chr(int(m[1], 16)) if m[1] else plain[m[0]], line)


def escape(text):
    plain = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(plain.get(c, c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text)


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
        user_defined_symbols=["<tool>"], allow_whitespace_only_pieces=True, remove_extra_whitespaces=False,
        normalization_rule_name="identity", num_threads=1, minloglevel=2)
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


# Written for these tests in the manner of the templates that models bring; each has a trait that some of them have.
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
          " + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3 = ("{% for m in messages %}{% set content = '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n'"
          " + m.content | trim + '<|eot_id|>' %}{% if loop.first %}{% set content = bos_token + content %}{% endif %}"
          "{{ content }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
LLAMA31 = """{{- bos_token }}
{%- set date_string = "26 Jul 2024" %}
{%- if messages[0].role == 'system' %}
    {%- set system_message = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% else %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
MISTRAL_SYSTEM = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
"""
MISTRAL_V2 = MISTRAL_SYSTEM + """{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- " [INST] " + system_message + "\\n\\n" + message["content"] + " [/INST]" }}
        {%- else %}
            {{- " [INST] " + message["content"] + " [/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] + eos_token }}
    {%- endif %}
{%- endfor %}"""
MISTRAL_V3 = MISTRAL_SYSTEM + """{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}"""
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
          "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}"
          "{% endif %}{% for message in rest %}"
          "{% if loop.first and system %}"
          "{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}"
          "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
          "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% else %}"
          "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
TEMPLATES = [
    ("chatml", "", "<|im_end|>", CHATML),
    ("chatml", "", "<|im_end|>", "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nIt\\'s a \"default\"."
                                 "<|im_end|>\\n' }}{% endif %}" + CHATML),
    ("chatml", "", "<|im_end|>", "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- endif %}"
                                 "{%- if messages[0].role != 'system' %}"
                                 "{{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{%- endif %}" + CHATML),
    ("chatml", "<s>", "</s>", "{{ bos_token }}" + CHATML.replace("message['content']", "message['content'] | trim")),
    ("llama3", "<|begin_of_text|>", "<|eot_id|>", LLAMA3),
    ("llama3", "<|begin_of_text|>", "<|eot_id|>", LLAMA31),
    ("zephyr", "<s>", "</s>", ZEPHYR),
    ("mistral", "<s>", "</s>", MISTRAL_V2),
    ("mistral", "<s>", "</s>", MISTRAL_V3),
    ("mistral", "<s>", "</s>", LLAMA2),
]
CHATS = [
    [("user", "Hello")],
    [("system", "Be kind."), ("user", "Hello")],
    [("user", "  padded \u3000\n"), ("assistant", "\n\nanswer\t "), ("user", "again")],
    [("system", "  S "), ("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "4"), ("user", "5")],
    [("user", ""), ("assistant", ""), ("user", "<|im_end|></s>[/INST]<|eot_id|> {{ bos_token }}")],
]


def chats():
    """Blocks of: format, bos and eos, the template, then for each chat its messages, 'answer' where an answer shall
    begin, and what comes out."""
    import jinja2.sandbox
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    with open(HERE / "chat.txt", "w", encoding="utf-8", newline="\n") as f:
        for name, bos, eos, text in TEMPLATES:
            f.write(f"format {name}\nbos {bos}\neos {eos}\ntemplate {escape(text)}\n")
            template = env.from_string(text)
            for chat in CHATS:
                messages = [{"role": role, "content": content} for role, content in chat]
                for answer in (False, True):
                    for role, content in chat:
                        f.write(f"{role} {escape(content)}\n")
                    f.write("answer\n" * answer)
                    f.write("= " + escape(template.render(messages=messages, bos_token=bos, eos_token=eos,
                                                          add_generation_prompt=answer)) + "\n")


def main():
    texts = corpus()
    byte_level("gpt2", "gpt-2", split(GPT2_SPLIT), texts)
    byte_level("llama3", "llama-bpe", split(LLAMA3_SPLIT), texts, ignore_merges=True)
    byte_level("qwen2", "qwen2", split(QWEN2_SPLIT), texts, normalizer=normalizers.NFC())
    byte_level("smollm", "smollm", smollm_split(), texts)
    byte_level("gpt4o", "gpt-4o", split(GPT4O_SPLIT), texts)
    byte_level("tekken", "tekken", split(TEKKEN_SPLIT), texts, ignore_merges=True)
    llama(texts)
    toy(texts)
    chats()
    if len(sys.argv) > 1:
        smollm2(sys.argv[1], texts)


if __name__ == "__main__":
    main()
