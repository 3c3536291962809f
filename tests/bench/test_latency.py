"""`python -m bench latency`: figures, the typist and the editor against naive ones, and output."""

from __future__ import annotations

import ast
import json
import socket
import time
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.latency import latency, load, next_edit, typist
from bench.latency import model as latency_model
from bench.latency.latency import TARGETS, targets
from bench.latency.load import Buffer, ChangeTimes, change_cost, document
from bench.latency.lsp_client import ServerError
from bench.latency.model import (
    EDITED_FILE,
    IDLE_CPU_S,
    IDLE_WINDOW_S,
    SELECTED_LINES,
    CancelTimes,
    CpuWatch,
)
from bench.latency.parts import QUICK, cancel_figures
from bench.latency.slow_link import slow_link
from bench.latency.typist import (
    Press,
    bodies,
    intervals,
    position,
    summary,
    until_offered,
    wasted,
)  # fmt: skip
from engine import Config, Engine
from lsp_server.protocol.positions import Text
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model
from tests.support.training import save_small_library

ROOT = Path(__file__).resolve().parents[2]

SOURCES = sorted([*(ROOT / "index").glob("*.py"), EDITED_FILE])


# -- the typist --------------------------------------------------------------------------------


def test_what_is_typed_is_what_was_removed() -> None:
    for path in SOURCES:
        text = path.read_text("utf-8")
        for one in bodies(text, 1):
            typed = "".join(one.strokes())
            assert one.removed[: one.start] + typed + one.removed[one.start :] == text, path
            assert all(len(stroke) == 1 or stroke.startswith("\n") for stroke in one.strokes())


def test_a_body_is_all_of_a_function_behind_its_docstring() -> None:
    text = 'def é(a): return "é" + a\n\n\ndef g():\n    """Says."""\n    x = 1\n    return x\n'
    found = [text[one.start : one.stop] for one in bodies(text, 1)]
    assert found == ['return "é" + a', "x = 1\n    return x"]
    assert ast.parse(text) and bodies(text, 15) == bodies(text, 1)[:0]


@given(st.text("a😋\n", max_size=20), st.data())
def test_positions_are_those_of_the_server(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    found = position(text, offset)
    assert (found["line"], found["character"]) == Text.of(text).position(offset, "utf-16")


@given(st.floats(1, 1000), st.integers(0, 9))
def test_the_typist_keeps_the_speed(speed: float, seed: int) -> None:
    waits = [*islice(intervals(speed, seed), 500)]
    assert mean(waits) == pytest.approx(60 / speed, rel=0.1)
    assert waits == [*islice(intervals(speed, seed), 500)]


# (until the next keystroke, until the answer or None, whether something is offered)
KEYS = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.integers(1, 30), st.booleans()),
    min_size=1,
    max_size=8,
)


def pressed(keys: list[tuple[int, int | None, bool]], stretch: int = 0) -> list[Press]:
    presses, now = [], 100.0 * stretch
    for wait, answer, offered in keys:
        answered = None if answer is None else now + answer
        text = "x = 1" if offered and answered is not None else ""
        presses.append(Press(stretch, now, now + wait, answered, text, "x = 1\n"))
        now += wait
    return presses


@given(KEYS, KEYS)
def test_the_wait_ends_with_the_first_suggestion_that_an_editor_shows(
    one: list[tuple[int, int | None, bool]], other: list[tuple[int, int | None, bool]]
) -> None:
    expected = []
    for number, keys in enumerate((one, other)):
        presses = pressed(keys, number)
        times = []  # at which something is shown: answers to what was not typed over
        for press, after in pairwise([*presses, None]):
            assert press is not None
            late = after is not None and press.answered is not None and press.answered > after.at
            if press.answered is not None and press.offered and not late:
                times.append(press.answered)
        for press in presses:
            nothing = press.answered is not None and press.answered <= press.until
            if nothing and not press.offered:
                continue
            if later := [time for time in times if time > press.at]:
                expected.append(min(later) - press.at)
    assert until_offered(pressed(one) + pressed(other, 1)) == pytest.approx(expected)


@given(KEYS)
def test_shares_are_of_all_keystrokes(keys: list[tuple[int, int | None, bool]]) -> None:
    found = summary(pressed(keys))
    in_time = [answer is not None and answer <= wait for wait, answer, _ in keys]
    assert found["answered_before_next"] == sum(in_time) / len(keys)
    offered = sum(answer is not None and offered for _, answer, offered in keys)
    assert found["offered"] == offered / len(keys)
    assert found["offered_agrees"] == (1.0 if offered else None)
    assert (found["answer_s_p50"] is None) == all(answer is None for _, answer, _ in keys)


