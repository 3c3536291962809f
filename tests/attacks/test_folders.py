"""Folders under attack: links in the place of cache folders, and a watched root that is deleted and
made again."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.drafting.stdlib_ngram import StdlibNgram
from engine.prompts.tokenizer import Tokenizer
from engine.rag.response_cache import ResponseCache
from engine.records import Request
from engine.weights import WeightsError, locate
from index.documents.documents import DocumentError, Documents
from index.workspace.workspace import Workspace
from tests.support.index_command import TIMEOUT_S, answer, index, make_model, make_project
from tests.support.segment_store import names
from tests.support.tiny_gguf import write_gguf

MODE = 0o751
VICTIM = {"file.part", "file.json", "file.tmp"}
REQUEST = Request("chat", messages=({"role": "user", "content": "text"},))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that the cache must not touch, with files that look like the cache's."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in VICTIM:
        (folder / name).write_text("text")
    folder.chmod(MODE)
    return folder


def is_untouched(folder: Path) -> bool:
    texts = {path.read_text() for path in folder.iterdir()}
    return names(folder) == VICTIM and texts == {"text"} and folder.stat().st_mode & 0o777 == MODE


def link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize("linked", ["index", "index/store", "tokens"])
def test_an_index_works_without_its_linked_folder(
    tmp_path: Path, model: Path, elsewhere: Path, linked: str
) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    place = home / linked
    if linked == "index/store":
        answer(project, model)
        (place,) = (home / "index").iterdir()
        shutil.rmtree(place)
    link(place, elsewhere)
    result = index(project, model, "--find", "left +")
    assert result.returncode == 0 and result.stdout.startswith(b"a.py:2:12")
    warnings = [line for line in result.stderr.decode().splitlines() if "symbolic link" in line]
    assert len(warnings) == 1 and str(place) in warnings[0]
    index(project, model, "--clear")
    assert is_untouched(elsewhere)


@pytest.mark.parametrize("linked", ["documents", "documents/local"])
def test_documents_in_a_linked_folder_are_refused(
    tmp_path: Path, elsewhere: Path, linked: str
) -> None:
    link(tmp_path / linked, elsewhere)
    with pytest.raises(DocumentError, match="symbolic link") as refused:
        Documents(tmp_path / "documents" / "local")
    assert str(tmp_path / linked) in str(refused.value) and "\n" not in str(refused.value)
    assert is_untouched(elsewhere)


def test_responses_in_a_linked_folder_are_neither_read_nor_written(
    tmp_path: Path, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link(tmp_path / "finished", elsewhere)
    cache = ResponseCache(tmp_path / "finished", "model")
    cache.put(REQUEST, "text")
    assert cache.get(REQUEST) is None
    assert all("symbolic link" in line for line in caplog.messages) and len(caplog.messages) == 2
    assert is_untouched(elsewhere)


def test_the_library_works_without_its_linked_folder(
    tmp_path: Path, model: Path, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.py").write_text("import os\n" * 99)
    link(tmp_path / "library", elsewhere)
    library = StdlibNgram(tmp_path, Tokenizer(model), tmp_path / "sources")
    with caplog.at_level(logging.WARNING):
        for _ in library.build():
            pass
    (line,) = caplog.messages
    assert library.ready and "symbolic link" in line
    assert is_untouched(elsewhere)


@pytest.mark.parametrize("linked", ["models", "models/.partial"])
def test_no_model_is_converted_into_a_linked_folder(
    tmp_path: Path, elsewhere: Path, linked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    write_gguf(tmp_path / "m.gguf", "llama")
    link(tmp_path / "home" / linked, elsewhere)
    with pytest.raises(WeightsError, match="symbolic link") as refused:
        locate(str(tmp_path / "m.gguf"))
    assert "\n" not in str(refused.value)
    assert is_untouched(elsewhere)


# -- a watched root ----------------------------------------------------------------------------


def delete_and_make(root: Path, fill: Callable[[Path], None]) -> None:
    shutil.rmtree(root)
    root.mkdir()
    fill(root)


def replace(root: Path, fill: Callable[[Path], None]) -> None:
    """The new root appears filled, while the old one is there under another name."""
    new, old = root.with_name("new"), root.with_name("old")
    new.mkdir()
    fill(new)
    root.rename(old)
    new.rename(root)
    shutil.rmtree(old)


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.full)])
def test_a_watched_root_is_deleted_and_made_again(tmp_path: Path, model: Path, rounds: int) -> None:
    beside, root = tmp_path / "beside", make_project(tmp_path / "project")
    beside.mkdir()
    with Workspace([beside, root], Tokenizer(model), tmp_path / "home") as workspace:
        workspace.watch()
        workspace.build()
        for number in range(rounds):

            def fill(folder: Path, number: int = number) -> None:
                (folder / "sub").mkdir()
                (folder / "sub" / f"n{number}.py").write_text(f"left = {number}\n")
                (folder / "a.py").write_text(f"def add(left, right): return {number}\n")

            (replace if number % 2 else delete_and_make)(root, fill)
            wanted, deadline = f"n{number}.py", time.monotonic() + TIMEOUT_S
            while not any(Path(one.path).name == wanted for one in workspace.documents):
                assert time.monotonic() < deadline, f"{wanted} is not noticed"
                workspace._note_use()  # as a query does
                time.sleep(0.01)
    found = answer(root, model, "--find", "left")["places"]
    assert {(Path(one["path"]).name, one["start"]) for one in found} == {
        (f"n{rounds - 1}.py", 0),
        ("a.py", 8),
    }
    assert answer(root, model)["files"] == 2
