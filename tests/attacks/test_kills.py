"""`draftline edit` and `draftline index` killed (SIGKILL) at any step: no file is ever torn, what a
killed run left is gone after the next one, and the next `--find` answers like a plain search."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.editing.text_file import replace_text
from index.temporary_file import NAME
from tests.support.command import EDITED, FENCE, SEEN, SOURCE, chain_model, make_file
from tests.support.faults import WORDS, change, make_tree
from tests.support.fork_server import ForkServer
from tests.support.index_command import answer, index, make_model
from tests.support.segment_store import names

REPLACE = "engine.editing.text_file:replace_text"
BEFORE_AND_AFTER = (  # the new file gets its name: where, and after how many file operations
    ("engine.editing.text_file:write_atomically", 5),
    ("engine.editing.text_file:sync_folder", 0),
)
PHASES = (  # of `draftline index`
    "index.workspace.persistence:SavedIndex.load",
    "index.workspace.workspace:Workspace.scan",
    "index.workspace.segment_set:SegmentSet.merge",
    "index.workspace.segment_store:SegmentStore.save",
    "index.workspace.token_db:TokenDB.write",
)
TEXTS = [*WORDS, "value", "e", "no such text"]  # to find
IMPORT = "from tests.support.file_steps import kill_in"
FOLLOW = """import threading
from index.workspace.workspace import Workspace
build = Workspace.build
def watch_and_build(self, *options):
    self.watch()
    build(self, *options)
