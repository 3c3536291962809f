"""A real model's answers: the same in any session, and with and without speculation."""

from __future__ import annotations

import pytest

from bench.common.engine_thread import in_engine_thread
from engine import Config, Engine
from engine.rag.answer import Turn, cite_answer, prepare
from index.documents.documents import Documents

LEASE = b"""# Lease

The rent is due on the third day of each month. The tenant pays a deposit of two monthly rents.

## Keys

The tenant receives 3 keys to the flat and 1 key to the cellar. Lost keys are replaced at the
tenant's cost.

## Pets

Cats are allowed. Dogs need the landlord's written consent.
"""
QUESTIONS = ["When is the rent due?", "How many keys to the flat are there?", "Are dogs allowed?"]


@pytest.mark.full
def test_an_answer_depends_on_its_question_alone() -> None:
    earlier: list[Turn] = []
    with Documents() as documents, Engine(Config(model="qwen2.5-coder-0.5b")) as engine:
        ids = [documents.add_data("lease.md", LEASE).id]
        for question in [*QUESTIONS, "And cats?"]:
            found = prepare(question, documents, ids, engine, engine.context, earlier=earlier)
            assert found.request is not None
            later = engine.submit(found.request).result()
            in_engine_thread(engine, engine.forget)
            fresh_turns = [Turn(QUESTIONS[-1], "")] if found.rewritten else []
            alone = prepare(question, documents, ids, engine, engine.context, earlier=fresh_turns)
            assert alone.request == found.request
            fresh = engine.submit(alone.request, speculation=False).result()
            assert (later.text, later.reason) == (fresh.text, fresh.reason)
            answer = cite_answer(found, later.text)
            assert answer.evidence and answer.evidence[0].name == "lease.md"
            earlier.append(Turn(question, answer.text))
