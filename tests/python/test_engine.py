"""Models and engines from Python: against the golden data, the command, and themselves in other shapes."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from conftest import CUDA, GOLDEN, ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

import llm_speed
from llm_speed import Engine, Model, engine, errors

PROGRAM = os.environ.get("LLMSPEED", str(ROOT / "build" / "release" / "cli" / "llmspeed"))
TINY = sorted(path.name for path in GOLDEN.glob("tiny_*.gguf"))
TEXTS = ["", "a", "hello world", "  two  spaces ", "naïve 北京 🦙🙂", "a\0b\n\n\tc", "ﷺ e\u0301"]


def tiny(name: str = "tiny_llama.gguf") -> Model:
    return Model.load(GOLDEN / name)


@pytest.fixture
def small(device):
    """An engine of a tiny model: 64 tokens of context, random text."""
    with Engine(tiny(), device, num_threads=2, max_sequences=3) as made:
        yield made


@pytest.fixture(scope="module")
def smol():
    path = os.environ.get("LLS_TEST_MODEL", "")
    if not path:
        pytest.skip("LLS_TEST_MODEL is not set: tools/fetch-model.sh prints the path of a model")
    return Model.load(path)


def command(*arguments, **kwargs):
    if not os.path.exists(PROGRAM):
        pytest.skip(f"no program at {PROGRAM}: LLMSPEED names it")
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, check=True, **kwargs).stdout.decode()


# ---- Model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_model_says_what_the_file_says(name):
    model = tiny(name)
    golden = {m["file"]: m for m in json.loads((GOLDEN / "tiny.json").read_text())["models"]}[name]
    assert model.vocab_size == golden["vocab_size"] and model.num_layers == 2
    assert model.file_bytes == os.path.getsize(GOLDEN / name)
    assert model.architecture == {"tiny_qwen2.gguf": "qwen2", "tiny_qwen3.gguf": "qwen3"}.get(name, "llama")
    assert model.name and model.name in repr(model) and not model.has_chat_template


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trip(name, text):
    model = tiny(name)
    ids = model.tokenize(text)
    assert all(0 <= i < model.vocab_size for i in ids)
    assert model.detokenize(ids) == text == model.detokenize(np.array(ids, np.int64))


def test_ids_of_the_command():
    for text in TEXTS:
        printed = command("tokenize", "-m", GOLDEN / "tiny_llama.gguf", "--ids", "--no-bos", input=text.encode())
        assert tiny().tokenize(text) == [int(i) for i in printed.split()]


def test_special_tokens(smol):
    (end,) = smol.tokenize("<|im_end|>", parse_special=True)
    assert smol.token_bytes(end) == b"<|im_end|>"
    assert len(smol.tokenize("<|im_end|>")) > 1
    assert smol.detokenize([end]) == "" and smol.detokenize([end], show_special=True) == "<|im_end|>"


def test_a_character_over_several_tokens(smol):
    ids = smol.tokenize("🦙")
    assert len(ids) > 1 and smol.detokenize(ids) == "🦙"
    assert smol.detokenize(ids[:1]) == "\ufffd"


def test_text_errors():
    model = tiny()
    for ids in ([-1], [model.vocab_size], [1 << 40]):
        with pytest.raises(errors.ArgumentError, match=r"ids\[0\]"):
            model.detokenize(ids)
        with pytest.raises(errors.ArgumentError):
            model.token_bytes(ids[0])
    with pytest.raises(errors.TextError, match="at 1"):
        model.tokenize("a\ud800")
    with pytest.raises(errors.FileError, match="chat_template"):
        model.chat_tokenize([{"role": "user", "content": "hello"}])


def test_chat_errors(smol):
    for message, kind in (
        ({"role": "user", "content": "a\0b"}, errors.ArgumentError),
        ({"role": "user", "content": None}, errors.DtypeError),
        ({"role": "user"}, errors.DtypeError),
        ({"role": "user", "content": "a", "tool_calls": []}, errors.UnsupportedError),
        ("hello", errors.DtypeError),
    ):
        with pytest.raises(kind, match=r"messages\[0\]"):
            smol.chat_tokenize([message])
    with pytest.raises(errors.ArgumentError):
        smol.chat_tokenize([{"role": "nobody", "content": "a"}])


def test_files_that_are_no_model(tmp_path):
    with pytest.raises(errors.FileError) as caught:
        Model.load(tmp_path / "none.gguf")
    assert caught.value.status == "LLS_ERR_IO" and "none.gguf" in str(caught.value)
    whole = (GOLDEN / "tiny_llama.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:1000])
    with pytest.raises(OSError):
        Engine(tmp_path / "cut.gguf")


# ---- Numbers ----------------------------------------------------------------------------------------


def sampled(model: Model) -> int:
    """Ids below this one may be drawn; those behind only pad the vocabulary."""
    for end in range(model.vocab_size, 0, -1):
        try:
            model.token_bytes(end - 1)
            return end
        except errors.ArgumentError as error:
            assert "pads" in str(error)
    return 0


@pytest.mark.parametrize("name", TINY)
def test_golden_logits(name, device):
    golden = {m["file"]: m for m in json.loads((GOLDEN / "tiny.json").read_text())["models"]}[name]
    ids, vocab = golden["ids"], golden["vocab_size"]
    count = len(ids) * vocab
    want = np.fromfile(GOLDEN / "tiny.logits.f32", "<f4", count, offset=4 * golden["offset"]).reshape(-1, vocab)
    with Engine(tiny(name), device, kv_dtype="f32", f32_activations=True, max_sequences=len(ids)) as made:
        requests = [made.add(ids[: i + 1], max_new_tokens=1) for i in range(len(ids))]
        assert made.active == len(ids) and made.logits(requests[0]) is None
        events = {e.id: e for e in made.step()}
        assert made.active == 0
        for i, request in enumerate(requests):
            got = made.logits(request)
            assert got.dtype == np.float32 and got.shape == (vocab,)
            error = np.sum((got - want[i]) ** 2, dtype="f8") / np.sum(want[i] ** 2, dtype="f8")
            assert error < 1e-6, f"position {i}: NMSE {error}"
            assert events[request].token == np.argmax(got[: sampled(made.model)])


def test_greedy_is_the_argmax_of_the_logits(small):
    prompt = small.model.tokenize("ab")
    completion = small.generate("ab", max_new_tokens=20, ignore_stop_tokens=True)
    for i in range(20):
        request = small.add(prompt + completion.tokens[:i], max_new_tokens=1, ignore_stop_tokens=True)
        (event,) = small.step()
        assert event.token == completion.tokens[i] == np.argmax(small.logits(request)[: sampled(small.model)])
        assert event.finish_reason == "length" and 0 < event.probability <= 1


def test_golden_text(smol, device):
    """The golden prompts, all at a time: ids of the chat, 64 greedy ids, and the text."""
    golden = json.loads((GOLDEN / "smollm2.json").read_text())["prompts"]
    chats = [[{"role": "user", "content": prompt["user"]}] for prompt in golden]
    assert [smol.chat_tokenize(chat) for chat in chats] == [prompt["prompt_ids"] for prompt in golden]
    with Engine(smol, device, context_length=1100, max_sequences=4) as made:
        completions = made.generate(chats, max_new_tokens=64, ignore_stop_tokens=True)
        for prompt, completion in zip(golden, completions):
            ids = zip(completion.tokens, prompt["greedy_ids"], prompt["top2_gap"])
            first = next(((i, gap) for i, (got, want, gap) in enumerate(ids) if got != want), None)
            # Other summation orders may take the other way at a fork that is near even.
            assert first is None or (device == "cuda" and first[1] < 0.05), f"{prompt['name']}: {first}"
            assert completion.text == smol.detokenize(completion.tokens) and len(completion.tokens) == 64
            assert completion.prompt_tokens == len(prompt["prompt_ids"]) and completion.finish_reason == "length"


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("prompt", ["ab", "hello world 🦙"])
def test_text_of_the_command(name, prompt, device):
    path = GOLDEN / name
    flags = ["-p", prompt, "-n", "30", "--ignore-eos", "--json", "--device", device, "--threads", "1"]
    want = json.loads(command("generate", "-m", path, *flags))
    with Engine(path, device, num_threads=1) as made:
        got = made.generate(prompt, max_new_tokens=30, ignore_stop_tokens=True)
    assert (got.text, len(got.tokens)) == (want["text"], want["new_tokens"])
    assert (got.finish_reason, got.prompt_tokens) == (want["finish"], want["prompt_tokens"])


def test_chat_of_the_command(smol, device):
    question = "Name three fruits."
    flags = ["--chat", "-p", question, "-n", "24", "--json", "--device", device]
    want = json.loads(command("generate", "-m", os.environ["LLS_TEST_MODEL"], *flags))
    with Engine(smol, device) as made:
        got = made.generate(question, chat=True, max_new_tokens=24)
        assert got.text == want["text"] and got.finish_reason == want["finish"]
        assert made.generate([{"role": "user", "content": question}], max_new_tokens=24) == got


# ---- Prompts, several at a time -----------------------------------------------------------------------


def test_kinds_of_prompts(small):
    text = "ab"
    ids = small.model.tokenize(text, add_special=True)
    alone = small.generate(text, max_new_tokens=8)
    assert isinstance(alone, llm_speed.Completion) and alone.prompt_tokens == len(ids)
    assert small.generate(ids, max_new_tokens=8) == alone
    assert small.generate(np.array(ids), max_new_tokens=8) == alone
    assert small.generate([text, ids], max_new_tokens=8) == [alone, alone]
    assert small.generate(np.array([ids]), max_new_tokens=8) == [alone]
    assert small.generate([]) == [] and list(small.generate([], stream=True)) == []
    with pytest.raises(errors.ArgumentError, match="chat"):
        small.generate(ids, chat=True)


def test_an_empty_prompt_is_begin_of_text():
    with Engine(tiny("tiny_mistral.gguf")) as made:
        (completion,) = made.generate([[]], max_new_tokens=4)
        assert completion.prompt_tokens == 1 and completion == made.generate("", max_new_tokens=4)


def test_more_prompts_than_sequences(small):
    prompts = ["ab"[: 1 + i % 2] * (1 + i) for i in range(10)]
    alone = [small.generate(prompt, max_new_tokens=12, ignore_stop_tokens=True) for prompt in prompts]
    assert small.generate(prompts, max_new_tokens=12, ignore_stop_tokens=True) == alone
    assert len({completion.text for completion in alone}) > 5
    assert small.stats().kv_pages_used == 0


def test_stream_is_the_text_in_pieces(small):
    prompts = ["ab", "hello", "北京", "x y z"]
    options = dict(max_new_tokens=30, ignore_stop_tokens=True)
    whole = small.generate(prompts, **options)
    pieces = list(small.generate(prompts, stream=True, **options))
    for i, completion in enumerate(whole):
        own = [piece for piece in pieces if piece.index == i]
        assert "".join(piece.text for piece in own) == completion.text
        assert [piece.token for piece in own] == completion.tokens
        assert [piece.finish_reason for piece in own] == [None] * 29 + ["length"]
    # Sequences advance side by side: the second one speaks before the first has ended.
    assert [piece.index for piece in pieces] != sorted(piece.index for piece in pieces)


def test_finish_reasons(small):
    assert small.generate("ab", max_new_tokens=0) == llm_speed.Completion("", [], "length", 2)
    full = small.generate("ab", max_new_tokens=-1, ignore_stop_tokens=True)
    assert full.finish_reason == "context_full" and full.prompt_tokens + len(full.tokens) == 64
    free = small.generate("ab", max_new_tokens=20, ignore_stop_tokens=True)
    stopped = small.generate("ab", max_new_tokens=20, stop_tokens=[free.tokens[5]])
    assert stopped.finish_reason == "stop" and stopped.tokens == free.tokens[:6]
    assert stopped.text == small.model.detokenize(free.tokens[:5])


# ---- Stop strings -------------------------------------------------------------------------------------


def first_stop(text: str, stops: list[str]) -> str:
    """The text before the stop string that ends first; of two that end there, before the longer."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