@pytest.mark.parametrize(
    ("offered", "follows", "agrees", "next_key"),
    [
        ("x = 1", "x = 1\ny", True, True),
        ("\n    x", "\n    x\n", True, True),
        ("x = 2", "x = 1", False, True),
        ("y", "x", False, False),
        ("", "x", False, False),
        ("x", "", False, False),
    ],
)
def test_a_suggestion_agrees_where_its_line_is_typed_next(
    offered: str, follows: str, agrees: bool, next_key: bool
) -> None:
    press = Press(0, 0.0, 1.0, 0.5, offered, follows)
    assert (press.agrees, press.useful) == (agrees, next_key)


def test_wasted_is_a_share_of_the_model_time_in_between() -> None:
    before = {"answers": {"reading": 1.0, "writing": 1.0, "wasted": 1.0}}
    after = {"answers": {"reading": 2.0, "writing": 4.0, "wasted": 2.0}}
    assert wasted(before, after) == 0.25
    assert wasted(before, before) is None
    assert wasted({"answers": {}}, before) == 0.5


# -- idle, changes, targets --------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(0, 40))
def test_idle_is_where_the_processor_time_stops(busy: int, start: int) -> None:
    at = [number / 100 for number in range(80)]
    watch = CpuWatch(at, [min(number, busy) / 100 for number in range(80)])  # one core until `busy`
    found = watch.idle_from(start / 100)
    assert found is not None and found >= start / 100
    assert abs(found - max(start, busy) / 100) <= IDLE_CPU_S + 0.011
    assert CpuWatch(at[:busy], at[:busy]).idle_from(0.0) is None
    assert at[-1] > IDLE_WINDOW_S


@settings(max_examples=30)
@given(st.lists(st.text("ab😋é", max_size=30), min_size=1, max_size=5))
def test_the_server_applies_random_edits_like_the_editor(lines: list[str]) -> None:
    buffer = Buffer(lines)
    for _ in range(30):
        before = Text.of(buffer.text)
        change = buffer.edit()
        ends = (change["range"]["start"], change["range"]["end"])
        start, stop = (before.offset(end["line"], end["character"], "utf-16") for end in ends)
        assert before.change(start, stop, change["text"]).text == buffer.text


def test_the_servers_own_cost_is_measured_and_its_text_compared() -> None:
    source = EDITED_FILE.read_text("utf-8")
    times = load.server_change_times(source, 200, 500)
    assert len(times) == 200 and all(time > 0 for time in times)


def test_the_cost_of_a_change_is_the_extra_time_of_the_request_after_it() -> None:
    found = change_cost(ChangeTimes([0.003] * 9, [0.001] * 9, 0, 0, 0))
    assert found["did_change_ms_p50"] == found["did_change_ms_p99"] == pytest.approx(2.0)
    assert found["cheap_request_ms_p50"] == pytest.approx(1.0)


def test_cancellation_has_a_maximum_and_no_figures_if_every_response_came_first() -> None:
    found = cancel_figures(
        "decoding", [CancelTimes(0.001, 0.002, 0.1), CancelTimes(0.001, 0.004, 0.3)]
    )
    assert found["cancel_decoding_idle_ms_max"] == 300
    assert found["cancel_decoding_free_ms_p50"] == 3
    with pytest.raises(ServerError, match="decoding"):
        cancel_figures("decoding", [])


def test_an_unmeasured_target_is_not_met() -> None:
    parts = sorted({part for part, *_ in TARGETS})
    assert not any(one["met"] for one in targets({}, parts))
    exactly = {name: limit for _, name, _, limit in TARGETS}
    assert all(one["met"] for one in targets(exactly, parts))
    worse = {name: limit + (1 if sign == "<=" else -1) for _, name, sign, limit in TARGETS}
    assert not any(one["met"] for one in targets(worse, parts))
    assert {one["figure"] for one in targets({}, ["edit"])} < exactly.keys()


def test_the_constants_of_the_parts_match_the_sample_file() -> None:
    text = EDITED_FILE.read_text("utf-8")
    selected = text.split("\n")[slice(*SELECTED_LINES)]
    assert len(selected) == 60 and latency_model.VARIED in selected[1]
    assert text.count(latency_model.VARIED) == 1
    assert len({document(shop, 1) for shop in load.SHOPS}) == load.CLIENTS
    typed = typist.sample_stretches(
        (ROOT / "index" / "workspace" / "token_db.py").read_text("utf-8"), 10, 30
    )
    assert len({one.start for one in typed}) == 10


def test_the_first_token_of_a_next_edit_and_one_pass_read_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    model = tiny_model(tmp_path / "model", context=4096)
    for one in next_edit.next_edits(str(model), latency.TYPED, 2):
        for first, alone, tokens in (one.cold, one.typed):
            assert first > 0 and alone > 0 and tokens > 0
        assert one.cold[2] > one.typed[2]  # the rest is cached
    with Engine(Config(model=str(model), library=False)) as engine:
        text = latency.TYPED.read_text("utf-8")
        first, again = (next_edit.request(engine, text, 7, typed) for typed in ("", "x"))
        whole = next_edit.first_token(engine, first)[1]
        chunk = engine.parts.target.chunk
        assert 0 < next_edit.one_pass(engine, again)[1] < whole
        assert engine.parts.target.chunk == chunk


