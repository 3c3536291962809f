"""The language server as a typist's program: what an editor sends it while somebody types."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.latency.lsp_client import Client, PendingRequest, ServerProcess
from bench.latency.places import position
from bench.latency.typist import Answer, Asked
from bench.replay.collect import language_of


class LanguageServer:
    """One document at a time of a client whose workspace is `folder`.

    With each key an editor also asks for the code actions at the cursor: its own request, which
    should not wait for the model.
    """

    def __init__(self, served: ServerProcess, client: Client, folder: Path) -> None:
        self._client, self._folder = client, folder
        self.cpu_seconds = served.cpu_seconds
        self._text, self._document, self._version = "", {"uri": ""}, 0
        self._asked: PendingRequest | None = None
        self._own: list[PendingRequest] = []

    def open(self, file: str, text: str) -> None:
        self._text, self._asked, self._own = text, None, []
        self._document = {"uri": (self._folder / file).as_uri()}
        self._version += 1
        self._client.open(self._document["uri"], text, self._version, language_of(file))

    def move(self, offset: int) -> None:
        self._cancel()
        where = {"textDocument": self._document, "position": position(self._text, offset)}
        self._client.notify("draftline/cursor", where)

    def press(self, start: int, stop: int, new: str) -> Asked:
        self._cancel()
        where = {"start": position(self._text, start), "end": position(self._text, stop)}
        self._text = self._text[:start] + new + self._text[stop:]
        self._version += 1
        uri, here = self._document["uri"], position(self._text, start + len(new))
        self._client.change(uri, self._version, {"range": where, "text": new})
        token = f"typed-{self._version}"
        self._asked = self._client.complete(uri, here, token)
        cursor = {"range": {"start": here, "end": here}, "context": {"diagnostics": []}}
        own = {"textDocument": self._document, **cursor}
        self._own.append(self._client.begin("textDocument/codeAction", own))
        return partial(self._answer, self._asked, token)

    def leave(self) -> list[float]:
        self._client.close(self._document["uri"])
        return [one.wait().seconds for one in self._own]

    def _cancel(self) -> None:
        if self._asked and not self._asked.done.is_set():
            self._client.cancel(self._asked)

    def _answer(self, asked: PendingRequest, token: str, seconds: float) -> Answer | None:
        if not asked.done.wait(seconds):
            return None
        items = [] if asked.cancelled else asked.result["items"]
        streamed = (
            one["at"]
            for one in [*self._client.notifications]
            if one["method"] == "$/progress" and one["params"]["token"] == token
        )
        return Answer(items[0]["insertText"] if items else "", next(streamed, asked.at), asked.at)
