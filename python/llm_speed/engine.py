"""GGUF models, their tokenizers, and the engine that runs them: llama, mistral, qwen2 and qwen3.

    model = llm_speed.Model.load("model.gguf")
    with llm_speed.Engine(model) as engine:
        print(engine.generate("The capital of France is", max_new_tokens=8).text)
        for piece in engine.generate("Why is the sky blue?", chat=True, stream=True):
            print(piece.text, end="", flush=True)

Any number of threads may use one engine: their requests run in the same batches, and the GIL is free meanwhile. A
forked child must make an engine of its own.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

from . import _C
from .errors import ArgumentError, DtypeError, TextError, UnsupportedError

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

Message = Mapping[str, str]
Prompt = Union[str, list[int], list[dict[str, str]]]
Prompts = Union[list[str], list[list[int]], list[list[dict[str, str]]]]

# By lls_finish.
_FINISH_REASONS = (None, "stop", "length", "context_full", "cancelled", "numeric")


def _several(x: Any) -> Any:
    """Arrays as lists; a list as it is."""
    return x.tolist() if hasattr(x, "tolist") else x


def _is_id(x: Any) -> bool:
    return hasattr(x, "__index__")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TextError(f"text holds half of a surrogate pair at {error.start}, which UTF-8 cannot") from error


class Model:
    """A GGUF file: what it says of itself, and its tokenizer. Read only; several engines may use it.

    FileError when the file cannot be read, is damaged, or holds a model that this library does not know.
    """

    architecture: str
    name: str
    file_bytes: int
    num_parameters: int
    bytes_per_token: int
    """Bytes of weights that one decode step reads."""
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn: int
    vocab_size: int
    context_length: int
    has_chat_template: bool

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self._model = _C.Model(os.fsencode(path))
        for name, value in self._model.describe().items():
            setattr(self, name, value)

    @classmethod
    def load(cls, path: Union[str, os.PathLike[str]]) -> Model:
        """Maps the file; its weights are read when an engine places them on a device."""
        return cls(path)

    def __repr__(self) -> str:
        return f"Model({self.name or self.architecture!r}, {self.num_parameters / 1e6:.0f}M parameters)"

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """The ids of a text. add_special adds the begin and end of text that the file asks for; parse_special takes
        control tokens such as <|im_end|> for what they are: leave it off for text from users."""
        return self._model.tokenize(_utf8(text), add_special, parse_special)

    def detokenize(self, ids: Iterable[int], show_special: bool = False) -> str:
        """The text of ids; U+FFFD stands for bytes that make no whole character, and control tokens are hidden unless
        show_special. ArgumentError for an id outside the vocabulary."""
        detokenizer = _C.Detokenizer(self._model, [], show_special)
        return "".join([detokenizer.next(id) for id in self._check_ids(ids)]) + detokenizer.next(-1)

    def token_bytes(self, id: int) -> bytes:
        """What one token stands for: not always whole characters. ArgumentError for an id outside the vocabulary, or
        one that only pads it."""
        (id,) = self._check_ids([id])
        found: Optional[bytes] = self._model.token_bytes(id)
        if found is None:
            raise ArgumentError(f"token {id} only pads the vocabulary")
        return found

    def chat_tokenize(self, messages: Iterable[Message]) -> list[int]:
        """The ids of a conversation in the model's own chat format, ending where the assistant speaks.

        messages: {"role": "system" | "user" | "assistant", "content": text}. Control tokens come from the template
        alone; spelled out in a message they stay text. FileError when the file has no template that is known here.
        """
        turns = []
        for i, message in enumerate(messages):
            if not isinstance(message, Mapping):
                raise DtypeError(f"messages[{i}] is a {type(message).__name__}, must be a dict of role and content")
            unknown = sorted(message.keys() - {"role", "content"})
            if unknown:
                raise UnsupportedError(f'messages[{i}] has "{unknown[0]}": only role and content are known here')
            for what in ("role", "content"):
                value = message.get(what)
                if not isinstance(value, str):
                    raise DtypeError(f"messages[{i}]: {what} is a {type(value).__name__}, must be a string")
                if "\0" in value:
                    raise ArgumentError(f"messages[{i}]: {what} holds a NUL, which a chat message cannot")
            turns.append((_utf8(message["role"]), _utf8(message["content"])))
        return self._model.tokenize_chat(turns)

    def _check_ids(self, ids: Iterable[int]) -> list[int]:
        checked = [operator.index(id) for id in _several(ids)]
        for i, id in enumerate(checked):
            if not 0 <= id < self.vocab_size:
                raise ArgumentError(f"ids[{i}] is {id}, must be 0 to {self.vocab_size - 1}")
        return checked

    def _ids_of(self, prompt: Any, chat: bool) -> list[int]:
        """One prompt of any kind."""
        if isinstance(prompt, str):
            if chat:
                return self.chat_tokenize([{"role": "user", "content": prompt}])
            return self.tokenize(prompt, add_special=True)
        prompt = list(_several(prompt))
        if prompt and isinstance(prompt[0], Mapping):
            return self.chat_tokenize(prompt)
        if chat:
            raise ArgumentError("chat=True is for text and messages; ids are a prompt already")
        return self._check_ids(prompt)


@dataclass(frozen=True)
class Completion:
    """What one prompt was continued with."""

    text: str
    tokens: list[int]
    """All that the model gave, with an end-of-text token or the tokens of a stop string."""
    finish_reason: str
    """"stop" (end of text, a stop token or a stop string), "length" (max_new_tokens), "context_full", "cancelled", or
    "numeric" (no logit was a number: a damaged file)."""
    prompt_tokens: int


@dataclass(frozen=True)
class Piece:
    """What one step added to the text of one prompt."""

    index: int
    """Of the prompt."""
    text: str
    """Whole characters; "" while one is incomplete, or while a stop string may be."""
    token: Optional[int]
    """None when the request ended without one."""
    probability: float
    """Of the token, after temperature and filters."""
    finish_reason: Optional[str]
    """As in Completion; None while the text goes on."""


@dataclass(frozen=True)
class Event:
    """What one step did for one request of `Engine.add`."""

    id: int
    token: Optional[int]
    probability: float
    finish_reason: Optional[str]


@dataclass(frozen=True)
class EngineStats:
    """Counts since the engine was made, or since `reset_stats`."""

    prefill_tokens: int
    decode_tokens: int
    prefill_seconds: float
    decode_seconds: float
    weight_bytes: int
    kv_bytes: int
    kv_pages: int
    kv_pages_used: int
    bytes_per_decode_token: int


class _Text:
    """The text of one request as its tokens come: whole characters, cut before the first stop string."""

    def __init__(self, model: Model, prompt: list[int], stops: Sequence[str]) -> None:
        self._detokenizer = _C.Detokenizer(model._model, prompt, False)
        self._stops = stops
        self._held = ""  # may be the begin of a stop string
        self.stopped = False

    def push(self, token: int) -> str:
        """What can be shown now."""
        return self._take(self._detokenizer.next(token))

    def end(self) -> str:
        """The rest."""
        return self._take(self._detokenizer.next(-1)) + self._held

    def _take(self, new: str) -> str:
        text = self._held + new
        # The stop string that is complete first counts, so that it does not matter how text is cut into tokens.
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        held = max((self._overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Characters at the end of text that stop begins with."""
        longest = min(len(text), len(stop) - 1)
        return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class _Options(TypedDict, total=False):
    """Of Engine.generate, for its overloads."""

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    stop: Union[str, Sequence[str]]
    stop_tokens: Sequence[int]
    ignore_stop_tokens: bool
    chat: bool


