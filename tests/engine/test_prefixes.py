"""An engine that starts again does not read the prompts of edits and completions again, and writes
what they show only where that is indexed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Done, EditRefused, Engine, Request
from engine.model.prefix_store import FOLDER, PrefixStore
from index.workspace import array_file
from tests.support.prefixes import CODE, files, tiny_gguf

PASSWORD = "password = 'h8Jw2kq0Zt5vXc'\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("gguf"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "a.py").write_text(CODE)
    return folder


@pytest.fixture
def start(
    model: Path, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Engine]:
    """start(...) -> an engine, which indexes `root` unless told otherwise, and stores all."""
    monkeypatch.setattr("engine.engine.CLOSE_SECONDS", float("inf"))

    def make(**changes: Any) -> Engine:
        options: dict[str, Any] = {"device": "cpu", "threads": 1, "library": False}
        return Engine(Config(model=str(model), **options | {"workspace": root} | changes))

    return make


def edit(path: Path, text: str = CODE, **options: Any) -> Request:
    usual: dict[str, Any] = {"instruction": "rename left", "max_tokens": 8, "seed": 3}
    return Request("edit", text, str(path), **usual | options)


def completion(path: Path, **options: Any) -> Request:
    usual: dict[str, Any] = {"suffix": "\n", "max_tokens": 8, "seed": 3}
    return Request("complete", CODE, str(path), **usual | options)


def answers(engine: Engine, *requests: Request) -> Iterator[Done]:
    with engine:
        for request in requests:
            yield engine.submit(request).result()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_restart_reads_no_prompt_again(
    start: Callable[..., Engine],
    root: Path,
    home: Path,
    temperature: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = root / "a.py"
    requests = [edit(file, temperature=temperature), completion(file, temperature=temperature)]
    first = [*answers(start(), *requests)]
    assert len(files(home)) == 2
    again = [*answers(start(), *requests)]
    monkeypatch.setenv("DRAFTLINE_PREFIXES", "off")
    cold = [*answers(start(), *requests)]
    for one, warm, other in zip(first, again, cold, strict=True):
        assert (one.text, one.reason) == (warm.text, warm.reason) == (other.text, other.reason)
        assert one.usage.cached_tokens < 100 and other.usage.cached_tokens < 100
        assert warm.usage.cached_tokens == warm.usage.prompt_tokens - 1
    assert len(files(home)) == 2


def test_a_file_of_no_workspace_and_the_method_for_scripts(
    start: Callable[..., Engine], root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Engine.edit`, with a relative path; what it writes does not matter."""
    monkeypatch.chdir(root)
    with start(workspace=None) as engine:
        with pytest.raises(EditRefused, match="cut off"):
            engine.edit("a.py", "say what it does", max_tokens=4)
        Path("a.py").write_text("changed\n")
    assert len(files(home)) == 1
    with start(workspace=None) as engine:
        done = engine.submit(edit(root / "a.py", instruction="say what it does")).result()
    assert done.usage.cached_tokens > 0.9 * done.usage.prompt_tokens


