"""Texts that were finished: given back for exactly the same request, or not at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine.rag import response_cache
from engine.rag.response_cache import Finished, model_key
from engine.records import Request

ASKED = Request("chat", messages=({"role": "user", "content": "caf\u00e9 \ud800"},), max_tokens=9)


def test_what_is_kept_is_given_back_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert Finished(folder, "m").get(ASKED) is None
    assert not folder.exists()
    Finished(folder, "m").put(ASKED, "text \ud800\n\u00e9")
    assert Finished(folder, "m").get(ASKED) == "text \ud800\n\u00e9"
    assert [file.suffix for file in folder.iterdir()] == [".json"]
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "other",
    [
        {"max_tokens": 8},
        {"temperature": 0.5},
        {"seed": 1},
        {"top_p": 0.5},
        {"top_k": 3},
        {"stop": ("x",)},
        {"messages": ({"role": "system", "content": "caf\u00e9 \ud800"},)},
    ],
)
def test_nothing_is_given_for_another_request_or_model(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    kept = Finished(tmp_path, "m")
    kept.put(ASKED, "text")
    assert kept.get(dataclasses.replace(ASKED, **other)) is None
    assert Finished(tmp_path, "n").get(ASKED) is None


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"text": 1}', b"\xff", b'{"other": ""}'])
def test_a_broken_file_counts_as_none_and_is_replaced(tmp_path: Path, broken: bytes) -> None:
    kept = Finished(tmp_path, "m")
    kept.put(ASKED, "text")
    (file,) = tmp_path.iterdir()
    file.write_bytes(broken)
    assert kept.get(ASKED) is None
    kept.put(ASKED, "again")
    assert kept.get(ASKED) == "again"


def test_a_folder_that_cannot_be_written_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    kept = Finished(file / "folder", "m")
    kept.put(ASKED, "text")
    assert kept.get(ASKED) is None
    assert "cannot keep" in caplog.text


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "FILES", 3)
    kept = Finished(tmp_path, "m")
    requests = [dataclasses.replace(ASKED, seed=seed) for seed in range(5)]
    for request in requests:
        kept.put(request, str(request.seed))
    assert [kept.get(request) for request in requests] == [None, None, "2", "3", "4"]


def test_a_model_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = model_key("m", "q8", "t", tmp_path)
    assert before == model_key("m", "q8", "t", tmp_path)
    assert before != model_key("m", "f32", "t", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"22")
    assert before != model_key("m", "q8", "t", tmp_path)
