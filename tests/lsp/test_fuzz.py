"""Invalid messages: each request still gets exactly one response, and nothing breaks.

The expected responses follow from JSON-RPC's rules, applied here to the message itself.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import subprocess
from collections import Counter
from typing import Any

import pytest

from engine.remote.framing import framed
from tests.support.lsp import HELLO, STATES, TIMEOUT_S, Client, Direct, started

MESSAGES = 12_000  # of each seed
MESSAGES_PER_SERVER = 400
MESSAGES_OVER_A_PIPE = 1_500
URIS = ["file:///a.py", "file:///b%20c.py", "untitled:1", "", "file://[", "\ud800", "x" * 500]
NUMBERS = [0, 1, -1, 2, 7, 2**31 - 1, 2**31, -(2**31), 2**53, 10**30, -(10**400), 0.5, 1e308]
TEXTS = ["", "a", "😋", "\r", "\n", "\r\n", "\ud83d", "\udfff", "\0", "\u2028", "null", "x" * 2000]
ODD = [*NUMBERS, *TEXTS, *URIS, None, True, False, [], {}, [[]], {"": None}]
METHODS = [
    "initialize", "initialized", "exit", "$/cancelRequest", "$/setTrace", "$/progress",
    "$/unknown", "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose",
    "textDocument/didSave", "textDocument/inlineCompletion", "textDocument/hover",
    "notebookDocument/didOpen", "workspace/executeCommand", "workspace/didChangeConfiguration",
    "workspace/didChangeWorkspaceFolders", "window/workDoneProgress/cancel", "draftline/none",
    STATES, "test/wait", "test/fail", "", "\n", "constructor", "__class__", "x" * 1000, "\ud800",
]  # fmt: skip
HARMLESS = [name for name in METHODS if name != "exit"]


def anything(chance: random.Random, depth: int = 0) -> Any:
    """A JSON value."""
    kind = chance.random()
    if depth > 3 or kind < 0.7:
        return chance.choice(ODD)
    if kind < 0.85:
        return [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    names = ["uri", "line", "character", "range", "start", "end", "text", "position", "id", "", "a"]
    return {chance.choice(names): anything(chance, depth + 1) for _ in range(chance.randrange(4))}


def corrupted(chance: random.Random, value: Any) -> Any:
    """A value with something in it replaced, dropped or added."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        changed, key = dict(value), chance.choice([*value])
        if chance.random() < 0.2:
            del changed[key]
        elif chance.random() < 0.1:
            changed["more"] = anything(chance)
        else:
            changed[key] = corrupted(chance, value[key])
        return changed
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], corrupted(chance, value[at]), *value[at + 1 :]]
    return anything(chance)


def params(chance: random.Random, method: str) -> Any:
    """Params of a method, often corrupted."""
    uri = chance.choice(URIS[:3])

    def position() -> dict[str, int]:
        return {"line": chance.randrange(5), "character": chance.choice([0, 1, 3, 9, 10**6])}

    fitting: dict[str, Any] = {
        "initialize": HELLO,
        "$/cancelRequest": {"id": chance.randrange(50)},
        "textDocument/didOpen": {
            "textDocument": {
                "uri": uri, "languageId": "x", "version": 1, "text": chance.choice(TEXTS),
            },
        },
        "textDocument/didChange": {
            "textDocument": {"uri": uri, "version": chance.randrange(9)},
            "contentChanges": [
                {"range": {"start": position(), "end": position()}, "text": chance.choice(TEXTS)},
                {"text": chance.choice(TEXTS)},
            ][: chance.randrange(3)],
        },
        "textDocument/inlineCompletion": {
            "textDocument": {"uri": uri},
            "position": position(),
            "context": {"triggerKind": 1},
        },
        "workspace/executeCommand": {"command": chance.choice(["wait", "none"]), "arguments": []},
        "workspace/didChangeWorkspaceFolders": {
            "event": {"added": [{"uri": uri, "name": "n"}], "removed": []},
        },
        "window/workDoneProgress/cancel": {"token": "t"},
        "$/setTrace": {"value": "verbose"},
    }  # fmt: skip
    given = fitting.get(method, {"textDocument": {"uri": uri}, "uri": uri, "position": position()})
    return corrupted(chance, given) if chance.random() < 0.5 else given


