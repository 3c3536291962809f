"""A server of OpenAI's protocol as the engine: vLLM, SGLang, LM Studio, Ollama and others.

It is a `ServedEngine`, as far as the protocol goes: nothing is drafted here, no text has a source,
and tokens are counted by words.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import Config
from engine.prompts.fim import FORMATS, FimFormat
from engine.records import Done, Event, Info, Piece, Request, Step, Usage
from engine.remote.address import AddressError
from engine.remote.engine_url import EngineUrl
from engine.remote.link import (
    READ_TIMEOUT_S,
    Link,
    LinkError,
    Lost,
    Refused,
    check_silence,
    printable,
)
from engine.remote.link_engine import LinkEngine, LinkJob, max_bytes
from engine.remote.openai_bodies import RequestPlan, plan_of
from engine.remote.secret_texts import without_secrets
from engine.remote.stops import Stops

if TYPE_CHECKING:
    import httpx

    from engine.prompts.word_tokenizer import WordTokenizer
    from index.workspace.workspace import Workspace

log = logging.getLogger(__name__)

USUAL_CONTEXT = 8192  # tokens of a server that does not say
PREFILL_TOKENS_PER_S = 2000.0  # tokens per second, assumed of a server on a GPU
MAX_LINES_AFTER_LAST = 4
DATA, LAST = b"data:", b"[DONE]"
# Part of a model's name, in lower case -> its format for fill in the middle
FIM_BY_NAME = {
    "qwen2.5-coder": FORMATS[0], "qwen3-coder": FORMATS[0], "codegemma": FORMATS[0],
    "mellum": FORMATS[1], "starcoder": FORMATS[2], "granite": FORMATS[2],
    "deepseek-coder": FORMATS[3], "codellama": FORMATS[4], "seed-coder": FORMATS[6],
    "codestral": FORMATS[7],
}  # fmt: skip


class OpenAiJob(LinkJob):
    """A request that a server of OpenAI's protocol answers."""

    unanswerable = (400, 404, 413, 422, 501)

    def __init__(self, request: Request, engine: OpenAiEngine, plan: RequestPlan) -> None:
        super().__init__(request, engine.context)
        self.plan = plan
        self.cancelled = False
        self._engine = engine
        self._answer: httpx.Response | None = None  # the answer that is being read
        self._lock = threading.Lock()
        self._events = self._run()

    def opened(self, answer: httpx.Response | None) -> None:
        """Note the answer that has begun; None: its connection is no longer its own."""
        with self._lock:
            self._answer = answer

    def cancel(self) -> None:
        """Hang up. The Done has the text written so far."""
        with self._lock:
            self.cancelled = self._done is None
            if self._answer is not None and "network_stream" in self._answer.extensions:
                wire = self._answer.extensions["network_stream"].get_extra_info("socket")
                with contextlib.suppress(OSError):  # ended already
                    wire.shutdown(socket.SHUT_RDWR)

    def _next(self) -> Event:
        return next(self._events)

    def _run(self) -> Iterator[Event]:
        """Yield the events; exactly one Done ends them."""
        stops, reasoning, usage = Stops(self.plan.stop), "", Usage()
        reason, error = None, str(self.error) if self.error else ""
        matched: str | None = None
        before = time.perf_counter()
        try:
            for message in messages(self._engine.url, self.lines, lambda: self.opened(None)):
                usage = _usage(message, usage)
                text, thought, ended = delta_of(message)
                text, thought = (
                    text[: self.chars_left],
                    thought[: max(0, self.chars_left - len(text))],
                )
                self.chars_left -= len(text) + len(thought)
                ended = ended if self.chars_left else "length"
                reasoning += thought
                reason = ended or reason
                shown = stops.push(self.plan.fence.push(text) if self.plan.fence else text)
                if shown or thought:
                    now = time.perf_counter()
                    pieces = (Piece(shown, "model"),) if shown else ()
                    yield Step(pieces, seconds=now - before, reasoning=thought)
                    before = now
                matched = stops.matched or (self.plan.fence.matched if self.plan.fence else None)
                if matched:
                    reason = "stop"
                if matched or not self.chars_left:
                    break
            else:
                if reason is None and not self.cancelled and not error:
                    error = f"{self._engine.url}: the answer ended too soon: ask again"
        except LinkError as lost:
            if not self.cancelled:
                error = str(lost)
                if isinstance(lost, Lost):
                    self._engine.on_lost(error)
        self.hang_up()
        rest = stops.finish(self.plan.fence.finish() if self.plan.fence else "")
        if rest:
            yield Step((Piece(rest, "model"),))
        if error:
            yield Done("failed", stops.text, usage=usage, error=error, reasoning=reasoning)
        elif self.cancelled:
            yield Done("cancelled", stops.text, usage=usage, reasoning=reasoning)
        else:
            found = "length" if reason == "length" else "stop"
            yield Done(found, stops.text, matched, usage, reasoning=reasoning)  # type: ignore[arg-type]


