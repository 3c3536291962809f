"""`python -m bench latency`: places, figures, the editor against a naive one, and output."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.latency import latency, load, next_edit, restart
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
from bench.latency.parts import QUICK, SPEEDS, cancel_figures
from bench.latency.places import bodies, position, sample_stretches
from bench.latency.slow_link import slow_link
from engine import Config, Engine
from lsp_server.protocol.positions import Text
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model
from tests.support.prefixes import tiny_gguf
from tests.support.training import save_small_library

ROOT = Path(__file__).resolve().parents[2]

# -- places ------------------------------------------------------------------------------------


def test_a_body_is_all_of_a_function_behind_its_docstring() -> None:
    text = 'def é(a): return "é" + a\n\n\ndef g():\n    """Says."""\n    x = 1\n    return x\n'
    found = [text[one.start : one.stop] for one in bodies(text, 1)]
    assert found == ['return "é" + a', "x = 1\n    return x"]
    assert [len(one.strokes()) for one in bodies(text, 1)] == [14, 14] and not bodies(text, 15)


@given(st.text("a😋\n", max_size=20), st.data())
def test_positions_are_those_of_the_server(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    found = position(text, offset)
    assert (found["line"], found["character"]) == Text.of(text).position(offset, "utf-16")


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
    assert all(one["met"] for one in targets({k: [v, 0, 9] for k, v in exactly.items()}, parts))
    worse = {name: limit + (1 if sign == "<=" else -1) for _, name, sign, limit in TARGETS}
    assert not any(one["met"] for one in targets(worse, parts))
    assert {one["figure"] for one in targets({}, ["edit"])} < exactly.keys()


def test_the_constants_of_the_parts_match_the_sample_file() -> None:
    text = EDITED_FILE.read_text("utf-8")
    selected = text.split("\n")[slice(*SELECTED_LINES)]
    assert len(selected) == 60 and latency_model.VARIED in selected[1]
    assert text.count(latency_model.VARIED) == 1
    assert len({document(shop, 1) for shop in load.SHOPS}) == load.CLIENTS
    assert sample_stretches(latency.EDITED.read_text("utf-8"), 1, 60)


def test_the_first_token_of_a_next_edit_and_one_pass_read_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    model = tiny_model(tmp_path / "model", context=4096)
    for one in next_edit.next_edits(str(model), latency.EDITED, 2):
        for first, alone, tokens in (one.cold, one.typed):
            assert first > 0 and alone > 0 and tokens > 0
        assert one.cold[2] > one.typed[2]  # the rest is cached
        assert one.whole.seconds > 0 and one.whole.tokens >= one.whole.passes > 0
    with Engine(Config(model=str(model), library=False)) as engine:
        text = latency.EDITED.read_text("utf-8")
        first, again = (next_edit.request(engine, text, 7, typed) for typed in ("", "x"))
        whole = next_edit.first_token(engine, first)[1]
        chunk = engine.parts.target.chunk
        assert 0 < next_edit.one_pass(engine, again)[1] < whole
        assert engine.parts.target.chunk == chunk


def test_after_a_restart_a_long_prompt_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("engine.engine.PAUSE_SECONDS", 0.0)
    model = tiny_gguf(tmp_path)
    found = restart.restart(str(model), ROOT / "bench", 1000)
    assert 1000 <= found.tokens <= 1200 and 0 < found.read_again < 32
    with pytest.raises(ValueError, match="fewer than 1000000 tokens"):
        restart.restart(str(model), ROOT / "bench" / "latency", 1_000_000)


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
    for words in SPEEDS:
        assert [one["words"] for one in figures[f"sessions_{words}"]] == [words]
        assert figures[f"keys_{words}"][0] > 0
    assert 0 <= figures["in_time_or_cancelled_60"][0] <= 1 and figures["own_request_ms_max_60"] > 0
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
