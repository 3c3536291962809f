"""Edits: the answer is aligned in a thread, and moved or refused if the document has changed by
then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from engine.editing import dialogue, edits, outcome
from engine.records import Done, Request
from lsp_server.editing import edit as editing
from lsp_server.protocol.messages import EditParams, Identifier
from lsp_server.protocol.protocol import Server
from lsp_server.session import Session

URI = "file:///app.py"


def run(
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Session], object],
    instruction: str = "make it nine",
) -> editing.EditResult:
    """Edit "x=1" into "x=9", or by rule; `meanwhile` runs while the answer is made or aligned."""
    server = Server("test", "1")
    documents = server.documents

    async def ask(request: Request, *rest: Any) -> Done:
        return Done("stop", "x=9", matched="\n```")

    judged, ruled = dialogue.judge, dialogue.by_rule

    def judge(request: Request, done: Done, checks: bool) -> outcome.Outcome:
        assert threading.current_thread() is not threading.main_thread()
        meanwhile(session)
        return judged(request, done, checks)

    def by_rule(request: Request) -> outcome.Outcome | None:
        if found := ruled(request):
            meanwhile(session)
        return found

    monkeypatch.setattr(dialogue, "judge", judge)
    monkeypatch.setattr(dialogue, "by_rule", by_rule)
    shared: Any = SimpleNamespace(
        loaded=object(), model="a model", configure=lambda *wish: None, elsewhere=None
    )
    session = Session(shared, documents, lambda method, params: None, "client")
    session.configure()
    monkeypatch.setattr(session, "ask", ask)
    monkeypatch.setattr(
        session, "index", SimpleNamespace(on_change=lambda document: None, roots=[])
    )
    session.on_open(documents.open(URI, "python", 1, "x=1\n"))
    params = EditParams(Identifier(URI, 1), instruction)
    return asyncio.run(editing.edit(server, session, params))


def opens(version: int, text: str) -> Callable[[Session], None]:
    return lambda session: session.on_open(session.documents.open(URI, "python", version, text))


def test_the_result_has_the_new_text_and_its_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, lambda session: None)
    assert result.outcome.text == "x=9\n"
    assert result.changes == [edits.Change(2, 3, "9")]


def test_a_document_that_changes_while_the_answer_is_aligned_keeps_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(JsonRpcException, match="the text changed"):
        run(monkeypatch, opens(2, "y=1\n"))


def test_a_change_that_is_undone_meanwhile_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result names the version that is open now."""
    result = run(monkeypatch, opens(3, "x=1\n"))
    assert result.document.version == 3


def test_an_edit_is_moved_with_what_was_typed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, opens(2, "# mine\nx=1\n"))
    assert result.document.version == 2
    assert result.changes == [edits.Change(9, 10, "9")]


def test_an_edit_by_rule_is_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, opens(2, "# mine\nx=1\n"), "Rename x to y")
    assert result.document.version == 2 and result.stats["rule"]
    assert result.changes == [edits.Change(7, 8, "y")]


@pytest.mark.parametrize("instruction", ["make it nine", "Rename x to y"])
def test_an_edit_is_refused_if_its_document_is_closed_by_then(
    monkeypatch: pytest.MonkeyPatch, instruction: str
) -> None:
    with pytest.raises(JsonRpcException, match="closed, renamed or deleted meanwhile"):
        run(monkeypatch, lambda session: session.documents.close(URI), instruction)
