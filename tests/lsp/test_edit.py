"""Edits: the answer is aligned in a thread, and refused if the document has changed by then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from engine.editing import edits, outcome
from engine.records import Done, Request
from lsp_server.editing import edit as editing
from lsp_server.protocol.messages import EditParams, Identifier
from lsp_server.protocol.protocol import Server
from lsp_server.protocol.text_sync import Documents
from lsp_server.settings import Settings

URI = "file:///app.py"


def run(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Documents], object]
) -> editing.EditResult:
    """Edit "x=1" into "x=9"; `meanwhile` runs while the answer is aligned."""
    server = Server("test", "1")
    documents = server.documents
    documents.open(URI, "python", 1, "x=1\n")

    async def engine(slot: tuple[str, str]) -> None:
        return None

    async def ask(request: Request, *rest: Any) -> Done:
        return Done("stop", "x=9", matched="\n```")

    def judge(request: Request, done: Done, checks: bool) -> outcome.Outcome:
        assert threading.current_thread() is not threading.main_thread()
        meanwhile(documents)
        return outcome.judge(request, done, checks)

    monkeypatch.setattr(editing, "judge", judge)
    shared = SimpleNamespace(loaded=object(), model="a model")
    session: Any = SimpleNamespace(
        documents=documents, shared_engine=shared, engine=engine, ask=ask, settings=Settings()
    )
    params = EditParams(Identifier(URI, 1), "make it nine")
    return asyncio.run(editing.edit(server, session, params))


def test_the_result_has_the_new_text_and_its_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, lambda documents: None)
    assert result.outcome.text == "x=9\n"
    assert result.changes == [edits.Change(2, 3, "9")]


def test_a_document_that_changes_while_the_answer_is_aligned_keeps_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(JsonRpcException, match="the text changed"):
        run(monkeypatch, lambda documents: documents.open(URI, "python", 2, "y=1\n"))


def test_a_change_that_is_undone_meanwhile_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result names the version that is open now."""
    result = run(monkeypatch, lambda documents: documents.open(URI, "python", 3, "x=1\n"))
    assert result.document.version == 3
