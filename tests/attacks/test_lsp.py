"""Fuzzing of the language server: mutated messages and broken frames over every transport.

The edits of some documents are either valid or invalid by construction, so that an obvious oracle
knows their texts. Everything else is mutated at random. Afterwards the server still answers, its
documents are the oracle's, its log has no traceback, and its memory does not go on growing.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.lsp.test_fuzz import anything, corrupted
from tests.support.command import FENCE, chain_model, environment
from tests.support.lsp import (
    HELLO,
    STATES,
    TIMEOUT_S,
    Client,
    exit_code,
    listening,
    place,
    started,
)
from tests.support.training import save_small_library

Message = dict[str, Any]
COUNTS = [200, pytest.param(20_000, marks=pytest.mark.full)]
MESSAGES_PER_CHECK = 100
MAX_GROWTH_BYTES = 100 << 20
WATCHED = [f"file:///watched/{number}.py" for number in range(3)]
OTHERS = ["file:///a.py", "file:///b%20c.py", "untitled:1", "file:///closed.py"]
PIECES = ["x", " = ", "1", "é", "😋", "e\u0301", "\n", "\r\n", "\r", "\f", "\u2028", "ab\n"]
MAX_TEXT_CHARS = 2000
DEFAULTS = {"maxTokens": 8, "debounceMs": 0, "languages": [], "disabledGlobs": []}
LARGEST = 2**31 - 1  # of LSP's integers
DEEP: Any = None
for _ in range(300):
    DEEP = [DEEP]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE))


# -- the oracle --------------------------------------------------------------------------------


def offset(text: str, line: int, character: int) -> int:
    """The offset of a position in UTF-16, clamped to the end of its line and of the text."""
    lines = re.split(r"(\r\n|\r|\n)", text)[::2]
    ends = re.findall(r"\r\n|\r|\n", text)
    if line >= len(lines):
        return len(text)
    start = sum(len(lines[number]) + len(ends[number]) for number in range(line))
    units = 0
    for at, letter in enumerate(lines[line]):
        units += 2 if ord(letter) > 0xFFFF else 1
        if units > character:
            return start + at
    return start + len(lines[line])


def edited(text: str, changes: list[Message]) -> str:
    """A text after the changes of a didChange notification."""
    for change in changes:
        start, stop = 0, len(text)
        if "range" in change:
            ends = (change["range"][end] for end in ("start", "end"))
            start, stop = sorted(offset(text, int(p["line"]), int(p["character"])) for p in ends)
        text = text[:start] + change["text"] + text[stop:]
    return text


# -- edits of watched documents ----------------------------------------------------------------


def words(chance: random.Random) -> str:
    return "".join(chance.choice(PIECES) for _ in range(chance.randrange(6)))


def change_message(chance: random.Random, uri: str, version: int) -> Message:
    """A valid didChange notification."""

    def position() -> dict[str, int]:
        line = chance.choice([0, 0, 1, 2, 5, 30, 10**6, LARGEST])
        return place(line, chance.choice([0, 1, 2, 3, 7, 40, 10**6, LARGEST]))

    def change() -> Message:
        if chance.random() < 0.1:
            return {"text": words(chance)}
        return {"range": {"start": position(), "end": position()}, "text": words(chance)}

    document = {"uri": uri, "version": version}
    changes = [change() for _ in range(chance.choice([0, 1, 1, 1, 2, 3]))]
    params = {"textDocument": document, "contentChanges": changes}
    return {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params}


def unusual(chance: random.Random, message: Message) -> None:
    """Make a message unusual, but not invalid."""
    params = message["params"]
    kind = chance.randrange(4)
    if kind == 0:
        params["textDocument"]["version"] = chance.choice([-1, 0, -(2**31), LARGEST, 7.0])
    elif kind == 1:
        chance.choice([message, params, params["textDocument"]])["more"] = anything(chance)
    elif kind == 2:
        params["deep"] = DEEP
    else:
        for change in params["contentChanges"]:
            change["rangeLength"] = chance.choice([0, 5, LARGEST])


def invalid(chance: random.Random, message: Message) -> None:
    """Make a didChange notification invalid."""
    params = message["params"]
    not_integers = ["1", 0.5, None, True, [], {}, 2**31, 10**30, -(2**31) - 1]
    end = place(0, 0)
    bad = {"range": {"start": end, "end": end}, "text": "bad"}
    kind = chance.randrange(9)
    if kind == 0:
        key = chance.choice(["line", "character"])
        end |= {key: chance.choice([*not_integers, -1])}
        params["contentChanges"].append(bad)  # valid changes before it do not count either
    elif kind == 1:
        params["contentChanges"].append(bad | {"text": chance.choice([5, None, [], {}])})
    elif kind == 2:
        params["contentChanges"] = chance.choice([None, "x", {}, 5, [5], ["x"], [{}], [[]]])
    elif kind == 3:
        params["textDocument"]["version"] = chance.choice(not_integers)
    elif kind == 4:
        params["textDocument"] = chance.choice([None, [], "x", {}, {"uri": WATCHED[0]}])
    elif kind == 5:
        message["method"] = chance.choice(["textDocument/DidChange", "", "didChange", 5, None, []])
    elif kind == 6:
        message["jsonrpc"] = chance.choice(["1.0", 2.0, None, "", []])
    elif kind == 7:
        message["id"] = chance.choice([1, -1, "x", None, 0.5, [], LARGEST])
    else:
        message["params"] = chance.choice([[params], "x", 5, None, []])


def torn(chance: random.Random, body: bytes) -> bytes:
    """A body that is not JSON in UTF-8."""
    at = chance.randrange(1, len(body))
    deep = b"[" * chance.choice([1_000, 5_000, 100_000])
    return chance.choice([body[:at], body[:at] + b"\xff" + body[at:], deep, body + b"}", b""])


def misframed(chance: random.Random, body: bytes) -> bytes:
    """Bytes in which there is no message, although the next one is intact."""
    length = len(body)
    return chance.choice(
        [
            b"Content-Length: %d\r\n\r\n%b" % (length + 200, body),  # swallows no whole header
            b"Content-Length: %d\r\n\r\n%b" % (length - 3, body),
            b"Content-Length: -%d\r\n\r\n%b\r\n" % (length, body),
            b"Content-Length: %d0000000000\r\n\r\n%b\r\n" % (length, body),
            b"Content-Type: x\r\n\r\n%b\r\n" % body,
            b"Content-Length: 9" + b" " * 50_000 + b"x\r\n\r\n",
            b"A" * 30_000 + b"\r\n",
            b"\0" * 5_000,
            chance.randbytes(300).replace(b"\n", b"") + b"\r\n",
        ]
    )


# -- everything else ---------------------------------------------------------------------------


def other_message(chance: random.Random) -> Message:
    """A valid or mutated message that does not touch the watched documents."""
    uri = chance.choice(OTHERS)
    document: Message = {"uri": uri, "version": chance.randrange(9)}
    at = place(chance.randrange(4), chance.randrange(9))
    span = {"start": at, "end": place(chance.randrange(4), chance.randrange(9))}
    item = {"uri": uri, "languageId": "python", "version": 1, "text": words(chance) + "x=1\n"}
    here = {"textDocument": document, "position": at}
    asked = {"textDocument": {"uri": uri}, "range": span}
    valid: dict[str, Any] = {
        "textDocument/didOpen": {"textDocument": item},
        "textDocument/didChange": change_message(chance, uri, 2)["params"],
        "textDocument/didClose": {"textDocument": document},
        "textDocument/didSave": {"textDocument": document},
        "textDocument/inlineCompletion": here | {"context": {"triggerKind": 2}},
        "textDocument/completion": here,
        "textDocument/codeAction": asked | {"context": {"diagnostics": []}},
        "codeAction/resolve": {"title": "t", "data": chance.choice([None, {}, [1], DEEP])},
        "textDocument/didShowCompletion": {"item": {"insertText": "x"}},
        "draftline/nextEdit": here,
        "draftline/edit": asked | {"instruction": "do", "workDoneToken": "t"},
        "draftline/renamePlaces": asked | {"instruction": "rename x to y"},
        "draftline/editTarget": here,
        "draftline/placeCode": asked | {"code": words(chance) + "def f():\n    pass"},
        "draftline/tryEdit": asked | {"before": words(chance), "command": "'"},
        "draftline/ask": asked | {"question": "why", "partialResultToken": 5},
        "workspace/executeCommand": {
            "command": f"draftline.{chance.choice(['status', 'stats', 'why', 'cancel', 'none'])}",
            "arguments": [],
        },
        "workspace/didChangeConfiguration": {"settings": {"draftline": {"maxTokens": 8}}},
        "workspace/didChangeWatchedFiles": {"changes": [{"uri": uri, "type": 2}]},
        "workspace/didChangeWorkspaceFolders": {
            "event": {"added": [{"uri": "file:///no/such", "name": "n"}], "removed": []}
        },
        "notebookDocument/didClose": {"notebookDocument": {"uri": uri}, "cellTextDocuments": []},
        "window/workDoneProgress/cancel": {"token": "t"},
        "$/cancelRequest": {"id": chance.randrange(10**6, 10**6 + 50)},
        "$/setTrace": {"value": "verbose"},
        "initialize": HELLO,
        "initialized": {},
        "no/such/method": {},
    }
    method = chance.choice([*valid])
    message: Message = {"jsonrpc": "2.0", "method": method, "params": valid[method]}
    if not re.search(r"/did|\$/|initialized|window", method):
        message["id"] = chance.randrange(10**6, 10**6 + 50)
    if chance.random() < 0.6:
        message["params"] = corrupted(chance, message["params"])
    if chance.random() < 0.1:
        message = corrupted(chance, message)
    return message


def disorderly(chance: random.Random, connect: Callable[[], Client]) -> None:
    """A client whose messages are out of order, and which leaves at any time."""
    client = connect()
    steps = [
        "initialize",
        "initialized",
        "shutdown",
        STATES,
        "textDocument/didOpen",
        "exit",
        "leave",
    ]
    for step in chance.choices(steps, k=chance.randrange(1, 6)):
        if step == "leave":
            break
        message = {"jsonrpc": "2.0", "method": step, "params": HELLO | {"uri": "file:///none"}}
        if step in ("initialize", "shutdown", STATES):
            message["id"] = chance.randrange(9)
        client.send(message)
        if step == "exit":
            break
    client.leave()


# -- the attack --------------------------------------------------------------------------------


@dataclass
class Attack:
    """A server process, its log, a client, and what connects others, where that is possible."""

    process: subprocess.Popen[bytes]
    log: list[bytes]
    client: Client
    connect: Callable[[], Client] | None

    def memory(self) -> int:
        """Resident bytes of the server."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextmanager
