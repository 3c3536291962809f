"""A server of OpenAI's protocol that is asked for short answers, alone or several at once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from engine.remote.engine_url import EngineUrl
from engine.remote.link import Link, LinkError, Lost, Refused, printable
from engine.remote.openai_bodies import CHAT, COMPLETION
from engine.remote.openai_engine import listed_models
from ui.verify.reply import Reply, read_reply
from ui.verify.tasks import VerifyTask

AT_ONCE = 4  # requests
MAX_REPLY_BYTES = 1 << 20  # bytes of an answer
MAX_METRICS_BYTES = 4 << 20  # bytes of the figures for Prometheus
MAX_FAILURES = 3  # in a row, after which a server is asked no more
ALTERNATIVES = 5  # likeliest tokens asked for where a margin is wanted
UNNAMED = "default"  # the model's name where the server lists none
REFUSALS = (400, 404, 405, 415, 422, 500, 501)  # statuses for a form that a server does not know
NO_KEY, FORBIDDEN = 401, 403
# What turns speculation off for one request: ours, and that of llama.cpp's server, whose newer
# versions ignore it.
PLAIN: dict[str, Any] = {"speculation": False, "speculative.n_max": 0, "speculative.type": "none"}
UNTHINKING: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
GREETING = VerifyTask("question", 0, "Say hello.", 4)
METRIC = re.compile(r"^\w+:spec_decode_num_draft_tokens_total(?:\{.*\})?\s+([\d.e+]+)\s*$", re.M)
Value = TypeVar("Value")


class BodyForm(NamedTuple):
    """The way in which a server takes requests."""

    path: str
    extra: dict[str, Any]  # further fields of the body
    stream: bool


FORMS = [
    BodyForm(path, extra, stream)
    for stream in (False, True)
    for path, extra in ((CHAT, UNTHINKING), (CHAT, {}), (COMPLETION, {}))
]


@dataclass(frozen=True, slots=True)
class Options:
    """What one request asks beside its text."""

    plain: bool = False  # without speculation, where the server takes that option
    temperature: float = 0.0
    seed: int = 0
    odds: bool = False  # with the likeliest tokens of each place


class VerifiedServer:
    """A server, the name of its model there, and the form in which it takes requests."""

    def __init__(
        self, url: EngineUrl, key: str, timeout_s: float, key_option: str = "--key"
    ) -> None:
        """Prepare connections; a client of its own for each of AT_ONCE requests.

        Servers that let clients take turns then run them together. `key_option` is named where the
        key is missing or wrong.
        """
        agents = [{"user-agent": f"draftline-verify-{number + 1}"} for number in range(AT_ONCE)]
        self.url, self.timeout_s, self._key_option = url, timeout_s, key_option
        self.links = [Link(url, key, agent) for agent in agents]
        root = EngineUrl(f"{urlsplit(url.url).scheme}://{url.host}")
        self._root = Link(root, key)
        self.model, self.form = UNNAMED, FORMS[0]
        self.notes: list[str] = []  # lines for the report
        self.failures = 0  # in a row

    def open(self, model: str = "", usual: str = "") -> None:
        """Find the model and the form of requests.

        The model is `model`; without one, `usual`, if the server has it, else its first. Raises
        LinkError.
        """
        try:
            self.model = within(lambda: self._choose(model, usual), self.timeout_s, self.url)
            self._find_form()
        except Refused as error:
            if error.status != NO_KEY:
                raise
            why = f"wants a key: name the variable that holds it with {self._key_option}"
            raise Refused(error.status, f"{self.url}: {why}") from error

    def _find_form(self) -> None:
        """Find the form of requests by asking."""
        refusal: LinkError | None = None
        for form in FORMS:
            self.form = form
            try:
                self.ask(GREETING)
                break
            except Refused as error:
                if error.status not in REFUSALS:
                    raise
                refusal = refusal or error
        else:
            raise refusal or LinkError(f"{self.url}: takes no request")
        if self.form.path != CHAT:
            self.notes.append(f"{self.url}: takes no chats: asked to complete texts instead.")
        if self.form.stream:
            self.notes.append(f"{self.url}: answers in streams only: asked for streams.")

    def _choose(self, model: str, usual: str) -> str:
        """Return the name of the model to ask for."""
        try:
            names = [str(each["id"]) for each in listed_models(self.links[0], self.timeout_s)]
        except Lost:
            raise
        except LinkError as error:
            if isinstance(error, Refused) and error.status in (NO_KEY, FORBIDDEN):
                raise
            names = []
        if not names:
            asked = model or usual or UNNAMED
            why = f"lists no models at /models: asked for {printable(asked)}; --model names another"
            self.notes.append(f"{self.url}: {why}.")
            return asked
        if model and model not in names:
            known = ", ".join(map(printable, names[:20]))
            raise LinkError(f"{self.url}: has no model {model}: name one of {known}")
        return model or (usual if usual in names else names[0])

    def ask(self, task: VerifyTask, options: Options = Options(), lane: int = 0) -> Reply:
        """Ask for one answer over the connection number `lane`.

        Raises LinkError.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": task.max_tokens,
            "temperature": options.temperature,
            "seed": options.seed,
            "stream": self.form.stream,
            **self.form.extra,
        }
        chat = self.form.path == CHAT
        if chat:
            body["messages"] = [{"role": "user", "content": task.text}]
        else:
            body["prompt"] = f"{task.text}\n\n"
        body |= {"stream_options": {"include_usage": True}} if self.form.stream else {}
        body |= PLAIN if options.plain else {}
        if options.odds:
            body |= (
                {"logprobs": True, "top_logprobs": ALTERNATIVES}
                if chat
                else {"logprobs": ALTERNATIVES}
            )
        link = self.links[lane % AT_ONCE]

        def answer() -> Reply:
            sent = link.post_bytes(self.form.path, body, MAX_REPLY_BYTES, self.timeout_s)
            return read_reply(self.url, sent)

        return within(answer, self.timeout_s, self.url)

    def drafted_so_far(self) -> float | None:
        """Return how many tokens the server's figures for Prometheus count as guessed.

        vLLM counts them there. None where there is no such figure.
        """
        try:
            body = within(
                lambda: self._root.get_bytes("/metrics", MAX_METRICS_BYTES),
                self.timeout_s,
                self.url,
            )
        except LinkError:
            return None
        found = METRIC.findall(body.decode("utf-8", "replace"))
        try:
            return sum(map(float, found)) if found else None
        except ValueError:
            return None

    def close(self) -> None:
        """Close the connections."""
        for link in (*self.links, self._root):
            link.close()


