"""The protocol message by message: responses, errors, cancellation."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from typing import Any

import pytest

from tests.support.lsp import (
    ASYNC_STATES,
    HELLO,
    STATES,
    Client,
    Direct,
    exit_code,
    framed,
    place,
)

# -- responses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "identity"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"a":' * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"shutdown","params":NaN}', -32700, None),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b"}", -32700, None),
        (b"[]", -32600, None),
        (b"7", -32600, None),
        (b'{"id":1,"method":"shutdown"}', -32600, 1),
        (b'{"jsonrpc":2.0,"id":1,"method":"shutdown"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"shutdown"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"shutdown"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"shutdown"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"shutdown"}', -32002, "\ud800"),
        (b'{"jsonrpc":"2.0","id":-99999999999999999999,"method":"x"}', -32002, -(10**20) + 1),
    ],
)
def test_an_invalid_message_gets_the_right_error(body: bytes, code: int, identity: Any) -> None:
    (answer,) = Direct().raw(body)
    assert answer["error"]["code"] == code and answer["id"] == identity
    assert "\n" not in answer["error"]["message"] and "data" not in answer["error"]


def test_requests_are_refused_in_the_wrong_lifecycle_stage() -> None:
    direct = Direct()
    assert direct.ask(STATES)["error"]["code"] == -32002
    assert direct.ask("initialize", {"capabilities": 1})["error"]["code"] == -32602
    assert direct.ask(STATES)["error"]["code"] == -32002, "a failed initialize does not count"
    assert "capabilities" in direct.ask("initialize", HELLO)["result"]
    assert direct.ask("initialize", HELLO)["error"]["code"] == -32600
    assert direct.ask("nothing/known")["error"]["code"] == -32601
    assert direct.ask("$/unknown")["error"]["code"] == -32601
    assert direct.ask("textDocument/didOpen", {})["error"]["code"] == -32600
    assert direct.ask("shutdown")["result"] is None
    assert direct.ask("shutdown")["error"]["code"] == -32600
    assert direct.notify("textDocument/didOpen", {}) == []
    assert direct.notify("exit") == [] and direct.server.protocol.exit_code == 0


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (None, "params.context"),
        ([], "params"),
        ({"textDocument": {"uri": 5}}, "params.textDocument.uri"),
        ({"position": {"line": "3", "character": 0}}, "params.position.line"),
        ({"position": {"line": -1, "character": 0}}, "params.position.line"),
        ({"position": {"line": 0, "character": 1 << 31}}, "params.position.character"),
        ({"position": {"line": 0.5, "character": 0}}, "params.position.line"),
        ({"position": {"line": True, "character": 0}}, "params.position.line"),
        ({"position": {"line": 0}}, "params.position.character"),
        ({"context": {"triggerKind": "x" * 99}}, "params.context.triggerKind"),
    ],
)
def test_errors_name_the_invalid_field(params: Any, field: str) -> None:
    from lsprotocol import types

    direct = Direct("utf-16")
    options = types.InlineCompletionOptions()
    direct.server.feature("textDocument/inlineCompletion", options)(lambda params: None)
    good = {
        "textDocument": {"uri": "file:///a"},
        "position": {"line": 0, "character": 0},
        "context": {"triggerKind": 1},
    }
    assert direct.ask("textDocument/inlineCompletion", good)["result"] is None
    params = good | params if isinstance(params, dict) else params
    error = direct.ask("textDocument/inlineCompletion", params)["error"]
    assert error["code"] == -32602 and error["message"].startswith(f"{field}: "), error


def test_structuring_and_unstructuring_round_trip() -> None:
    """Including enum values that LSP does not define."""
    from lsprotocol import types

    from lsp_server.protocol.converter import structure, unstructure

    where = {"start": place(0, 0), "end": place(0, 1)}
    problem = {"range": where, "message": "m", "severity": 2, "tags": [1, 99], "code": "c"}
    context = {"diagnostics": [problem], "triggerKind": 1, "only": ["quickfix", "own.kind"]}
    given = {"textDocument": {"uri": "u"}, "range": where, "context": context}
    read = structure(given, types.CodeActionParams, "params")
    assert json.loads(json.dumps(unstructure(read))) == given


def test_a_bad_notification_changes_nothing_and_is_logged_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    direct, uri = Direct("utf-16"), "file:///a.py"
    direct.open(uri, "secret")
    before = direct.server.documents.get(uri)
    good = {"range": {"start": place(0, 0), "end": place(0, 1)}, "text": "private"}
    bad = {"range": {"start": place(0, -1), "end": place(0, 1)}, "text": "private"}
    whole = {"text": 5, "range": "private"}
    named = {"uri": uri, "version": 2}
    caplog.clear()
    for params in (
        {"textDocument": named, "contentChanges": [good, bad]},
        {"textDocument": named, "contentChanges": [good, whole]},
        {"textDocument": named, "contentChanges": "private"},
        {"textDocument": {"uri": uri, "version": "private"}, "contentChanges": [good]},
        {"textDocument": {"uri": "file:///b", "version": 2}, "contentChanges": [good]},
        ["private"],
        None,
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            assert direct.notify("textDocument/didChange", params) == []
        assert direct.server.documents.get(uri) is before
        (record,) = caplog.records
        assert "textDocument/didChange" in record.getMessage()
        assert "private" not in caplog.text and "Traceback" not in caplog.text


def test_lone_surrogates_are_replaced() -> None:
    direct, uri = Direct("utf-16"), "file:///a.py"
    direct.open(uri, "a\ud800b")
    change = {"range": {"start": place(0, 1), "end": place(0, 2)}, "text": "\udfff\ud83d"}
    params = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [change]}
    direct.notify("textDocument/didChange", params)
    assert direct.ask(STATES, {"uri": uri})["result"]["text"] == "a\ufffd\ufffdb"


def test_an_exception_in_a_handler_becomes_a_one_line_error(
    process: subprocess.Popen[bytes],
) -> None:
    client = Client.of(process)
    client.hello()
    error = client.error("test/fail")
    assert error == {"code": -32603, "message": "two lines"}
    assert client.ask(STATES.replace("text", "large"), {"size": 3}) == "xxx"
    assert client.notifications.empty() and not client.doubles


def test_prints_do_not_reach_the_client(process: subprocess.Popen[bytes]) -> None:
    client = Client.of(process)
    client.hello()
    assert client.ask("test/print") == "printed"
    assert client.ask("shutdown") is None
    client.notify("exit")
    assert exit_code(process) == 0
    assert process.stderr and process.stderr.read().count(b"stray") == 2


def test_no_text_is_logged_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        direct = Direct("utf-16")
        direct.open("file:///a.py", "private")
        direct.ask(STATES, {"uri": "file:///a.py"})
        direct.ask("workspace/executeCommand", {"command": "none", "arguments": ["private"]})
    assert "private" not in caplog.text


# -- cancellation ------------------------------------------------------------------------------


def test_a_request_sees_the_document_as_of_when_it_was_sent(
    process: subprocess.Popen[bytes],
) -> None:
    """Even if a change to the document arrives in the same packet."""
    client = Client.of(process)
    client.hello()
    uri = "file:///a.py"
    document = {"uri": uri, "languageId": "python", "version": 1, "text": "old"}
    change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": "new"}]}
    messages = [
        {"method": "textDocument/didOpen", "params": {"textDocument": document}},
        {"id": 70, "method": ASYNC_STATES, "params": {"uri": uri}},
        {"method": "textDocument/didChange", "params": change},
        {"id": 71, "method": ASYNC_STATES, "params": {"uri": uri}},
    ]
    client.raw(
        b"".join(framed(json.dumps({"jsonrpc": "2.0"} | message).encode()) for message in messages)
    )
    assert client.answer(70)["result"] == {"text": "old", "version": 1}
    assert client.answer(71)["result"] == {"text": "new", "version": 2}


@pytest.mark.parametrize(
    ("method", "params"),
    [("test/wait", {}), ("workspace/executeCommand", {"command": "wait"})],
)
def test_cancelling_responds_at_once_and_stops_the_handler(
    process: subprocess.Popen[bytes], method: str, params: Any
) -> None:
    client = Client.of(process)
    client.hello()
    request = client.begin(method, params)
    client.wait_for("test/waiting")
    client.notify("$/cancelRequest", {"id": request})
    client.notify("$/cancelRequest", {"id": request})
    assert client.answer(request)["error"]["code"] == -32800
    client.wait_for("test/stopped")
    assert client.ask("shutdown") is None
    assert not client.doubles


def test_a_used_id_is_refused_and_shutdown_cancels_running_requests() -> None:
    async def main() -> None:
        direct = Direct("utf-16")
        request = {"jsonrpc": "2.0", "id": "x", "method": "test/wait", "params": {}}
        assert direct.send(request) == []
        (refused,) = direct.send(request)
        assert refused["error"]["code"] == -32600 and refused["id"] == "x"
        answers = direct.send({"jsonrpc": "2.0", "id": 0, "method": "shutdown"})
        assert [each["id"] for each in answers] == ["x", 0]
        assert answers[0]["error"]["code"] == -32800
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        direct.server.protocol.close()

    asyncio.run(main())


def test_responses_from_the_client_resolve_our_requests() -> None:
    direct = Direct("utf-16")
    future = direct.server.protocol.send_request("test/question", {})
    identity = direct.sent[-1]["id"]
    assert direct.send({"jsonrpc": "2.0", "id": "other", "result": 1}) == []
    assert direct.send({"jsonrpc": "2.0", "id": identity, "result": {"a": 1}}) == []
    assert future.result(0) == {"a": 1}
    assert direct.send({"jsonrpc": "2.0", "id": identity, "result": 2}) == []
    failing = direct.server.protocol.send_request("test/question", {})
    error = {"code": -32601, "message": "no"}
    direct.send({"jsonrpc": "2.0", "id": direct.sent[-1]["id"], "error": error})
    assert "no" in str(failing.exception(0))
    waiting = direct.server.protocol.send_request("test/question", {})
    direct.server.protocol.close()
    assert waiting.cancelled()


# -- after the client disconnected -------------------------------------------------------------


def test_late_responses_and_requests_after_closing_are_harmless() -> None:
    direct = Direct("utf-16")
    future = direct.server.protocol.send_request("test/question", {})
    identity = direct.sent[-1]["id"]
    future.cancel()  # such as after a timeout
    assert direct.send({"jsonrpc": "2.0", "id": identity, "result": 1}) == []
    direct.server.protocol.close()
    assert direct.server.protocol.send_request("test/question", {}).cancelled()


def test_finished_handlers_are_forgotten() -> None:
    """pygls 2.1 keeps the future of every notification."""

    async def main() -> None:
        direct = Direct("utf-16")
        direct.open("file:///a.py", "text")
        direct.ask(STATES, {"uri": "file:///a.py"})
        direct.notify("initialized", {})
        direct.send({"jsonrpc": "2.0", "id": 7, "method": "test/wait", "params": {}})
        assert len(direct.server.protocol._request_futures) == 1
        direct.notify("$/cancelRequest", {"id": 7})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not direct.server.protocol._request_futures

    asyncio.run(main())