def test_stop_strings(small):
    options = dict(max_new_tokens=40, ignore_stop_tokens=True)
    text = small.generate("ab", **options).text
    for start in range(0, len(text) - 3, 2):
        several = [text[start + 1 : start + 4], text[start : start + 2], "never"]
        for stops in (text[start], text[start : start + 3], several):
            got = small.generate("ab", stop=stops, **options)
            assert got.text == first_stop(text, [stops] if isinstance(stops, str) else stops)
            assert got.finish_reason == "stop"
    assert small.generate("ab", stop="not there", **options).text == text
    assert small.stats().kv_pages_used == 0
    for bad in ("", ["a", ""]):
        with pytest.raises(errors.ArgumentError, match="stop"):
            small.generate("ab", stop=bad)


@settings(max_examples=300, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.integers(0, 12))
@example("aba", ["b", "aba"], 0)  # the one that ends first begins later
@example("aba", ["ba", "aba"], 0)  # both end at once
@example("aab", ["ab"], 3)
def test_stop_strings_however_text_is_cut(text, stops, pushed):
    """Any cut into tokens gives the same text, and nothing is shown that a stop string would take back."""
    model = tiny()
    ids = {letter: model.tokenize(letter)[0] for letter in "ab"}
    assert model.detokenize(ids.values()) == "ab"
    held = engine._Text(model, [], stops)
    shown = ""
    want = first_stop(text, stops)
    for letter in text[:pushed]:
        shown += held.push(ids[letter])
        assert want.startswith(shown)
        if held.stopped:
            break
    if not held.stopped:  # the rest in one piece, as a long token would bring it
        shown += held._take(text[pushed:])
    if not held.stopped:
        shown += held.end()
    assert shown == want