Workspace.build, Workspace.close = watch_and_build, lambda self: threading.Event().wait()
"""  # `index` follows changes as servers do, until it is killed


def sizes(small: int, full: int) -> pytest.MarkDecorator:
    """Run a test with a small count, and with the full one in `make test-full`."""
    return pytest.mark.parametrize("count", [small, pytest.param(full, marks=pytest.mark.full)])


def leftovers(folder: Path) -> list[Path]:
    """Temporary files and folders of Draftline."""
    return [path for path in folder.rglob("*") if NAME.fullmatch(path.name)]


# -- edit --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE)


@pytest.fixture
def edits(tmp_path: Path) -> Iterator[ForkServer]:
    modules = ("torch", "transformers", "engine.engine", "engine.model.torch.torch_target")
    with ForkServer(tmp_path, *modules) as server:
        yield server


@sizes(2, 100)
def test_a_killed_edit_leaves_the_old_text_or_the_new(
    tmp_path: Path, chain: Path, edits: ForkServer, count: int
) -> None:
    """At file operations of the replacement in turn; of many kills one of four at any moment."""
    project = tmp_path / "project"
    project.mkdir()
    file = make_file(project)
    file.chmod(0o640)
    command = ("edit", file.name, "-i", "nine", "--lines", "2", "--model", chain, "--apply")
    chance = random.Random(5)
    for _ in range(2):  # the first run imports more
        file.write_bytes(SOURCE)
        started = time.monotonic()
        whole = edits.run(project, *command)
        seconds = time.monotonic() - started
        assert (whole.code, whole.stderr, file.read_bytes()) == (0, SEEN, EDITED)
    many = count > 2
    kills, step, seen, left = 0, 0, set(), 0
    for turn in range(3 * count):
        if kills == count:
            break
        file.write_bytes(SOURCE)
        if turn % 4 or not many:
            place, number = (REPLACE, step) if many else BEFORE_AND_AFTER[turn % 2]
            patch = f"{IMPORT}\nkill_in({place!r}, {number}, 60)"
            ended = edits.run(project, *command, patch=patch)
            step = step + 1 if ended.code else 0
        else:
            child = edits.start(project, *command)
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            ended = edits.end()
        assert ended.code in (0, -signal.SIGKILL), ended.stderr
        kills += ended.code != 0
        text = file.read_bytes()
        assert text in (SOURCE, EDITED)
        assert file.stat().st_mode & 0o777 == 0o640
        seen.add(text)
        left += len(leftovers(project))
        replace_text(file, "next", text.decode())
        assert names(project) == {file.name}
    assert kills == count
    assert seen == {SOURCE, EDITED} and left
    print(f"{kills} kills of `edit --apply` ({turn} runs): {left} temporary files swept")


# -- index -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    with ForkServer(tmp_path, "ui.cli.index_build", "engine.prompts.tokenizer") as server:
        yield server


def search(root: Path, text: str) -> set[tuple[str, int]]:
    """Where a plain search finds a text: path and code point."""
    found = set()
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() else b"\0"
        at = -1 if b"\0" in data else data.decode().find(text)
        while at >= 0:
            found.add((str(path), at))
            at = data.decode().find(text, at + 1)
    return found


def find(root: Path, model: Path, text: str) -> set[tuple[str, int]]:
    """The same by `draftline index --find`."""
    result = index(root, model, "--find", text, "--most", "1000000", "--json")
    assert result.returncode in (0, 1) and result.stdout, result.stderr
    places = json.loads(result.stdout)["places"]
    assert len(places) == len({(one["path"], one["start"]) for one in places})
    return {(one["path"], one["start"]) for one in places}


@sizes(4, 200)
def test_an_index_that_was_killed_answers_like_a_plain_search(
    tmp_path: Path, model: Path, server: ForkServer, count: int
) -> None:
    """Every other child follows changes, and is killed in the midst of them; the others are killed
    in each phase in turn."""
    root = tmp_path / "root"
    chance = random.Random(6)
    make_tree(root, chance)
    command = ("index", "--model", model, "--json")
    kills = answers = 0
    for turn in range(3 * count):
        if kills == count:
            break
        for _ in range(3):
            change(root, chance)
        if turn % 2:
            phase = PHASES[turn // 2 % len(PHASES)]
            step, seconds = chance.choice((0, 1, 3, 10, 30, 60)), chance.uniform(0, 0.02)
            patch = f"{IMPORT}\nkill_in({phase!r}, {step}, {seconds})"
            ended = server.run(root, *command, patch=patch)
        else:
            child = server.start(root, *command, patch=FOLLOW)
            deadline = time.monotonic() + chance.uniform(0, 0.6)
            while time.monotonic() < deadline:
                change(root, chance)
                time.sleep(0.02)
            os.kill(child, signal.SIGKILL)
            ended = server.end()
        assert ended.code in (0, -signal.SIGKILL), ended.stderr
        kills += ended.code != 0
        text = chance.choice(TEXTS)
        assert find(root, model, text) == search(root, text), (turn, text)
        answers += 1
    assert kills == count
    final = answer(root, model)
    assert final["misses"] == 0, "the last answer saved what it read"
    assert leftovers(tmp_path / "home") == []
    print(f"{kills} kills of `index`, {answers} answers checked")


@pytest.mark.full
def test_100_000_files(tmp_path: Path, model: Path, server: ForkServer) -> None:
    """Time and memory are printed (pytest -rP), not asserted."""
    root = tmp_path / "root"
    texts = {
        root / f"{folder}" / f"{number}.py": f"f{folder} = {number}\n"
        for folder in range(100)
        for number in range(1000)
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    figures = []
    for new in (100_000, 0):
        started = time.monotonic()
        ended = server.run(root, "index", "--model", model, "--json")
        seconds = time.monotonic() - started
        assert ended.code == 0, ended.stderr
        built = json.loads(ended.stdout)
        assert (built["files"], built["hits"] + built["misses"]) == (100_000, new)
        figures.append(f"{seconds:.1f} s, {ended.max_rss_mb:.0f} MB")
    for text in ("f7 = 77",):
        started = time.monotonic()
        ended = server.run(root, "index", "--model", model, "--find", text, "--json")
        seconds = time.monotonic() - started
        found = {Path(one["path"]) for one in json.loads(ended.stdout)["places"]}
        assert found == {path for path, inside in texts.items() if text in inside}
    figures.append(f"{seconds:.1f} s, {ended.max_rss_mb:.0f} MB")
    print("100,000 files: index cold {}; warm {}; find {}".format(*figures))
