"""Lines on stdout and stderr, and the first and second Ctrl-C of an answer."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest

from index.workspace.workspace import INDEXING
from ui.common.errors import reason, say, warnings_on_stderr
from ui.common.interrupt import AnswerInterrupt
from ui.common.loading import progress_bars
from ui.common.terminal import (
    format_bytes,
    one_line,
    plural,
    ratio,
    relative_to_cwd,
    write,
    write_json,
)


def test_say_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb:\t\x1b[2J \udcff")
    assert capsys.readouterr() == ("", "draftline: a b: \u241b[2J \ufffd\n")


def test_one_line_keeps_line_ends_and_tabs_visible() -> None:
    assert one_line("a\nb\tc\x7f\x9b") == "a\u240ab c\u2421\ufffd"


def test_output_behind_printed_text_stays_in_order(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    print("printed")
    write("written \udcff\n")
    write_json({"a": "\n"})
    assert capfdbinary.readouterr().out == b'printed\nwritten \xff\n{"a": "\\n"}\n'


def test_numbers_for_people() -> None:
    assert [plural(n, "file") for n in (0, 1, 3000)] == ["0 files", "1 file", "3,000 files"]
    assert plural(2, "miss", "misses") == "2 misses"
    sizes = [999, 1000, 12_345, 9_940_000, 1_260_000_000]
    assert [*map(format_bytes, sizes)] == ["999 bytes", "1.0 kB", "12 kB", "9.9 MB", "1.3 GB"]
    assert (ratio(3, 2), ratio(3, 0)) == (1.5, 0.0)


def test_progress_without_a_terminal_is_one_line_a_stage_in_its_unit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_bars() as progress:
        for label, done, total in (
            ("loading a model", 0, 0),
            (INDEXING, 1, 11),
            (INDEXING, 11, 11),
            ("fetching a model (part 1)", 5, 485_000_000),
            ("fetching a model (part 2)", 7, 485_000_000),
        ):
            progress(label, done, total)
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("draftline: ") for line in lines] == [
        "loading a model",
        "indexing the workspace, 11 files",
        "fetching a model, 485 MB",
    ]


def test_paths_in_the_current_folder_are_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert relative_to_cwd(f"{tmp_path}/a/b") == "a/b"
    assert relative_to_cwd(f"{tmp_path}x/b") == f"{tmp_path}x/b"
    monkeypatch.chdir("/")
    assert relative_to_cwd("/a/b") == "a/b"


def test_reasons_of_errors() -> None:
    assert reason(FileNotFoundError(2, "No such file", "a")) == "No such file"
    assert reason(ValueError("embedded null byte")) == "embedded null byte"


def test_warnings_are_lines_while_a_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("engine.test")
    with warnings_on_stderr():
        log.warning("low on %s", "memory")
        log.info("not shown")
    log.warning("not shown either")
    assert capsys.readouterr().err == "draftline: low on memory\n"


def test_a_second_ctrl_c_is_the_commands() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        with AnswerInterrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert (interrupt.received, received) == (True, [])
            signal.raise_signal(signal.SIGINT)
            assert received == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)
        assert len(received) == 2
    finally:
        signal.signal(signal.SIGINT, before)