def within(call: Callable[[], Value], limit_s: float, url: EngineUrl) -> Value:
    """Return what `call` returns, or raise what it raises, within `limit_s` seconds.

    After them LinkError is raised, and the call is left to itself: a server may send a byte now and
    then forever.
    """
    ended: Queue[Value | Exception] = Queue()

    def run() -> None:
        try:
            ended.put(call())
        except Exception as error:
            ended.put(error)

    threading.Thread(target=run, daemon=True, name="draftline-verify").start()
    try:
        found = ended.get(timeout=limit_s)
    except Empty:
        why = f"no whole answer in {limit_s:g} s: raise --timeout, or ask a faster server"
        raise Lost(f"{url}: {why}") from None
    if isinstance(found, Exception):
        raise found
    return found


class Asking(NamedTuple):
    """One request to one server."""

    server: VerifiedServer
    task: VerifyTask
    options: Options


def ask_all(
    askings: Sequence[Asking], at_once: int, on_reply: Callable[[int, Reply | LinkError], None]
) -> None:
    """Ask all requests, `at_once` at the same time.

    `on_reply` gets the number of each in `askings` and its answer, in this thread. A server that
    fails MAX_FAILURES times in a row is asked no more: its requests get no reply.
    """
    waiting, lanes = list(range(len(askings))), list(range(at_once))
    ended: Queue[tuple[int, int, Reply | Exception]] = Queue()

    def run(number: int, lane: int) -> None:
        server, task, options = askings[number]
        try:
            ended.put((number, lane, server.ask(task, options, lane)))
        except Exception as error:
            ended.put((number, lane, error))

    while waiting or len(lanes) < at_once:
        while waiting and lanes:
            number = waiting.pop(0)
            if askings[number].server.failures < MAX_FAILURES:
                started = (number, lanes.pop(0))
                threading.Thread(target=run, args=started, daemon=True).start()
        if len(lanes) < at_once:
            number, lane, found = ended.get()
            lanes.append(lane)
            if isinstance(found, Exception) and not isinstance(found, LinkError):
                raise found
            server = askings[number].server
            server.failures = server.failures + 1 if isinstance(found, LinkError) else 0
            on_reply(number, found)
