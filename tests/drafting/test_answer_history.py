"""Memory: what was written is kept within bounds, for its client, until it is forgotten."""

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
def test_memory_is_bounded_and_forgets(
    written: list[tuple[str, str, int]], path: str | None, client: str | None
) -> None:
    memory = AnswerHistory()
    kept: list[tuple[str, str, list[int]]] = []
    for number, (who, where, size) in enumerate(written):
        memory.add(who, where, [number] * size)
        kept += [(who, where, [number] * min(size, MAX_HISTORY_TOKENS))] if size else []
    memory.forget(path, client)
    for who in "ab":
        found = memory.of(who)
        mine = [
            tokens
            for name, where, tokens in kept[-64:]
            if name == who and where != path and name != client
        ]
        assert sum(map(len, found)) <= MAX_HISTORY_TOKENS
        assert [one for one in mine if one in found] == found, "in order, and nothing else"
        assert found[-1:] == mine[-1:], "the newest is always there"
    assert memory.of("c") == []


def test_memory_keeps_the_end_of_a_long_answer() -> None:
    memory = AnswerHistory()
    memory.add("a", "x.py", list(range(MAX_HISTORY_TOKENS + 5)))
    assert memory.of("a") == [list(range(5, MAX_HISTORY_TOKENS + 5))]
    memory.add("a", "x.py", [1])
    assert memory.of("a") == [[1]]
    memory.forget(client="a")
    assert memory.of("a") == []


def test_what_was_written_for_a_file_that_is_gone_is_not_offered(tmp_path: Path) -> None:
    memory, file = AnswerHistory(), tmp_path / "a.py"
    file.write_text("1\n", "utf-8")
    memory.add("one", str(file), [1, 2])
    memory.add("one", "never saved.py", [3])
    assert memory.of("one") == [[1, 2], [3]]
    file.unlink()
    assert memory.of("one") == [[3]]
    memory.clear()
    assert memory.of("one") == []


def test_what_a_model_held_likely_is_its_clients_until_it_is_forgotten() -> None:
    memory = AnswerHistory(9)
    one, two = memory.recycling("one"), memory.recycling("two")
    assert one is memory.recycling("one") and one is not two
    assert one.table.shape == (9, 8) and (one.table == -1).all()
    memory.forget("x.py")
    assert memory.recycling("one") is one
    memory.forget(client="one")
    assert memory.recycling("one") is not one and memory.recycling("two") is two
    for n in range(MAX_TABLES):
        memory.recycling(str(n))
    assert memory.recycling("0") is memory.recycling("0")
    assert memory.recycling("two") is not two, "the one longest unused made room"
    memory.clear()
    assert memory.recycling("0").table.max() == -1
