"""`draftline models check`: what it prints, as text and JSON, and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import draftline, one_line
from tests.support.tiny_gguf import write_gguf


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_a_model_is_loaded_checked_and_timed(kind: str, tiny: Any, tmp_path: Path) -> None:
    name = tiny()
    if kind == "gguf":
        write_gguf(name := tmp_path / "tiny.gguf")
    result = draftline(tmp_path, "models", "check", name, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["model"] == str(name) and found["exact"] is True
    assert found["dtype"] == ("stored" if kind == "gguf" else found["dtype"])
    assert [one["rows"] for one in found["passes"]] == [1, 8, 16]
    assert found["tokens_per_second"] * found["passes"][0]["seconds"] == pytest.approx(1)
    assert found["chat_template"] is True
    assert found["weight_bytes"] > 0 and Path(found["folder"]).is_dir()


def test_the_text_has_a_line_for_each_number_of_rows(tiny: Any, tmp_path: Path) -> None:
    result = draftline(tmp_path, "models", "check", tiny(), "--dtype", "f32", "--device", "cpu")
    lines = result.stdout.decode().splitlines()
    assert (result.returncode, result.stderr, len(lines)) == (0, b"", 6)
    assert lines[0].startswith(f"{tiny()}: f32 on cpu") and lines[1].startswith("exact: yes")
    assert lines[2].startswith(" 1 row ") and lines[2].endswith("tokens/s without speculation")
    assert lines[3].startswith(" 8 rows") and lines[4].startswith("16 rows")
    assert lines[5].startswith("weights: ")


def test_a_model_without_a_chat_template_says_so(tmp_path: Path) -> None:
    write_gguf(file := tmp_path / "tiny.gguf")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_nothings"))
    result = draftline(tmp_path, "models", "check", file)
    assert b"the model has no chat template" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("nothing",), 3, "unknown model 'nothing'"),
        (("qwen3:8b",), 3, "did you mean ollama:qwen3:8b?"),
        (("text.gguf",), 3, "text.gguf"),
        (("empty",), 3, "no config.json"),
        (("ollama:nothing",), 3, "no model of Ollama"),
        ((), 2, "NAME"),
        (("a", "--dtype", "f64"), 2, "f64"),
    ],
)
def test_a_bad_name_or_file_is_one_line(
    arguments: tuple[str, ...], code: int, word: str, tmp_path: Path
) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "empty").mkdir()
    result = draftline(tmp_path, "models", "check", *arguments, HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (code, b"")
    assert word in one_line(result)
