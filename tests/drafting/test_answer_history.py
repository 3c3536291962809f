"""Answer history: recent answers are kept per client, within limits, until they are forgotten."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.answer_history import MAX_HISTORY_TOKENS, MAX_TABLES, AnswerHistory

answers = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["x.py", "y.py", ""]),
        st.integers(0, 3 * MAX_HISTORY_TOKENS // 2),
    ),
    max_size=80,
)


@given(answers, st.sampled_from(["x.py", "", None]), st.sampled_from(["a", None]))
def test_history_is_bounded_and_forgets(
    added: list[tuple[str, str, int]], path: str | None, client: str | None
) -> None:
    history = AnswerHistory()
    kept: list[tuple[str, str, list[int]]] = []
    for number, (client_id, file, size) in enumerate(added):
        history.add(client_id, file, [number] * size)
        kept += [(client_id, file, [number] * min(size, MAX_HISTORY_TOKENS))] if size else []
    history.forget(path, client)
    for client_id in "ab":
        found = history.of(client_id)
        expected = [
            tokens
            for owner, file, tokens in kept[-64:]
            if owner == client_id and file != path and owner != client
        ]
        assert sum(map(len, found)) <= MAX_HISTORY_TOKENS
        assert [tokens for tokens in expected if tokens in found] == found, "in order, no others"
        assert found[-1:] == expected[-1:], "the newest answer is always kept"
    assert history.of("c") == []


def test_history_keeps_the_end_of_a_long_answer() -> None:
    history = AnswerHistory()
    history.add("a", "x.py", list(range(MAX_HISTORY_TOKENS + 5)))
    assert history.of("a") == [list(range(5, MAX_HISTORY_TOKENS + 5))]
    history.add("a", "x.py", [1])
    assert history.of("a") == [[1]]
    history.forget(client="a")
    assert history.of("a") == []


def test_answers_for_deleted_files_are_not_returned(tmp_path: Path) -> None:
    history, file = AnswerHistory(), tmp_path / "a.py"
    file.write_text("1\n", "utf-8")
    history.add("one", str(file), [1, 2])
    history.add("one", "never saved.py", [3])
    assert history.of("one") == [[1, 2], [3]]
    file.unlink()
    assert history.of("one") == [[3]]
    history.clear()
    assert history.of("one") == []


def test_recycling_tables_belong_to_a_client_until_forgotten() -> None:
    history = AnswerHistory(9)
    first, second = history.recycling("one"), history.recycling("two")
    assert first is history.recycling("one") and first is not second
    assert first.table.shape == (9, 8) and (first.table == -1).all()
    history.forget("x.py")
    assert history.recycling("one") is first
    history.forget(client="one")
    assert history.recycling("one") is not first and history.recycling("two") is second
    for n in range(MAX_TABLES):
        history.recycling(str(n))
    assert history.recycling("0") is history.recycling("0")
    assert history.recycling("two") is not second, "the least recently used table is evicted"
    history.clear()
    assert history.recycling("0").table.max() == -1