class _Request:
    def __init__(self, index: int, text: _Text) -> None:
        self._index, self._text = index, text
        self.ended = False

    def piece(self, token: int, probability: float, finish: int) -> Piece:
        reason = _FINISH_REASONS[finish]
        # The token that ends the text is no part of it.
        new = self._text.push(token) if token >= 0 and reason != "stop" else ""
        if reason and not self._text.stopped:
            new += self._text.end()
        if self._text.stopped:
            reason = "stop"
        self.ended = reason is not None
        return Piece(self._index, new, token if token >= 0 else None, probability, reason)


class Engine:
    """Runs a model: on the CPU, or on a GPU with all its weights there.

    model: a Model, or the path of one. device: "cpu", "cuda" or "cuda:1". num_threads: of the CPU, 0 for one a core.
    context_length: tokens that a sequence may hold, prompt included; 0 for the smaller of the model's and 4096.
    max_sequences run at a time, others wait. kv_tokens: size of the KV pool, 0 for max_sequences * context_length;
    kv_dtype: "f16", "bf16" or "f32". page_size: tokens a page of it, 0 for 32. chunk_tokens: of prompts, a step, 0 for
    512. f32_activations: on the CPU with quantised weights, no int8 activations (exact, slower).

    Memory is freed by close(), the end of a `with` block, or with the object.
    """

    def __init__(
        self,
        model: Union[Model, str, os.PathLike[str]],
        device: str = "cpu",
        *,
        num_threads: int = 0,
        context_length: int = 0,
        max_sequences: int = 8,
        kv_tokens: int = 0,
        kv_dtype: str = "f16",
        page_size: int = 0,
        chunk_tokens: int = 0,
        f32_activations: bool = False,
    ) -> None:
        self.model = model if isinstance(model, Model) else Model.load(model)
        self.device = str(device)
        found = re.fullmatch(r"cpu|cuda(?::(\d{1,4}))?", self.device)
        if not found:
            raise ArgumentError(f'engine: device is "{device}", must be cpu, cuda or cuda:N')
        self._engine = _C.Engine(
            self.model._model,
            self.device != "cpu",
            int(found[1] or 0),
            num_threads,
            context_length,
            max_sequences,
            kv_tokens,
            kv_dtype,
            page_size,
            chunk_tokens,
            f32_activations,
        )
        self._session = _C.Session(self._engine)  # of add() and step()
        self.active = 0
        """Requests of add() that have not ended, as of the last add() or step()."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all requests and frees the weights and the KV pool; what is called later raises ArgumentError."""
        self._engine.close()

    # ---- Whole texts --------------------------------------------------------------------------------

    @overload
    def generate(
        self, prompts: Prompt, *, stream: Literal[False] = False, **options: Unpack[_Options]
    ) -> Completion: ...
    @overload
    def generate(
        self, prompts: Prompts, *, stream: Literal[False] = False, **options: Unpack[_Options]
    ) -> list[Completion]: ...
    @overload
    def generate(
        self, prompts: Union[Prompt, Prompts], *, stream: Literal[True], **options: Unpack[_Options]
    ) -> Iterator[Piece]: ...

    def generate(
        self,
        prompts: Any,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: Union[str, Sequence[str]] = (),
        stop_tokens: Sequence[int] = (),
        ignore_stop_tokens: bool = False,
        chat: bool = False,
        stream: bool = False,
    ) -> Any:
        """Continues one prompt, or each of several: more than max_sequences wait for their turn.

        prompts: a text, a list of ids, a list of chat messages ({"role": ..., "content": ...}); or a list of such. With
        chat, a text is what the user says. Text is taken as it is: control tokens spelled in it are not recognised.

        max_new_tokens -1: until the model ends the text or the context is full. temperature 0 is greedy; top_k 0, top_p
        1, min_p 0, repetition_penalty 1 are off. Prompt i draws with seed + i, whatever else runs. The text ends before
        the first `stop` string; stop_tokens end it beside the model's own, and ignore_stop_tokens goes on past both.

        Returns a Completion, or a list of them in the order of the prompts; with stream, an iterator of Pieces as they
        come, those of all prompts mixed. An exception, such as KeyboardInterrupt, or an iterator that is dropped,
        cancels what still runs. ArgumentError for a prompt longer than the context, before anything runs.
        """
        prompts = _several(prompts)
        if not isinstance(prompts, str):
            prompts = list(prompts)
        single = isinstance(prompts, str) or bool(prompts and (isinstance(prompts[0], Mapping) or _is_id(prompts[0])))
        stops = [stop] if isinstance(stop, str) else list(stop)
        if "" in stops:
            raise ArgumentError("generate: a stop string is empty")
        prompt_ids = [self.model._ids_of(prompt, chat) for prompt in ([prompts] if single else prompts)]
        session = _C.Session(self._engine)
        requests = {}
        for index, ids in enumerate(prompt_ids):
            id = session.add(
                ids,
                max_new_tokens,
                ignore_stop_tokens,
                self.model._check_ids(stop_tokens),
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                _as_int64(seed + index),
            )
            requests[id] = _Request(index, _Text(self.model, ids, stops))
        pieces = self._run(session, requests)
        if stream:
            return pieces
        texts: list[list[str]] = [[] for _ in prompt_ids]
        tokens: list[list[int]] = [[] for _ in prompt_ids]
        reasons = [""] * len(prompt_ids)
        with closing(pieces):
            for piece in pieces:
                texts[piece.index].append(piece.text)
                if piece.token is not None:
                    tokens[piece.index].append(piece.token)
                reasons[piece.index] = piece.finish_reason or ""
        completions = [
            Completion("".join(texts[i]), tokens[i], reasons[i], len(ids) or 1)  # an empty prompt is begin-of-text
            for i, ids in enumerate(prompt_ids)
        ]
        return completions[0] if single else completions

    @staticmethod
    def _run(session: _C.Session, requests: dict[int, _Request]) -> Generator[Piece, None, None]:
        running = len(requests)
        try:
            while running:
                events, _ = session.step()
                for id, token, probability, finish in events:
                    request = requests[id]
                    if request.ended:  # at a stop string, before the engine knew
                        continue
                    piece = request.piece(token, probability, finish)
                    if request.ended:
                        running -= 1
                        if not finish:
                            session.cancel(id)
                    yield piece
        finally:
            session.close()

    # ---- Step by step -------------------------------------------------------------------------------

    def add(
        self,
        prompt: Any,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop_tokens: Sequence[int] = (),
        ignore_stop_tokens: bool = False,
        chat: bool = False,
    ) -> int:
        """Queues one prompt, as in `generate`, and returns its id. It runs in the calls of step()."""
        id = self._session.add(
            self.model._ids_of(prompt, chat),
            max_new_tokens,
            ignore_stop_tokens,
            self.model._check_ids(stop_tokens),
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            _as_int64(seed),
        )
        self.active += 1
        return id

    def step(self) -> list[Event]:
        """One model step for all that runs, and what it gave the requests of add(). What steps of other threads gave
        them comes first, without a step."""
        events, self.active = self._session.step()
        return [
            Event(id, token if token >= 0 else None, probability, _FINISH_REASONS[finish])
            for id, token, probability, finish in events
        ]

    def cancel(self, id: int) -> None:
        """Ends a request: the next step reports it as "cancelled". Nothing for one that has ended."""
        self._session.cancel(id)

    def logits(self, id: int) -> Optional[numpy.ndarray]:
        """Logits [vocab_size] float32 from which the last step drew this request's token; None when it drew none."""
        import numpy

        values = self._engine.logits(id)
        return None if values is None else numpy.frombuffer(bytearray(values), "<f4")

    def stats(self) -> EngineStats:
        return EngineStats(**self._engine.stats())

    def reset_stats(self) -> None:
        self._engine.reset_stats()


def _as_int64(seed: int) -> int:
    """Any integer is a seed: its low 64 bits count."""
    return (operator.index(seed) + 2**63) % 2**64 - 2**63