def test_nothing_is_held_back_without_need():
    held = engine._Text(tiny(), [], ["abc"])
    assert [held._take(text) for text in ("xab", "ab", "x", "abc", "y")][:4] == ["x", "ab", "abx", ""]
    assert held.stopped


# ---- Sampling -----------------------------------------------------------------------------------------


def test_seeds(small):
    options = dict(max_new_tokens=16, temperature=1.5, top_p=0.95, ignore_stop_tokens=True)
    first = small.generate("ab", seed=1, **options)
    assert small.generate("ab", seed=1, **options) == first
    assert small.generate("ab", seed=1 + 2**64, **options) == first
    five = small.generate(["ab"] * 5, seed=-1, **options)
    assert five[2] == first and len({completion.text for completion in five}) == 5
    assert small.generate("ab", top_k=1, temperature=2.0, max_new_tokens=16) == small.generate("ab", max_new_tokens=16)


def test_requests_that_cannot_be(small):
    want = small.generate("ab", max_new_tokens=8)
    for options, name in (
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 2.0}, "top_p"),
        ({"max_new_tokens": -2}, "max_new_tokens"),
        ({"stop_tokens": [-1]}, "ids"),
    ):
        with pytest.raises(errors.ArgumentError, match=name):
            small.generate(["ab", "cd"], **options)
    with pytest.raises(errors.ArgumentError, match="context") as caught:
        small.generate(["ab", "ab" * 100], stream=True)
    assert caught.value.status == "LLS_ERR_CONTEXT_FULL"
    with pytest.raises(errors.ArgumentError):
        small.generate([1, 1 << 30])
    assert small.stats().kv_pages_used == 0 and small.generate("ab", max_new_tokens=8) == want


