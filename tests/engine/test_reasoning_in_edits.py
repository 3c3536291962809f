"""Edits have no reasoning in them, of a model that reasons although it is asked not to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Config, Engine, Request
from tests.support.command import EDITED, FENCE, draftline, make_file
from tests.support.server import serve_model, speaker

MARKS = ("<think>", "</think>")
SAID = (*MARKS[:1], "They want", " ```\n", " nine.", MARKS[1], "x=9")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a model that reasons before every edit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        folder = tmp_path_factory.mktemp("models") / "thinker"
        yield speaker(folder, *SAID, control=MARKS, lead="", end=FENCE)


@pytest.mark.parametrize(
    "request_",
    [
        Request("edit", "x=1\n", path="a.py", instruction="make it nine"),
        Request("edit", "a\nx=1\nb\n", path="a.py", instruction="nine", selection=(2, 6)),
        Request("edit", "x=1\n", path="a.py", update="x=9\n# ... existing code ..."),
        Request("complete", "y = 8\n", stop=("\n```",)),
    ],
    ids=["file", "selection", "update", "completion"],
)
def test_an_edit_has_no_reasoning(thinker: Path, request_: Request) -> None:
    with Engine(Config(model=str(thinker), threads=1, library=False)) as engine:
        for speculation in (True, False):
            done = engine.submit(request_, speculation).result()
            assert (done.text, done.reasoning) == ("x=9", "They want ```\n nine.")
            assert done.matched == "\n```"


def test_files_and_answers_have_none(thinker: Path, tmp_path: Path) -> None:
    """Of `draftline edit` and /v1/apply."""
    file = make_file(tmp_path)
    line = ("-i", "make it nine", "--lines", "2", "--dtype", "f32", "--apply")
    result = draftline(tmp_path, "edit", file, *line, "--model", thinker, "--server", "own")
    assert (result.returncode, file.read_bytes()) == (0, EDITED), result.stderr
    with serve_model(thinker) as served, served.http() as http:
        body = {"code": "x=1\n", "update": "x=9\n# ...\n", "instruction": "nine"}
        answer = http.post("/v1/apply", json=body).raise_for_status().json()
    assert (answer["code"], answer["method"]) == ("x=9\n", "model")
    assert "nine" not in json.dumps(answer)
