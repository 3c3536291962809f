"""Commands that start again do not read a prompt again, and the server of other programs has no
part in that."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine, Request
from engine.engine import no_progress
from tests.support.command import draftline, draftline_process, environment
from tests.support.prefixes import CODE, files, tiny_gguf
from tests.support.server import serve_engine
from ui.cli.serve import _engine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("gguf"))


def edit(folder: Path, model: Path, **variables: str) -> tuple[dict[str, Any], bytes]:
    """Edit a file in a process of its own: the figures, and the start of the model's answer."""
    command = ("edit", "a.py", "-i", "say what it does", "--model", model, "--max-tokens", "40")
    options = ("--whole-file", "--json", "--verbose", "--device", "cpu", "--server", "own")
    result = draftline_process(folder, *command, *options, env=environment(folder, **variables))
    record = json.loads(result.stdout)
    assert record["reason"] == "length" and len(result.stderr) > 40
    return record["usage"], result.stderr


def test_a_command_that_runs_again_reads_no_prompt_again(tmp_path: Path, model: Path) -> None:
    (tmp_path / "a.py").write_text(CODE)
    cold, text = edit(tmp_path, model)
    assert cold["cached_tokens"] == 0 and len(files(tmp_path / "home")) == 1
    warm, again = edit(tmp_path, model)
    assert warm["cached_tokens"] == warm["prompt_tokens"] - 1 > 1000
    off, other = edit(tmp_path, model, DRAFTLINE_PREFIXES="off")
    assert off["cached_tokens"] == 0
    assert text == again == other


@pytest.mark.parametrize(
    "command", [("edit", "-i", "make it nine"), ("apply", "--update", "update")]
)
def test_an_edit_is_shown_before_its_prompt_is_stored(
    tmp_path: Path, model: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("x=1\n")
    (tmp_path / "update").write_text("x=9\n# ...\n")  # which has no sure place
    shown, close = [], Engine.close

    def look_and_close(engine: Engine) -> None:
        shown.append(os.fstat(1).st_size)
        close(engine)

    monkeypatch.setattr(Engine, "close", look_and_close)
    name, *more = command
    options = ("--json", "--max-tokens", "9", "--device", "cpu", "--server", "own")
    result = draftline(tmp_path, name, "a.py", *more, "--model", model, *options)
    assert shown == [len(result.stdout)] and result.stdout


def test_draftline_serve_neither_uses_nor_stores_prompts(
    tmp_path: Path, model: Path, home: Path
) -> None:
    """Else a program could find out, by asking, what somebody has edited."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text(CODE)
    request = Request("complete", CODE, str(root / "a.py"), max_tokens=4)
    options = {"engine": "", "model": str(model), "device": "cpu", "workspace": root}

    def served() -> Engine:
        engine = _engine(argparse.Namespace(**options), no_progress)
        assert isinstance(engine, Engine)
        return engine

    with served() as engine:
        engine.submit(request).result()
    assert not files(home)
    usual = Config(str(model), "cpu", workspace=root)
    for cached in (False, True):
        with Engine(usual) as engine:
            assert bool(engine.submit(request).result().usage.cached_tokens) == cached
    assert len(files(home)) == 1
    with served() as engine:
        assert engine.submit(request).result().usage.cached_tokens == 0
    with Engine(usual) as engine, serve_engine(engine) as server, server.client() as client:
        (name, *_) = [model.id for model in client.models.list()]
        answer = client.completions.create(model=name, prompt=CODE, max_tokens=4)
        assert answer.usage and answer.usage.prompt_tokens_details
        assert answer.usage.prompt_tokens_details.cached_tokens == 0  # it has an owner