def messages(
    url: EngineUrl, lines: Iterator[bytes], on_last: Callable[[], None] = lambda: None
) -> Iterator[dict[str, Any]]:
    """Yield the server-sent events of an answer's lines; after the last one, `on_last` is called.

    Raises LinkError.
    """
    heard = time.monotonic()
    for line in lines:
        if not line.startswith(DATA):
            check_silence(url, heard)
            continue
        heard = time.monotonic()
        data = line.removeprefix(DATA).strip()
        if data == LAST:
            on_last()
            for _ in islice(lines, MAX_LINES_AFTER_LAST):
                pass  # up to the end, so that the next request can use the connection
            return
        try:
            message = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise LinkError(f"{url}: a wrong answer: not JSON") from error
        if not isinstance(message, dict):
            raise LinkError(f"{url}: a wrong answer: not an object")
        if message.get("error"):
            raise LinkError(f"{url}: {_error_of(message['error'])}")
        yield message


def listed_models(link: Link, silence_s: float = READ_TIMEOUT_S) -> list[dict[str, Any]]:
    """List the models of a server, each with its `id`.

    Raises LinkError.
    """
    answer = link.get("/models", silence_s)
    listed = answer.get("data") if isinstance(answer, dict) else None
    return [
        model
        for model in (listed if isinstance(listed, list) else [])
        if isinstance(model, dict) and isinstance(model.get("id"), str)
    ]


def _error_of(error: Any) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return printable(text if isinstance(text, str) else "the server failed")


def delta_of(message: dict[str, Any]) -> tuple[str, str, str | None]:
    """Read the text, the reasoning and the finish reason of one event."""
    choices = message.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    choice = choice if isinstance(choice, dict) else {}
    delta = choice.get("delta", choice)
    delta = delta if isinstance(delta, dict) else {}
    text = delta.get("content", delta.get("text"))
    thought = delta.get("reasoning_content", delta.get("reasoning"))
    ended = choice.get("finish_reason")
    return (
        text if isinstance(text, str) else "",
        thought if isinstance(thought, str) else "",
        ended if isinstance(ended, str) else None,
    )


def _usage(message: dict[str, Any], known: Usage) -> Usage:
    """Read the counts of an event; `known` where it has none."""
    given = message.get("usage")
    if not isinstance(given, dict):
        return known
    prompt, completion = given.get("prompt_tokens"), given.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int or min(prompt, completion) < 0:
        return known
    return Usage(prompt_tokens=prompt, completion_tokens=completion, forwards=completion)