# -- a run -------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_ends_with_one_json_line_that_is_also_the_file(
    tmp_path: Path, run_bench: RunBench
) -> None:
    workspace, out, only = tmp_path / "files", tmp_path / "out.json", "typist,change,edit,clients"
    workspace.mkdir()
    model = tiny_model(tmp_path / "model", context=2048)
    # Counting the whole one in idle moments would keep the server from becoming idle in time.
    save_small_library(tmp_path, model)
    given: list[str | Path] = [
        "--model",
        model,
        "--workspace",
        workspace,
        "--out",
        out,
        "--only",
        only,
    ]
    ran = run_bench(latency.main, *given, "--quick", "--repeats", "1")
    assert ran.code == 0, ran.err
    line = json.loads(ran.out.splitlines()[-1])
    assert line == json.loads(out.read_text("utf-8"))
    assert {"cpu", "cores", "memory_gb"} <= line["machine"].keys()
    assert line["model"] == "model" and line["parts"] == only.split(",")
    figures = line["figures"]
    assert figures["keystrokes_60"] == QUICK.slow
    assert all(figures[f"keystrokes_{speed}"] == QUICK.fast for speed in (150, 300, 450))
    assert figures["changes"] == QUICK.changes and figures["memory_mb_before"] > 0
    assert figures["clients_mixed"] == 0 and figures["clients_rounds"] == 1
    assert figures["clients_wait_s_max"] >= figures["clients_wait_s_p50"] > 0
    # A random model's edit is no edit: it is left out and said, and the rest is measured.
    assert [why.partition(":")[0] for why in line["left_out"]] == ["edit"]
    found = {one["figure"]: one["met"] for one in line["targets"]}
    assert found["clients_mixed"] and not found["edit_decoding_ratio"]
    assert "cancel_decoding_idle_ms_max" not in found
    assert all(name in ran.out for name in found)


@pytest.mark.full
def test_a_run_over_a_link(tmp_path: Path, run_bench: RunBench) -> None:
    """The model is in a `draftline serve`, and every answer takes the way to and fro."""
    workspace, out = tmp_path / "files", tmp_path / "out.json"
    workspace.mkdir()
    model = tiny_model(tmp_path / "model", context=2048)
    save_small_library(tmp_path, model)
    given: list[str | Path] = ["--model", model, "--workspace", workspace, "--out", out]
    given += ["--engine", "own", "--link-ms", "20", "--only", "prefix"]
    ran = run_bench(latency.main, *given, "--quick", "--repeats", "1")
    assert ran.code == 0, ran.err
    line = json.loads(ran.out.splitlines()[-1])
    assert line["link_ms"] == 20 and line["figures"]["prefix_second_s"] >= 0.02


def test_a_missing_model_is_one_line(tmp_path: Path, run_bench: RunBench) -> None:
    ran = run_bench(
        latency.main, "--model", tmp_path / "nowhere", "--quick", "--out", tmp_path / "out"
    )
    assert ran.code == 1 and ran.out == ""
    assert "nowhere" in ran.err.splitlines()[-1] and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--only", "typist,speed"], "--only speed"),
        (["--repeats", "0"], "--repeats 0"),
        (["--workspace", "nowhere"], "nowhere: not a folder"),
        (["--file", "nowhere.py"], "nowhere.py: no such file"),
        (["--engine", "box"], "--engine box"),
        (["--engine", "own", "--only", "change"], "--only change"),
        (["--engine", "own", "--link-ms", "-1"], "--link-ms -1"),
    ],
)
def test_bad_options_are_named(run_bench: RunBench, arguments: list[str], names: str) -> None:
    ran = run_bench(latency.main, *arguments)
    assert ran.code == 2 and ran.out == ""
    assert names in ran.err.splitlines()[-1]


def test_a_link_delays_and_changes_nothing() -> None:
    """Both ways, in order, up to the end of each side."""
    sent = [bytes([number]) * 40_000 for number in range(9)]
    with (
        socket.create_server(("127.0.0.1", 0)) as there,
        slow_link("127.0.0.1", there.getsockname()[1], 0.1) as port,
    ):
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)) as near:
            far, _ = there.accept()
            for part in sent:
                near.sendall(part)
            near.shutdown(socket.SHUT_WR)
            with far, far.makefile("rb") as reading:
                assert reading.read() == b"".join(sent)
                far.sendall(b"back")
            with near.makefile("rb") as reading:
                assert reading.read() == b"back"
        assert time.monotonic() - began >= 0.1