def attacked(how: str, model: str, folder: Path) -> Iterator[Attack]:
    """A server of Draftline over a transport. It has an n-gram already, whose building in the
    background would take memory meanwhile."""
    save_small_library(folder, Path(model))
    log: list[bytes] = []
    connect = None
    if how == "stdio":
        process = started("stdio", model, env=environment(folder))
    else:
        process, port = listening(model, env=environment(folder))
        connect = partial(Client.on, port)
    with process:
        assert process.stderr
        reading = threading.Thread(target=log.extend, args=(process.stderr,))
        reading.start()
        try:
            yield Attack(process, log, connect() if connect else Client.of(process), connect)
        finally:
            process.kill()
            reading.join(TIMEOUT_S)


def settled(client: Client, texts: dict[str, tuple[str, int]]) -> None:
    """The documents of the server are the oracle's."""
    for uri, (text, version) in texts.items():
        assert client.ask(STATES, {"uri": uri}) == {"text": text, "version": version}


def works(client: Client) -> None:
    """The server answers a well-formed request with the right answer."""
    client.notify("workspace/didChangeConfiguration", {"settings": {"draftline": DEFAULTS}})
    if client.ask("workspace/executeCommand", {"command": "draftline.status"})["state"] == "off":
        client.ask("workspace/executeCommand", {"command": "draftline.toggle"})
    uri = "file:///right.py"
    client.open(uri, "a\n")
    span = {"start": place(0, 0), "end": place(1, 0)}
    document = {"uri": uri, "version": 1}
    params = {"textDocument": document, "range": span, "instruction": "do"}
    (edit,) = client.ask("draftline/edit", params)["edit"]["changes"][uri]
    assert edited("a\n", [edit | {"text": edit["newText"]}]) == "x=9\n"