class OpenAiEngine(LinkEngine):
    """A model of a server of OpenAI's protocol. A context manager."""

    drafts = False
    folder: Path | None = None  # the model is nowhere on this machine

    def __init__(
        self,
        url: EngineUrl,
        model: str = "",
        on_lost: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Ask the server for its models, and whether it takes suffixes.

        `model`: its name there; without one, the first. `on_lost` is called, in any thread, with
        one line when the connection fails. AddressError, LinkError.
        """
        super().__init__(url, on_lost)
        try:
            chosen = self._choose(model)
            self.model = str(chosen["id"])
            self.suffixes, fim = self._fim()
        except BaseException:
            self.link.close()
            raise
        self.fim: FimFormat | None = fim
        given = [chosen.get(name) for name in ("max_model_len", "context_length")]
        context = next(
            (length for length in given if type(length) is int and length > 0), USUAL_CONTEXT
        )
        self.info = Info(
            self.model,
            f"{url.host}, without drafts",
            "OpenAI's protocol",
            context,
            self.suffixes or fim is not None,
            PREFILL_TOKENS_PER_S,
        )
        self.config = Config(model=self.model)

    def _choose(self, name: str) -> dict[str, Any]:
        """Find the server's model of this name."""
        try:
            models = listed_models(self.link)
        except Refused as error:
            if error.status == 404:
                raise AddressError(
                    f"{self.url}: no server of OpenAI's protocol there: its address mostly ends in "
                    "/v1"
                ) from error
            raise
        if not models:
            raise AddressError(f"{self.url}: lists no model: load one there, or check the address")
        found = [model for model in models if model["id"] == name] if name else models
        if not found:
            names = ", ".join(printable(model["id"]) for model in models[:20])
            raise AddressError(f"{self.url}: has no model {name}: name one of {names}")
        return found[0]

    def _fim(self) -> tuple[bool, FimFormat | None]:
        """Ask whether the server takes suffixes.

        Else the format of the model's prompts for fill in the middle, where its name shows it.
        """
        probe = {"model": self.model, "prompt": "a = 1\n", "suffix": "\nc = 3\n", "max_tokens": 1}
        try:
            self.link.post("/completions", probe, compress=False)
            return True, None
        except Refused as error:
            name = self.model.lower()
            fim = next((fim for part, fim in FIM_BY_NAME.items() if part in name), None)
            how = "its marks for fill in the middle are used" if fim else "completions end lines"
            log.info("%s takes no suffix (%s): %s", self.url, error, how)
            return False, fim

    @cached_property
    def encoder(self) -> WordTokenizer:
        """A tokenizer that counts tokens approximately."""
        from engine.prompts.word_tokenizer import WordTokenizer

        return WordTokenizer()

    def prompt_tokens(self, request: Request, cancelled: Callable[[], bool] = lambda: False) -> int:
        """Count the tokens of a request's prompt approximately."""
        return (
            len(self.chat(request.messages)) if request.messages else len(self.encode(request.text))
        )

    def pass_seconds(self, rows: int) -> list[float]:
        """Return equal times: nothing is drafted, so that nothing is saved."""
        return [1.0] * rows

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        *,
        client: str = "",
        workspace: Workspace | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        urgency: int | None = None,
        owner: str = "",
    ) -> OpenAiJob:
        """Send a request, as `Engine.submit` does.

        `speculation`, `client`, `urgency` and `owner` have no effect here. RequestError where it
        cannot be answered, or may hold secrets.
        """
        request = without_secrets(request, self.url.host, workspace or self.workspace)
        plan = plan_of(request, self.model, self.suffixes, self.fim)
        job = OpenAiJob(request, self, plan)
        if cancelled():
            job.cancelled = True
            return job
        most = max_bytes(request, self.context)
        lines = self.link.lines(plan.path, plan.body, False, job.opened, most)
        job.start(lines)
        return job

    def forget(self, client: str = "") -> None:
        """Do nothing: the server remembers nothing for a client."""

    def open_workspace(
        self, roots: str | Path | Sequence[str | Path], gitignore: bool = True
    ) -> Workspace:
        """Index a folder, or several, in this process's memory; the caller closes the index."""
        from index.workspace.workspace import Workspace

        return Workspace(roots, self.encoder, None, gitignore)
