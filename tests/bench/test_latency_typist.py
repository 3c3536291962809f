"""The typist of `python -m bench latency`: recordings, replays on a clock that only sleeping moves,
figures against naive ones, and what is sent to a language server.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.common.tasks import source
from bench.latency import record
from bench.latency.language_server import LanguageServer
from bench.latency.places import SEED, STROKE
from bench.latency.sessions import (
    SESSIONS,
    Part,
    Session,
    Step,
    read_session,
    read_sessions,
    sample_workspace,
)
from bench.latency.typist import (
    CANCELLED_S,
    READING_S,
    Answer,
    Asked,
    Clock,
    Press,
    Replay,
    agreeing_lines,
    replay,
    row,
    share,
    summary,
    waits,
)
from lsp_server.protocol.positions import Text

EVERY = read_sessions(0)
sessions = pytest.mark.parametrize("session", EVERY, ids=lambda one: one.name)


# -- recordings --------------------------------------------------------------------------------


def test_there_are_two_sessions_of_each_language_and_few_have_all_languages() -> None:
    assert Counter(Path(one.file).suffix for one in EVERY) == dict.fromkeys(
        (".py", ".ts", ".go", ".rs", ".c"), 2
    )
    assert len({Path(one.file).suffix for one in read_sessions(5)}) == 5
    assert len({one.file for one in EVERY}) == len(EVERY)


@sessions
def test_a_session_types_the_file_a_key_at_a_time(session: Session) -> None:
    assert session.whole == source(session.file)
    for before, step in pairwise([Step(-1, "", 0.0, True), *session.steps]):
        text, start = session.text(step.part, step.typed), session.start(step.part)
        assert text.startswith(step.typed, start)
        assert text[:start] + text[start + len(step.typed) :] == session.text(step.part, "")
        if step.part != before.part:
            assert step.part == before.part + 1 and not step.typed
        elif step.is_pause:
            assert step.typed == before.typed
        else:
            short, long = sorted((before.typed, step.typed), key=len)
            assert long.startswith(short) and STROKE.fullmatch(long[len(short) :])
    last = session.steps[-1]
    assert session.text(last.part, last.typed) == session.whole
    assert any(step.is_pause and step.typed for step in session.steps)


def test_there_are_slips_and_they_are_corrected() -> None:
    erased = 0
    for session in EVERY:
        for before, step in pairwise(session.steps):
            if step.part == before.part and len(step.typed) < len(before.typed):
                assert not session.follows(before.part, before.typed)
                erased += 1
    assert erased > len(EVERY)


def test_the_recordings_are_what_the_script_makes() -> None:
    for language, files in record.FILES.items():
        for number, file in enumerate(files, 1):
            made = record.record(file, random.Random(f"{SEED} {file}"))
            there = json.loads((SESSIONS / f"{number}-{language}.json").read_text("utf-8"))
            assert untimed(made) == untimed(there) and json.loads(record.dumped(made)) == made


def untimed(made: dict[str, Any]) -> dict[str, Any]:
    """Leave out the times between keys, whose last digit may be another elsewhere."""
    parts = [
        {**part, "strokes": [{**one, "ms": len(one.get("ms", ()))} for one in part["strokes"]]}
        for part in made["parts"]
    ]
    return {**made, "parts": parts}


@sessions
def test_keys_follow_the_speed_and_pauses_do_not(session: Session) -> None:
    def seconds(words: float, pauses: bool) -> float:
        return sum(one.wait(words) for one in session.steps if one.is_pause == pauses)

    keys = sum(not one.is_pause for one in session.steps)
    assert seconds(60, False) / keys == pytest.approx(0.2, rel=0.15)
    assert seconds(30, False) == pytest.approx(3 * seconds(90, False))
    assert seconds(30, True) == seconds(90, True)


def test_a_recording_of_other_text_is_refused(tmp_path: Path) -> None:
    there = json.loads(next(SESSIONS.glob("*.json")).read_text("utf-8"))
    there["parts"][1]["start"] += 1
    (tmp_path / "other.json").write_text(json.dumps(there), "utf-8")
    with pytest.raises(ValueError, match=r"other\.json, part 1"):
        read_session(tmp_path / "other.json")


def test_the_workspace_has_no_file_with_what_is_typed() -> None:
    with sample_workspace() as folder:
        files = [one.read_text("utf-8") for one in folder.rglob("*") if one.is_file()]
        for session in EVERY:
            assert (folder / session.file).read_text("utf-8") == session.text(0, "")
            longest = max((one.text for one in session.parts), key=len)
            assert not any(longest in text for text in files)


# -- replays -----------------------------------------------------------------------------------


class FakeClock:
    def __init__(self) -> None:
        self.time = 0.0

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.time, self.sleep)


class Stub:
    """Offers what `offer` says of text and cursor, `delay` seconds later.

    A request that the next change overtakes ends `cancelling` seconds after that.
    """

    def __init__(
        self,
        clock: FakeClock,
        offer: Callable[[str, int], str],
        delay: float = 0.0,
        cancelling: float = 0.0,
    ) -> None:
        self.clock, self.offer, self.delay, self.cancelling = clock, offer, delay, cancelling
        self.text, self.presses, self.overtaken = "", 0, list[float]()

    def open(self, file: str, text: str) -> None:
        self.text = text

    def move(self, offset: int) -> None:
        self.overtaken += [self.clock.time] * (len(self.overtaken) < self.presses)

    def press(self, start: int, stop: int, new: str) -> Asked:
        self.move(start)
        self.text = self.text[:start] + new + self.text[stop:]
        offered, number, at = self.offer(self.text, start + len(new)), self.presses, self.clock.time
        self.presses += 1

        def asked(seconds: float) -> Answer | None:
            after = [*self.overtaken[number : number + 1], float("inf")][0]
            end = at + self.delay
            answer = Answer(offered, end, end)
            if end > after:
                answer = Answer("", after + self.cancelling, after + self.cancelling)
            return answer if answer.at <= self.clock.time + seconds else None

        return asked

    def leave(self) -> list[float]:
        return [0.001, 0.004]

    def cpu_seconds(self) -> float:
        return 2 * self.clock.time


def rest_of(session: Session) -> Callable[[str, int], str]:
    """Offer the rest of the part in which the cursor is."""

    def offer(text: str, offset: int) -> str:
        for number in range(len(session.parts)):
            start = session.start(number)
            if session.text(number, text[start:offset]) == text:
                return session.follows(number, text[start:offset])
        return ""

    return offer


@sessions
def test_without_suggestions_every_key_is_pressed_when_it_is_due(session: Session) -> None:
    clock = FakeClock()
    stub = Stub(clock, lambda text, offset: "")
    made = replay(session, 45, stub, clock.clock)
    due, at = [], 0.0
    for step in session.steps:
        at += step.wait(45)
        due += [at] * (not step.is_pause)
    assert stub.text == session.whole and made.taken == 0
    assert [one.at for one in made.presses] == pytest.approx(due)
    assert made.seconds == pytest.approx(at) and made.cpu_seconds == pytest.approx(2 * at)
    assert made.late == pytest.approx(0, abs=1e-9)


@sessions
def test_right_suggestions_are_taken_in_pauses(session: Session) -> None:
    clock = FakeClock()
    stub = Stub(clock, rest_of(session))
    made = replay(session, 60, stub, clock.clock)
    found = row(session, 60, made)
    assert stub.text == session.whole
    typed = sum(len(one.new) for one in made.presses) - made.taken
    assert made.taken > 0 and typed >= session.characters - made.taken
    assert found["agrees"] == 1 and found["in_time_or_cancelled"] == 1
    assert found["whole_s_p90"] == 0 and found["cancelled_in_time"] is None
    clock = FakeClock()
    alone = replay(session, 60, Stub(clock, lambda text, offset: ""), clock.clock)
    assert len(made.presses) < len(alone.presses) and made.seconds < alone.seconds


@given(st.data())
def test_the_text_is_the_files_whatever_is_offered(data: st.DataObject) -> None:
    session = data.draw(st.sampled_from(EVERY))
    right = rest_of(session)

    def offer(text: str, offset: int) -> str:
        rest = right(text, offset)
        cut = chance.randint(0, len(rest))
        return chance.choice(["", rest, rest[:cut], rest[:cut] + "x", rest + "\nx", "\n" + rest])

    chance = random.Random(data.draw(st.integers(0, 99)))
    clock, delay = FakeClock(), data.draw(st.floats(0, 1.5))
    stub = Stub(clock, offer, delay, data.draw(st.floats(0, 0.1)))
    made = replay(session, data.draw(st.sampled_from((30, 60, 90))), stub, clock.clock)
    assert stub.text == session.whole
    assert 0 <= made.taken <= session.characters
    assert all(one.at < one.until for one in made.presses)
    assert all(before.until <= one.at for before, one in pairwise(made.presses))


def tiny(*texts: str, pause: float = 1.0) -> Session:
    """Make a session that types texts into a file of lines, a pause at the end of each."""
    steps, whole, parts = [], "", []
    for number, text in enumerate(texts):
        steps.append(Step(number, "", 0.0, True))
        steps += [Step(number, text[: end + 1], 0.5, False) for end in range(len(text))]
        steps.append(Step(number, text, pause, True))
        parts.append(Part(len(whole), text))
        whole += f"{text}\n"
    return Session("tiny", "tiny.py", whole, tuple(parts), tuple(steps))


@pytest.mark.parametrize(
    ("delay", "taken"), [(0.0, 3), (0.5 - READING_S, 3), (0.51 - READING_S, 0), (0.6, 0)]
)
def test_a_suggestion_is_taken_once_it_was_on_the_screen_for_a_while(
    delay: float, taken: int
) -> None:
    session = tiny("abcd")
    look = Step(0, "a", 0.5, True)
    steps = (*session.steps[:2], look, *session.steps[2:])
    clock = FakeClock()
    stub = Stub(clock, lambda text, offset: "bcd" if offset == 1 else "", delay)
    made = replay(replace(session, steps=steps), 60, stub, clock.clock)
    assert made.taken == taken and len(made.presses) == 4 - max(0, taken - 1)


@given(st.text("ab\n", max_size=6), st.text("ab\n", max_size=8))
def test_what_is_taken_are_whole_lines_that_come_next(offered: str, follows: str) -> None:
    found = agreeing_lines(offered, follows)
    fitting = [
        end
        for end in range(len(offered) + 1)
        if follows.startswith(offered[:end])
        and (end == len(offered) or (offered[end] == "\n" and follows[end : end + 1] in ("", "\n")))
    ]
    assert found == offered[: max(fitting, default=0)]


# -- figures -----------------------------------------------------------------------------------

# Seconds until the next key and until the answer, None if it is cancelled; offered or not
KEYS = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.integers(1, 30), st.booleans()),
    min_size=1,
    max_size=8,
)


def pressed(keys: list[tuple[int, int | None, bool]], part: int = 0) -> list[Press]:
    presses, now = [], 100.0 * part
    for wait, answer, offered in keys:
        end = now + wait + 0.05 if answer is None else now + answer
        text = "x = 1" if offered and answer is not None else ""
        answered = Answer(text, end, end)
        presses.append(Press(part, "y", "x = 1\n", now, now + wait, answered))
        now += wait
    return presses


@given(KEYS, KEYS)
def test_the_wait_ends_with_the_first_suggestion_that_an_editor_shows(
    one: list[tuple[int, int | None, bool]], other: list[tuple[int, int | None, bool]]
) -> None:
    expected: list[float | None] = []
    for part, keys in enumerate((one, other)):
        presses = pressed(keys, part)
        times = [end.answer.at for end in presses if end.answer and end.shown]
        for press in presses:
            later = [time for time in times if time > press.at]
            is_empty = press.ended_in_time and not press.shown
            expected.append(None if is_empty or not later else min(later) - press.at)
    found = waits(pressed(one) + pressed(other, 1), "at")
    assert [value is None for value in found] == [value is None for value in expected]
    assert [value for value in found if value is not None] == pytest.approx(
        [value for value in expected if value is not None]
    )


@given(KEYS)
def test_shares_are_of_all_keys(keys: list[tuple[int, int | None, bool]]) -> None:
    made = Replay(pressed(keys), 3, 30.0, 6.0, 0.002, [0.001, 0.005])
    found = row(tiny("abcdef"), 60, made)
    in_time = [answer is not None and answer <= wait for wait, answer, _ in keys]
    shown = [on_time and key[2] for on_time, key in zip(in_time, keys, strict=True)]
    assert found["shown_before_next"] == share(iter(shown))
    soon = [answer is not None and answer <= wait + CANCELLED_S for wait, answer, _ in keys]
    assert found["in_time_or_cancelled"] == share(iter(soon))
    assert found["agrees"] == (1.0 if any(shown) else None)
    assert found["accepted_share"] == 0.5 and found["cpu_s_per_minute"] == pytest.approx(12)
    assert found["own_request_ms"] == pytest.approx(5) and found["late_key_ms"] == pytest.approx(2)


def test_streaming_shows_in_the_first_characters() -> None:
    press = Press(0, "y", "x", 1.0, 2.0, Answer("x", 1.25, 1.5))
    found = row(tiny("abc"), 60, Replay([press], 0, 1.0, 1.0, 0.0, []))
    assert (found["first_s_p50"], found["whole_s_p50"]) == (0.25, 0.5)
    assert found["own_request_ms"] is None


@pytest.mark.parametrize(
    ("new", "then", "continues"),
    [("x", " = 1", True), ("x", " = 1\ny", True), ("x", " =", True), ("y", " = 1", False)],
)
def test_typing_on_in_a_suggestion_is_no_new_one(new: str, then: str, continues: bool) -> None:
    before = Press(0, "\n", "", 0.0, 1.0, Answer("x = 1", 0.5, 0.5))
    assert Press(0, new, "", 1.0, 2.0, Answer(then, 1.5, 1.5)).continues(before) is continues
    assert not Press(1, new, "", 1.0, 2.0, Answer(then, 1.5, 1.5)).continues(before)
    late = Press(0, new, "", 1.0, 2.0, Answer(then, 2.5, 2.5))
    assert not late.continues(before)
    found = row(tiny("abc"), 60, Replay([before, late], 0, 2.0, 1.0, 0.0, []))
    assert found["new_whole_s_p50"] == 0.5


def test_a_summary_has_medians_over_sessions_and_the_longest_stalls() -> None:
    rows = [
        row(tiny("abcdef"), 60, Replay(pressed([(9, 2, True)]), taken, 60.0, cpu, 0.0, [cpu]))
        for taken, cpu in ((1, 1.0), (2, 3.0), (3, 2.0))
    ]
    found = summary(rows)
    assert found["accepted_characters"][0] == 2 and found["cpu_s_per_minute"] == [2.0, 1.0, 3.0]
    assert found["cpu_s_per_accepted_character"][0] == 1.0
    assert found["own_request_ms_max"] == 3000 and found["cancelled_in_time"] is None
    nothing = [{**one, "accepted_characters": 0} for one in rows]
    assert summary(nothing)["cpu_s_per_accepted_character"] is None


# -- a language server -------------------------------------------------------------------------


class FakeClient:
    """A client whose server answers when it is told to; it applies the changes it is sent."""

    def __init__(self) -> None:
        self.text, self.sent = Text.of(""), list[tuple[str, Any]]()
        self.asked: list[Any] = []
        self.notifications: list[dict[str, Any]] = []

    def open(self, uri: str, text: str, version: int, language: str) -> None:
        self.text = Text.of(text)
        self.sent.append(("open", language))

    def change(self, uri: str, version: int, change: dict[str, Any]) -> None:
        ends = (change["range"]["start"], change["range"]["end"])
        start, stop = (self.text.offset(end["line"], end["character"], "utf-16") for end in ends)
        self.text = self.text.change(start, stop, change["text"])

    def notify(self, method: str, params: Any) -> None:
        self.sent.append((method, params["position"]))

    def complete(self, uri: str, position: dict[str, int], token: str) -> Any:
        self.asked.append(asked(token, position))
        return self.asked[-1]

    def begin(self, method: str, params: Any) -> Any:
        self.sent.append((method, params["range"]["start"]))
        return asked("", {}, ends=True)

    def cancel(self, one: Any) -> None:
        one.cancelled, one.over = True, True

    def close(self, uri: str) -> None:
        self.sent.append(("close", None))


def asked(token: str, position: dict[str, int], ends: bool = False) -> Any:
    one = SimpleNamespace(token=token, position=position, cancelled=False, over=ends, at=7.0)
    one.result, one.seconds, one.wait = {"items": []}, 0.5, lambda: one
    one.done = SimpleNamespace(wait=lambda seconds: one.over, is_set=lambda: one.over)
    return one


@sessions
def test_the_server_gets_the_text_the_cursor_and_a_request_with_each_key(session: Session) -> None:
    client, clock = FakeClient(), FakeClock()
    served = SimpleNamespace(cpu_seconds=lambda: 0.0)
    program = LanguageServer(served, client, Path("/files").absolute())  # type: ignore[arg-type]
    over = program.press

    def press(start: int, stop: int, new: str) -> Asked:
        waits = over(start, stop, new)
        assert client.text.position(start + len(new), "utf-16") == (
            client.asked[-1].position["line"], client.asked[-1].position["character"],
        )  # fmt: skip
        return lambda seconds: waits(seconds) or Answer("", clock.time, clock.time)

    program.press = press  # type: ignore[method-assign]
    made = replay(session, 60, program, clock.clock)
    assert client.text.text == session.whole
    assert len(client.asked) == len(made.presses)
    assert all(one.cancelled for one in client.asked[:-1]) and not client.asked[-1].cancelled
    sent = Counter(name for name, _ in client.sent)
    assert sent["textDocument/codeAction"] == len(made.own) == len(made.presses)
    assert sent["draftline/cursor"] == len(session.parts) and sent["close"] == 1


def test_an_answer_is_the_first_item_and_its_first_characters_may_be_streamed() -> None:
    client = FakeClient()
    served = SimpleNamespace(cpu_seconds=lambda: 0.0)
    program = LanguageServer(served, client, Path("/files").absolute())  # type: ignore[arg-type]
    program.open("a.py", "x\n")
    asks = program.press(1, 1, " ")
    assert asks(0.0) is None
    client.asked[0].over = True
    assert asks(0.0) == Answer("", 7.0, 7.0)
    client.asked[0].result = {"items": [{"insertText": "= 1"}, {"insertText": "= 2"}]}
    assert asks(0.0) == Answer("= 1", 7.0, 7.0)
    for token, at in (("other", 3.0), (client.asked[0].token, 5.0), (client.asked[0].token, 6.0)):
        client.notifications.append({"method": "$/progress", "params": {"token": token}, "at": at})
    assert asks(0.0) == Answer("= 1", 5.0, 7.0)