def body(chance: random.Random, methods: list[str]) -> bytes:
    """The body of one message, valid or not."""
    kind = chance.random()
    if kind < 0.03:
        return chance.randbytes(chance.randrange(40))
    if kind < 0.04:
        return chance.choice([b"[", b'{"a":', b"[[1,"]) * chance.choice([10, 500, 990, 20_000])
    if kind < 0.06:
        return json.dumps(anything(chance)).encode()
    method = chance.choice(methods)
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if chance.random() < 0.97:
        message["params"] = params(chance, method)
    if chance.random() < 0.6:
        message["id"] = chance.choice([chance.randrange(50), *ODD, "name"])
    if chance.random() < 0.03:
        del message["method"]
        message[chance.choice(["result", "error"])] = anything(chance)
    if chance.random() < 0.05:
        message = corrupted(chance, message)
    written = json.dumps(message).encode()
    if chance.random() < 0.03:
        at = chance.randrange(len(written))
        written = written[:at] + chance.randbytes(1) + written[at + chance.randrange(2) :]
    if chance.random() < 0.01:
        deep = b"[" * 400 + b"]" * 400
        written = written.replace(b'"params": {', b'"params": {"deep": ' + deep + b",", 1)
    return written


def expected_ids(written: bytes) -> list[str]:
    """The ids, as JSON, of the responses that a message must get: none or one."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        message = json.loads(written.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return ["null"]
    if not isinstance(message, dict):
        return ["null"]
    given = message.get("id")
    named = isinstance(given, str) or type(given) is int
    if message.get("jsonrpc") == "2.0":
        if isinstance(message.get("method"), str) and "id" not in message:
            return []
        answers = {"result", "error"} if named else {"error"} if "id" in message else set()
        if "method" not in message and answers & message.keys():
            return []
    return [json.dumps(given)] if named else ["null"]


def check(answer: dict[str, Any]) -> None:
    """A response is a result, or an error of one line."""
    assert ("result" in answer) != ("error" in answer)
    if "error" in answer:
        error = answer["error"]
        assert type(error["code"]) is int and error["message"]
        assert "\n" not in error["message"] and "Traceback" not in json.dumps(error)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2, 3))])
def test_every_request_gets_exactly_one_response(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(f"messages {seed}")
    caplog.set_level(logging.CRITICAL)
    faults: list[Any] = []

    async def life(number: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        direct = Direct("utf-16" if number % 3 else None)
        methods = [*METHODS, "shutdown"] if number % 4 == 0 else HARMLESS
        expected: Counter[str] = Counter()
        got: list[dict[str, Any]] = []
        for _ in range(MESSAGES_PER_SERVER):
            written = body(chance, methods)
            expected.update(expected_ids(written))
            got += direct.raw(written)
        running = [*direct.server.protocol._running]
        for identity in running:
            cancel = {"id": identity}
            got += direct.notify("$/cancelRequest", cancel)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        answers = [each for each in got if "method" not in each]
        for answer in answers:
            check(answer)
        assert Counter(json.dumps(each["id"]) for each in answers) == expected
        if direct.server.protocol.stage == "running":
            uri = "file:///still/works.py"
            direct.open(uri, "it works\n")
            assert direct.ask(STATES, {"uri": uri})["result"]["text"] == "it works\n"
        direct.server.protocol.close()

    async def main() -> None:
        for number in range(MESSAGES // MESSAGES_PER_SERVER):
            await life(number)

    asyncio.run(main())
    assert not faults


def test_a_real_server_survives_them_and_broken_frames() -> None:
    chance = random.Random("pipe")
    spoilers = [
        b"", b"", b"", b"", b"\r\n", b"nonsense", b"nonsense\r\n\r\n", b"Content-Length: 7",
        b"Content-Length: -7\r\n\r\n", b"Content-Length: x\r\n\r\n{}", b"Content-Le\r\n",
        b"content-length: 99999\r\n\r\n{", b"Content-Length: 99999999999999\r\n\r\n", b"{}" * 50,
        b"\x00" * 9000,
    ]  # fmt: skip
    with started("stdio", stderr=subprocess.DEVNULL) as process:
        client = Client.of(process)
        client.hello()
        asked = []
        for number in range(MESSAGES_OVER_A_PIPE):
            written = body(chance, [name for name in HARMLESS if name != "test/wait"])
            # A body that is not JSON may hold anything, also what looks like a header.
            client.raw(chance.choice(spoilers) + framed(written.replace(b"\n", b" ")))
            if number % 5 == 0:
                identity = f"asked {number}"
                message = {"jsonrpc": "2.0", "id": identity, "method": STATES}
                client.send(message | {"params": {"uri": "file:///none"}})
                asked.append(identity)
        for identity in asked:
            assert client.answer(identity)["error"]["code"] == -32602
        client.ids = itertools.count(10_000)  # not among those above
        client.open("file:///still/works.py", "it works\n")
        held = client.ask(STATES, {"uri": "file:///still/works.py"})
        assert held["text"] == "it works\n"
        assert not [name for name in client.doubles if str(name).startswith("asked")]
        assert client.ask("shutdown") is None
        client.notify("exit")
        assert process.wait(TIMEOUT_S) == 0