@pytest.mark.parametrize("how", ["stdio", "tcp"])
@pytest.mark.parametrize("count", COUNTS)
def test_fuzzing_changes_nothing_but_what_it_may(
    tmp_path: Path, model: str, how: str, count: int
) -> None:
    chance = random.Random(f"{how} {count}")
    with attacked(how, model, tmp_path) as attack:
        client = attack.client
        for early in (STATES, "textDocument/hover", "no/such/method"):
            assert client.error(early, {"uri": "x"})["code"] == -32002
        client.notify("textDocument/didOpen", {"textDocument": {"uri": WATCHED[0]}})
        client.hello(initializationOptions={"draftline": DEFAULTS})
        assert client.error("initialize", HELLO)["code"] == -32600
        texts = dict.fromkeys(WATCHED, ("x=1\n😋\n", 1))
        for uri, (text, _) in texts.items():
            client.open(uri, text)
        works(client)
        before = 0
        for number in range(count):
            if number == count // 2:
                before = attack.memory()  # what the first half takes is there once
            uri = chance.choice(WATCHED)
            text = texts[uri][0]
            message = change_message(chance, uri, number + 2)
            if len(text) > MAX_TEXT_CHARS:
                message["params"]["contentChanges"] = [{"text": "x=1\n"}]
            kind = chance.random()
            if kind < 0.3:
                if chance.random() < 0.5:
                    unusual(chance, message)
                client.send(message)
                params = message["params"]
                text = edited(text, params["contentChanges"])
                texts[uri] = text, int(params["textDocument"]["version"])
            elif kind < 0.5:
                invalid(chance, message)
                client.send(message)
            elif kind < 0.55:
                client.body(torn(chance, json.dumps(message, ensure_ascii=False).encode()))
            elif kind < 0.6:
                data = misframed(chance, json.dumps(message).encode())
                for start in range(0, len(data), 1000):
                    client.raw(data[start : start + 1000])
            else:
                client.send(other_message(chance))
            if number % MESSAGES_PER_CHECK == 0:
                settled(client, texts)
                if attack.connect:
                    disorderly(chance, attack.connect)
        settled(client, texts)
        works(client)
        assert attack.memory() - before < MAX_GROWTH_BYTES
        assert client.ask("shutdown") is None
        assert client.error(STATES, {"uri": WATCHED[0]})["code"] == -32600
        client.notify("exit")
        if how == "stdio":
            assert exit_code(attack.process) == 0
    log = b"".join(attack.log).decode()
    assert "Traceback" not in log and "disconnected a client" not in log, log[-5000:]
