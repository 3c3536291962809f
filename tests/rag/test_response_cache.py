"""Cached responses are returned for exactly the same request, or not at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine.rag import response_cache
from engine.rag.response_cache import ResponseCache, model_key
from engine.records import Request

REQUEST = Request("chat", messages=({"role": "user", "content": "caf\u00e9 \ud800"},), max_tokens=9)


def test_a_stored_response_is_returned_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert ResponseCache(folder, "m").get(REQUEST) is None
    assert not folder.exists()
    ResponseCache(folder, "m").put(REQUEST, "text \ud800\n\u00e9")
    assert ResponseCache(folder, "m").get(REQUEST) == "text \ud800\n\u00e9"
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
def test_another_request_or_model_misses(tmp_path: Path, other: dict[str, Any]) -> None:
    cache = ResponseCache(tmp_path, "m")
    cache.put(REQUEST, "text")
    assert cache.get(dataclasses.replace(REQUEST, **other)) is None
    assert ResponseCache(tmp_path, "n").get(REQUEST) is None


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"text": 1}', b"\xff", b'{"other": ""}'])
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, broken: bytes) -> None:
    cache = ResponseCache(tmp_path, "m")
    cache.put(REQUEST, "text")
    (file,) = tmp_path.iterdir()
    file.write_bytes(broken)
    assert cache.get(REQUEST) is None
    cache.put(REQUEST, "again")
    assert cache.get(REQUEST) == "again"


def test_a_folder_that_cannot_be_written_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    cache = ResponseCache(file / "folder", "m")
    cache.put(REQUEST, "text")
    assert cache.get(REQUEST) is None
    assert "cannot store" in caplog.text


def test_the_oldest_files_are_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MAX_ANSWERS", 3)
    cache = ResponseCache(tmp_path, "m")
    requests = [dataclasses.replace(REQUEST, seed=seed) for seed in range(5)]
    for request in requests:
        cache.put(request, str(request.seed))
    assert [cache.get(request) for request in requests] == [None, None, "2", "3", "4"]


def test_a_model_is_identified_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = model_key("m", "q8", "t", tmp_path)
    assert before == model_key("m", "q8", "t", tmp_path)
    assert before != model_key("m", "f32", "t", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"22")
    assert before != model_key("m", "q8", "t", tmp_path)