def test_engines_that_cannot_be():
    model = tiny()
    for options in (
        {"kv_dtype": "f64"},
        {"context_length": 65},
        {"max_sequences": -1},
        {"device": "tpu"},
        {"device": "cuda:"},
    ):
        with pytest.raises(errors.ArgumentError):
            Engine(model, **options)
    with pytest.raises(errors.DeviceError):
        Engine(model, "cuda:1000")
    if not CUDA:
        with pytest.raises(errors.DeviceError):
            Engine(model, "cuda")


# ---- Ends that nobody planned ---------------------------------------------------------------------------


def test_an_iterator_that_is_dropped(small):
    want = small.generate("ab", max_new_tokens=30, ignore_stop_tokens=True)
    options = dict(max_new_tokens=-1, ignore_stop_tokens=True, stream=True)
    pieces = small.generate(["ab"] * 7, **options)
    next(pieces)
    assert small.stats().kv_pages_used > 0
    pieces.close()
    assert small.stats().kv_pages_used == 0
    for _ in small.generate(["ab"] * 7, **options):
        break
    gc.collect()
    assert small.stats().kv_pages_used == 0
    small.generate(["ab"] * 7, **options)  # never begun
    gc.collect()
    tokens = small.stats().prefill_tokens + small.stats().decode_tokens
    assert small.generate("ab", max_new_tokens=30, ignore_stop_tokens=True) == want
    assert small.stats().prefill_tokens + small.stats().decode_tokens == tokens + 2 + 29  # nothing else ran


@pytest.mark.parametrize("stream", [False, True])
def test_interrupt(small, stream):
    """Ctrl-C between steps: KeyboardInterrupt, nothing runs on, and the engine works."""
    want = small.generate("ab", max_new_tokens=30, ignore_stop_tokens=True)
    prompts = ["ab"] * 3000
    options = dict(max_new_tokens=-1, ignore_stop_tokens=True)

    def interrupt():
        while small.stats().decode_tokens < 500:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have ignored it
    small.reset_stats()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        if stream:
            for _ in small.generate(prompts, stream=True, **options):
                pass
        else:
            small.generate(prompts, **options)
    thread.join()
    assert caught.value is not None and small.stats().kv_pages_used == 0
    assert 500 <= small.stats().decode_tokens < 3000 * 62
    small.reset_stats()
    assert small.generate("ab", max_new_tokens=30, ignore_stop_tokens=True) == want
    assert small.stats().decode_tokens == 29


