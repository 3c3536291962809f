"""Many changes of a large document, and eight clients at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.latency.lsp_client import Client, ServerError, ServerProcess
from bench.latency.model import settle
from bench.latency.places import SEED, position

PIECES = ("x", "é", "😋", "name", " = 1", "\n", "\n    return", "()", "# what\n", "")
MAX_DELETED_CHARS = 12  # characters that one edit deletes
CHEAP_METHOD = "workspace/executeCommand"
CHEAP_PARAMS = {"command": "draftline.why", "arguments": []}


# -- one large document ---------------------------------------------------------------------------


class Buffer:
    """An editor's text, by lines, edited at random places."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = [*lines]
        self._chance = random.Random(SEED)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def edit(self) -> dict[str, Any]:
        """Make a random edit and return it as an LSP change with UTF-16 positions."""
        chance, lines = self._chance, self.lines
        number = chance.randrange(len(lines))
        line = lines[number]
        start = chance.randint(0, len(line))
        new = chance.choice(PIECES)
        if start == len(line) and number + 1 < len(lines) and not new:  # two lines become one
            end = {"line": number + 1, "character": 0}
            lines[number : number + 2] = [line + lines[number + 1]]
        else:
            stop = min(len(line), start + chance.choice((0, 0, 1, MAX_DELETED_CHARS)))
            end = {"line": number, "character": _units(line[:stop])}
            lines[number : number + 1] = (line[:start] + new + line[stop:]).split("\n")
        begin = {"line": number, "character": _units(line[:start])}
        return {"range": {"start": begin, "end": end}, "text": new}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def repeat_lines(source: str, lines: int) -> list[str]:
    """`lines` lines, repeating those of `source`."""
    given = source.split("\n")
    return (given * (lines // len(given) + 1))[:lines]


@dataclass(frozen=True)
class ChangeTimes:
    """Seconds of each change followed by a cheap request, and of the request alone.

    It has the resident bytes before, after, and some idle seconds later, too.
    """

    with_change: list[float]
    alone: list[float]
    before: int
    after: int
    later: int


def changes(
    served: ServerProcess,
    client: Client,
    source: str,
    count: int,
    lines: int,
    uri: str,
    idle: float,
) -> ChangeTimes:
    """Edit a repeat_lines document, one edit after the other, as fast as they are taken.

    Then `idle` seconds without any edit follow.
    """
    buffer = Buffer(repeat_lines(source, lines))
    client.open(uri, buffer.text)
    settle(served)
    before = served.resident()
    with_change, alone = [], []
    for number in range(count):
        change = buffer.edit()
        began = time.perf_counter()
        client.change(uri, number + 2, change)
        with_change.append(client.begin(CHEAP_METHOD, CHEAP_PARAMS).wait().at - began)
        alone.append(client.begin(CHEAP_METHOD, CHEAP_PARAMS).wait().seconds)
    after = served.resident()
    time.sleep(idle)
    later = served.resident()
    client.close(uri)
    return ChangeTimes(with_change, alone, before, after, later)


def server_change_times(source: str, count: int, lines: int) -> list[float]:
    """Processor seconds of the server's own code per change, in this process and without a model.

    Raises ServerError if the server's text differs from the editor's at the end.
    """
    from lsp_server.protocol.protocol import read_message
    from lsp_server.server import create
    from lsp_server.shared_engine import SharedEngine

    async def run() -> list[float]:
        server = create(SharedEngine())
        uri = "file:///repeat_lines.py"

        def send(method: str, params: dict[str, Any], **more: Any) -> float:
            message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
            body = json.dumps(message).encode()
            began = time.thread_time()
            for _ in server.protocol.handle(read_message(body)):
                pass
            return time.thread_time() - began

        send("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, id=1)
        buffer = Buffer(repeat_lines(source, lines))
        item = {"uri": uri, "languageId": "python", "version": 1, "text": buffer.text}
        send("textDocument/didOpen", {"textDocument": item})
        found = []
        for number in range(count):
            document, change = {"uri": uri, "version": number + 2}, buffer.edit()
            params = {"textDocument": document, "contentChanges": [change]}
            found.append(send("textDocument/didChange", params))
        if server.documents.get(uri).text.text != buffer.text:
            raise ServerError(f"after {count} edits the server's text is not the editor's")
        server.protocol.close()
        return found

    return asyncio.run(run())


def change_cost(changed: ChangeTimes) -> dict[str, float]:
    """Milliseconds of a change: the time of change and request, minus that of a request alone."""
    alone = median(changed.alone)
    p50, p99 = np.percentile(changed.with_change, [50, 99]).tolist()
    return {
        "did_change_ms_p50": 1000 * (p50 - alone),
        "did_change_ms_p99": 1000 * (p99 - alone),
        "cheap_request_ms_p50": 1000 * alone,
    }


def percentile(values: list[float], rank: float) -> float:
    return float(np.percentile(values, rank))


# -- eight clients -----------------------------------------------------------------------------

CLIENTS = 8
FLOOD_DOCUMENTS = 7  # documents requested by the first client before the others ask
SHOPS = ("apple", "brick", "cedar", "denim", "ember", "flint", "grape", "honey")
# No request times out, and every answer shows, whatever it is.
CLIENT_SETTINGS = {"maxTimeMs": 120_000, "maxTokens": 16, "debounceMs": 0, "checks": False}


def document(shop: str, number: int) -> str:
    """Return a text whose completion contains the shop's name."""
    return (
        f"{shop.upper()}_LIMIT = {number}\n"
        f"{shop.upper()}_PRICES = {{}}\n\n\n"
        f"def {shop}_price(name: str) -> int:\n"
        f'    """What a thing costs in the shop {shop}."""\n'
        "    return "
    )


@dataclass(frozen=True)
class Round:
    """Each client's wait in seconds, and the clients that got an answer to another text."""

    waits: list[float]
    mixed: list[str]


def clients(served: ServerProcess, repeats: int, root: Path, flood: int = 0) -> Iterator[Round]:
    """Time rounds in which eight clients request a completion at the same moment.

    The expected answers are requested beforehand, one client after the other. With `flood` the
    first client requests that many other documents just before; its own wait is left out.
    """
    for number in range(repeats):
        texts = {shop: document(shop, number) for shop in SHOPS}
        with _connected(served) as everyone:
            alone = {shop: _offered(ask()) for shop, ask in _asks(everyone, texts, root)}
        if len({*alone.values()}) < len(SHOPS) or not all(alone.values()):
            raise ServerError(
                "the model's eight answers are not distinct: mixed-up answers would not show"
            )
        with _connected(served) as everyone:
            asks = [*_asks(everyone, texts, root)]
            for more in range(flood):
                text = document(f"other{more}", number)
                uri = (root / f"bench_other_{more}.py").as_uri()
                everyone[0].open(uri, text)
                everyone[0].complete(uri, position(text, len(text)))
            asked = {shop: ask() for shop, ask in asks}
            mixed = [shop for shop in SHOPS if _offered(asked[shop]) != alone[shop]]
            waits = [asked[shop].seconds for shop in (SHOPS[1:] if flood else SHOPS)]
        yield Round(waits, mixed)


@contextlib.contextmanager
def _connected(served: ServerProcess) -> Iterator[list[Client]]:
    """Eight initialized clients, new ones each time, since completions are cached per client."""
    with contextlib.ExitStack() as stack:
        everyone = [stack.enter_context(served.connect()) for _ in SHOPS]
        for client in everyone:
            client.start(None, CLIENT_SETTINGS)
        yield everyone


def _asks(
    everyone: list[Client], texts: dict[str, str], root: Path
) -> Iterator[tuple[str, Callable[[], Any]]]:
    for client, (shop, text) in zip(everyone, texts.items(), strict=True):
        uri = (root / f"bench_{shop}.py").as_uri()
        client.open(uri, text)
        place = position(text, len(text))
        yield shop, lambda client=client, uri=uri, place=place: client.complete(uri, place)


def _offered(asked: Any) -> str:
    items = asked.wait().result["items"]
    return str(items[0]["insertText"]) if items else ""
