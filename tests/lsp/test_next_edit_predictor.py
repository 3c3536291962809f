"""The next-edit predictor: documents may change while the model is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.records import Done, Request
from lsp_server.next_edit import predict as predict_module
from lsp_server.next_edit.candidate import Candidate
from lsp_server.next_edit.edit_history import RecentEdit
from lsp_server.next_edit.predict import NextEdit, NextEditPredictor
from lsp_server.next_edit.rules import find_candidates
from lsp_server.protocol.text_sync import OpenDocument, OpenDocuments
from tests.support.edited_files import OPEN, A, Step, edited

ROWS = {A: "x = int(row[0])\ny = int(row[1])\nz = int(row[2])\n"}
REPEATED: Step = (A, "int", "float")


class Session:
    """As much of a session as the predictor uses. The model answers what is predicted, after
    `meanwhile` has run."""

    def __init__(
        self,
        meanwhile: Callable[[OpenDocuments], object] = id,
        texts: dict[str, str] = ROWS,
        step: Step = REPEATED,
        language: str = "python",
    ) -> None:
        edits, texts, self.uri, self.offset = edited(texts, step)
        self.documents = OpenDocuments()
        for uri, text in texts.items():
            self.documents.open(uri, language, 1, text)
        self.edits = edits
        self.meanwhile = meanwhile
        self.asked: list[str] = []  # the selected lines

    def recent_edits(self) -> tuple[list[RecentEdit], dict[str, str]]:
        return self.edits, {one.uri: one.text.text for one in self.documents}

    def is_current(self, document: OpenDocument) -> bool:
        return document.uri in self.documents and self.documents.get(document.uri) is document

    async def ask(self, request: Request, slot: tuple[str, str]) -> Done:
        assert request.selection
        self.asked.append(request.text[slice(*request.selection)].strip())
        await asyncio.sleep(0)
        self.meanwhile(self.documents)
        return Done("stop", request.predictions[0], matched="\n```")


def predict(
    session: Any, predictor: NextEditPredictor | None = None, sure: bool = False
) -> NextEdit:
    predictor = predictor or NextEditPredictor()

    async def found() -> NextEdit:
        places = await predictor.candidates(session, session.uri, session.offset)
        return await predictor.predict(session, places, sure=sure)

    return asyncio.run(found())


def test_the_best_candidate_is_offered_and_asked_about_once() -> None:
    session, predictor = Session(), NextEditPredictor()
    for _ in range(2):
        found = predict(session, predictor)
        assert found.new_lines == "y = float(row[1])"
        assert found.document and found.document.uri == A
        (change,) = found.changes()
        old = found.document.text.text
        new = old[: change.start] + change.text + old[change.stop :]
        assert new == old.replace("y = int", "y = float")
    assert session.asked == ["y = int(row[1])"]


def test_a_rename_is_written_without_a_model() -> None:
    session = Session(texts=OPEN, step=(A, "LIMIT = 3", "MOST = 3"))
    found = predict(session)
    assert found == predict(session, sure=True), "which is sure"
    assert found.new_lines.strip() == "if result > MOST:"
    assert found.document and found.document.uri == A and session.asked == []


def test_only_what_is_sure_is_offered_without_asking_the_model() -> None:
    session = Session()
    assert predict(session, sure=True).document is None and session.asked == []


@pytest.mark.parametrize("uri", ["untitled:1", "vscode-notebook-cell:/a.ipynb#W0", "file:///w/run"])
def test_the_client_names_the_language(uri: str) -> None:
    text = "def f(items):\n    kept = 'items'\n    return items\n"
    for language, changed in (("python", "    return rows"), ("plaintext", "    kept = 'rows'")):
        session = Session(texts={uri: text}, step=(uri, "items", "rows"), language=language)
        assert predict(session).new_lines == changed


def test_no_candidate_of_a_document_that_changed_meanwhile_is_used() -> None:
    """Its offsets no longer apply: nothing is offered, and no other line of it is asked about."""

    def type_above(documents: OpenDocuments) -> None:
        documents.open(A, "python", 2, "# new\n" + documents.get(A).text.text)

    session = Session(type_above)
    found = predict(session)
    assert found.candidate is None and found.document is None
    assert session.asked == ["y = int(row[1])"]


def test_a_document_may_be_closed_meanwhile() -> None:
    session = Session(lambda documents: documents.close(A) if A in documents else None)
    found = predict(session)
    assert found.candidate is None and found.document is None


def test_places_are_searched_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows share the loop."""
    threads = []

    def recorded(*args: Any) -> list[Candidate]:
        threads.append(threading.current_thread())
        return find_candidates(*args)

    monkeypatch.setattr(predict_module, "find_candidates", recorded)
    assert predict(Session()).candidate
    assert threads and threading.main_thread() not in threads


def test_a_document_that_changed_before_the_model_is_asked_is_left_out() -> None:
    session: Any = Session()
    predictor = NextEditPredictor()

    async def found() -> NextEdit:
        places = await predictor.candidates(session, session.uri, session.offset)
        session.documents.open(A, "python", 2, "# new\n" + session.documents.get(A).text.text)
        return await predictor.predict(session, [one for one in places if one[0].uri == A])

    assert asyncio.run(found()).document is None
    assert session.asked == []