def test_closed_engine():
    made = Engine(tiny())
    pieces = made.generate("ab", stream=True, max_new_tokens=-1, ignore_stop_tokens=True)
    next(pieces)
    made.close()
    made.close()
    for call in (lambda: next(pieces), lambda: made.generate("ab"), made.step, made.stats, lambda: made.cancel(0)):
        with pytest.raises(errors.ArgumentError, match="closed"):
            call()


# ---- Step by step -----------------------------------------------------------------------------------------


def test_add_step_cancel(small):
    whole = [small.generate(prompt, max_new_tokens=10, ignore_stop_tokens=True).tokens for prompt in ("ab", "cd")]
    first = small.add("ab", max_new_tokens=10, ignore_stop_tokens=True)
    tokens = [event.token for _ in range(4) for event in small.step()]
    second = small.add("cd", max_new_tokens=10, ignore_stop_tokens=True)
    third = small.add("ef", max_new_tokens=10, ignore_stop_tokens=True)
    assert small.active == 3
    small.cancel(third)
    found = {first: tokens, second: [], third: []}
    last = {}
    while small.active:
        for event in small.step():
            found[event.id].append(event.token)
            last[event.id] = event.finish_reason
    assert [found[first], found[second], found[third]] == [*whole, [None]]
    assert last == {first: "length", second: "length", third: "cancelled"}
    small.cancel(first)  # has ended
    assert small.step() == []


def test_generate_beside_requests_of_add(small):
    """Each call gets its own tokens, whoever ran the step."""
    want = [small.generate(prompt, max_new_tokens=20, ignore_stop_tokens=True) for prompt in ("ab", "cd", "ef")]
    request = small.add("ab", max_new_tokens=20, ignore_stop_tokens=True)
    pieces = small.generate("cd", max_new_tokens=20, ignore_stop_tokens=True, stream=True)
    taken = [next(pieces) for _ in range(3)]
    assert small.generate("ef", max_new_tokens=20, ignore_stop_tokens=True) == want[2]
    taken += pieces
    assert [piece.token for piece in taken] == want[1].tokens
    tokens = [event.token for event in small.step()]
    while small.active:
        tokens += [event.token for event in small.step()]
    assert tokens == want[0].tokens and small.logits(request + 100) is None


# ---- Threads ------------------------------------------------------------------------------------------------


def in_threads(count, work):
    results, failures = [None] * count, []

    def run(i):
        try:
            results[i] = work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures, failures
    return results


def test_threads_share_an_engine(small):
    options = dict(max_new_tokens=30, ignore_stop_tokens=True)
    want = [small.generate(f"{i} ab", **options) for i in range(4)]

    def work(i):
        for _ in range(20):
            assert small.generate(f"{i} ab", **options) == want[i]
            assert small.generate([f"{i} ab"] * 3, **options) == [want[i]] * 3
            assert "".join(piece.text for piece in small.generate(f"{i} ab", stream=True, **options)) == want[i].text
            next(small.generate(f"{i} ab", stream=True, **options))  # and drops the rest

    in_threads(4, work)
    assert small.stats().kv_pages_used == 0


def test_an_engine_a_thread(device):
    model = tiny()
    want = Engine(model, device).generate("ab", max_new_tokens=30, ignore_stop_tokens=True)

    def work(i):
        with Engine(model, device, num_threads=1) as own:
            return [own.generate("ab", max_new_tokens=30, ignore_stop_tokens=True) for _ in range(20)]

    assert in_threads(3, work) == [[want] * 20] * 3


def test_close_while_a_thread_generates():
    made = Engine(tiny())

    def work(i):
        if i == 0:
            while made.stats().decode_tokens < 100:
                time.sleep(0.001)
            made.close()
            return None
        with pytest.raises(errors.ArgumentError, match="closed"):
            made.generate(["ab"] * 5000, max_new_tokens=-1, ignore_stop_tokens=True)

    in_threads(2, work)


def test_other_threads_run_during_a_step(smol, device):
    """The GIL is free: a step that computes a long prompt lets a thread tick on."""
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks.append(time.perf_counter())

    with Engine(smol, device, chunk_tokens=1024, context_length=1024, num_threads=1) as made:
        made.add(smol.tokenize("word " * 1000)[:1000], max_new_tokens=1)
        thread = threading.Thread(target=tick)
        thread.start()
        start = time.perf_counter()
        made.step()
        end = time.perf_counter()
        done.set()
        thread.join()
    within = [t for t in ticks if start + 0.1 * (end - start) < t < end - 0.1 * (end - start)]
    assert len(within) >= min(10, (end - start) / 0.01), f"{len(within)} ticks in {end - start:.3f} s"
