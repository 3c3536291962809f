"""A server of OpenAI's protocol that is asked for short answers.

Every answer is asked for as a stream of events: each server can do that, some only that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from engine.remote.engine_url import EngineUrl
from engine.remote.link import Link, LinkError, Lost, Refused, printable
from engine.remote.openai_bodies import CHAT
from engine.remote.openai_engine import listed_models, messages
from ui.verify.reply import Reply, read_reply
from ui.verify.tasks import VerifyTask

MAX_REPLY_BYTES = 8 << 20  # bytes of an answer
MAX_METRICS_BYTES = 4 << 20  # bytes of the figures for Prometheus
ALTERNATIVES = 5  # likeliest tokens asked for where a margin is wanted
UNNAMED = "default"  # the model's name where the server lists none
KEYLESS = (401, 403)  # statuses
# What turns speculation off for one request: ours, and that of llama.cpp's server, whose newer
# versions ignore it.
PLAIN: dict[str, Any] = {"speculation": False, "speculative.n_max": 0}
GREETING = VerifyTask("question", 0, "Say hello.", 4)
METRIC = re.compile(r"^\w+:spec_decode_num_draft_tokens_total(?:\{.*\})? +(\d+(?:\.\d+)?)", re.M)


@dataclass(frozen=True, slots=True)
class Options:
    """What one request asks beside its text."""

    plain: bool = False  # without speculation, where the server takes that option
    temperature: float = 0.0
    seed: int = 0
    odds: bool = False  # with the likeliest tokens of each place


class VerifiedServer:
    """A server, and the name of its model there."""

    def __init__(self, url: EngineUrl, key: str, timeout_s: float) -> None:
        """Prepare connections; nothing is sent yet."""
        self.url, self.timeout_s = url, timeout_s
        self.link = Link(url, key, ours=False)
        root = EngineUrl(f"{urlsplit(url.url).scheme}://{url.host}")
        self._root = Link(root, key, ours=False)
        self.model = UNNAMED
        self.notes: list[str] = []  # lines for the report
        self.failures = 0  # in a row

    def open(self, model: str = "", usual: str = "") -> None:
        """Find the model, and whether the server answers at all.

        The model is `model`; without one, `usual`, if the server has it, else its first. Raises
        LinkError.
        """
        self.model = self._choose(model, usual)
        self.ask(GREETING)

    def _choose(self, model: str, usual: str) -> str:
        """Return the name of the model to ask for."""
        try:
            names = [str(each["id"]) for each in listed_models(self.link, self.timeout_s)]
        except LinkError as error:
            keyless = isinstance(error, Refused) and error.status in KEYLESS
            if keyless or isinstance(error, Lost):
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
        """Ask for one answer.

        `lane` tells clients apart: a server that lets clients take turns runs those of several
        together. Raises LinkError.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": task.text}],
            "max_tokens": task.max_tokens,
            "temperature": options.temperature,
            "seed": options.seed,
            "user": f"draftline-verify-{lane}",
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= PLAIN if options.plain else {}
        body |= {"logprobs": True, "top_logprobs": ALTERNATIVES} if options.odds else {}
        sent = self.link.lines(CHAT, body, False, most=MAX_REPLY_BYTES, silence_s=self.timeout_s)
        return read_reply(self.url, messages(self.url, self._in_time(sent)))

    def _in_time(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the lines of an answer for `timeout_s` seconds. Raises LinkError after them."""
        end = monotonic() + self.timeout_s
        for line in lines:
            if monotonic() > end:
                why = f"no whole answer in {self.timeout_s:g} s: raise --timeout"
                raise Lost(f"{self.url}: {why}")
            yield line

    def drafted_so_far(self) -> float | None:
        """Return how many tokens the server's figures for Prometheus count as guessed.

        vLLM counts them there. None where there is no such figure.
        """
        try:
            body = self._root.get_bytes("/metrics", MAX_METRICS_BYTES)
        except LinkError:
            return None
        found = METRIC.findall(body.decode("utf-8", "replace"))
        return sum(map(float, found)) if found else None

    def close(self) -> None:
        """Close the connections."""
        self.link.close()
        self._root.close()