def test_prompts_are_written_while_idle(
    start: Callable[..., Engine], root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.engine.PAUSE_SECONDS", 0.0)
    with start() as engine:
        engine.submit(edit(root / "a.py")).result()
        while not engine.worker.idle():
            time.sleep(0.01)
        (file,) = files(home)
        written = file.stat().st_mtime_ns
    assert file.stat().st_mtime_ns == written, "nothing was left to do"


def test_closing_goes_on_with_the_entry_in_flight(
    start: Callable[..., Engine], root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writing was begun once, and nothing else is left."""
    begun, save, written = threading.Event(), PrefixStore.save, []
    write = array_file.write_in_steps

    def save_slowly(store: PrefixStore) -> Generator[float, None, None]:
        steps = save(store)
        yield from islice(steps, 3)
        begun.set()
        yield 3600.0
        yield from steps

    def note_writing(path: Path, *given: Any) -> Generator[int, None, Any]:
        written.append(path)
        return write(path, *given)

    monkeypatch.setattr("engine.engine.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(array_file, "STEP_BYTES", 1 << 12)
    monkeypatch.setattr(PrefixStore, "save", save_slowly)
    monkeypatch.setattr("engine.model.prefix_store.write_in_steps", note_writing)
    with start() as engine:
        engine.submit(edit(root / "a.py")).result()
        assert begun.wait(60)
        assert len(files(home)) == 1 and written != files(home)
    assert files(home) == written


def test_closing_does_not_wait_for_a_slow_disk(
    start: Callable[..., Engine], root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes too long is not written, and nothing is left of it."""
    monkeypatch.setattr("engine.engine.CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(array_file, "STEP_BYTES", 1 << 12)
    with start() as engine:
        engine.submit(edit(root / "a.py")).result()
    assert (home / FOLDER).is_dir() and not files(home)


NOT_WRITTEN: dict[str, Callable[[Path], Request]] = {
    "a conversation": lambda root: Request(
        "chat", messages=({"role": "user", "content": CODE},), max_tokens=4, path=str(root / "a.py")
    ),
    "no path": lambda root: replace(edit(root / "a.py"), path=""),
    "a name": lambda root: replace(edit(root / "a.py"), path="a.py"),
    "a prompt with marks": lambda root: completion(root / "a.py", parse_special=True, suffix=None),
    "no file": lambda root: edit(root / "b.py"),
    "a file elsewhere": lambda root: edit(root.parent / "elsewhere.py"),
    "an ignored file": lambda root: edit(root / "ignored.py"),
    "the name of a secret": lambda root: edit(root / ".env"),
    "a text with a secret": lambda root: edit(root / "a.py", CODE + PASSWORD),
    "a secret behind the cursor": lambda root: completion(root / "a.py", suffix=PASSWORD),
    "an instruction with a secret": lambda root: edit(root / "a.py", instruction=PASSWORD),
    "an update with a secret": lambda root: edit(root / "a.py", update=PASSWORD),
    "a snippet of no file": lambda root: completion(root / "a.py", snippets=(("b.py", "x"),)),
    "a snippet with a secret": lambda root: completion(
        root / "a.py", snippets=(("a.py", PASSWORD),)
    ),
}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_what_is_not_of_indexed_files_is_not_written(
    start: Callable[..., Engine], root: Path, home: Path, name: str, indexed: bool
) -> None:
    for other in (".env", "ignored.py", "../elsewhere.py"):
        (root / other).write_text(CODE)
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("ignored.py\n")
    with start(workspace=root if indexed else None) as engine:
        done = engine.submit(NOT_WRITTEN[name](root)).result()
        assert done.usage.prompt_tokens > 300 or "snippet" in name
    assert len(files(home)) == (name == "a file elsewhere" and not indexed)


def test_what_keys_ask_is_not_written(start: Callable[..., Engine], root: Path, home: Path) -> None:
    with start() as engine:
        engine.submit(edit(root / "a.py"), owner="a key").result()
    assert not files(home)


def test_a_snippet_of_an_indexed_file(start: Callable[..., Engine], root: Path, home: Path) -> None:
    (root / "b.py").write_text("def b(): pass\n")
    with start() as engine:
        request = completion(root / "a.py", snippets=(("b.py", "def b(): pass"),))
        engine.submit(request).result()
    assert len(files(home)) == 1


def test_buffers_count_as_they_are(start: Callable[..., Engine], root: Path, home: Path) -> None:
    """A file in which somebody types a password is not indexed any more."""
    file = root / "a.py"
    with start() as engine:
        assert engine.workspace is not None
        engine.workspace.update(file, CODE + PASSWORD, 1)
        engine.submit(completion(file)).result()
    assert not files(home)


def test_an_engine_without_a_place_for_them(
    start: Callable[..., Engine], root: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir(exist_ok=True)
    (home / FOLDER).write_text("a file")
    (done,) = answers(start(), edit(root / "a.py"))
    assert done.reason in ("stop", "length")
    lines = [line for line in caplog.messages if FOLDER in line]
    assert len(lines) == 1 and "not a folder" in lines[0]
