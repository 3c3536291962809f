"""Ctrl-C in each phase of `index`, `edit` and `ask`: exit code 130, at most one line, and every
file is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import questions
from tests.support.command import EDITED, FENCE, SEEN, SOURCE, chain_model, make_file, untouched
from tests.support.fork_server import End, ForkServer
from tests.support.index_command import answer, make_model, make_project
from tests.support.segment_store import names

QUESTION = "Which variable turns the debugger on?"
INTERRUPTED = b"draftline: interrupted: no file was changed\n"


def places(*most: str, full: tuple[str, ...]) -> pytest.MarkDecorator:
    """Run a test for each of these functions; those of `full` in `make test-full` only."""
    more = [pytest.param(place, marks=pytest.mark.full) for place in full]
    return pytest.mark.parametrize("place", [*most, *more])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    modules = ("torch", "transformers", "engine.engine", "engine.model.torch.torch_target")
    with ForkServer(tmp_path_factory.mktemp("server"), *modules) as server:
        yield server


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE)


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return questions.make_model(tmp_path_factory.mktemp("answering") / "model")


def interrupt(server: ForkServer, cwd: Path, place: str, *command: str | Path) -> End:
    """Interrupt a command when the function at a place is called; its cache is beside `cwd`. A
    function in another thread than the main one never ends then."""
    patch = (
        f"import os\nos.environ['DRAFTLINE_HOME'] = {str(cwd.parent / 'home')!r}\n"
        "from tests.support.file_steps import interrupt_in\n"
        f"interrupt_in({place!r}, hold=True)"
    )
    return server.run(cwd, *command, patch=patch)


@places(
    "index.workspace.token_cache:TokenCache.encode",
    "index.workspace.segment_store:write",
    "index.workspace.roots:RootFiles.find",
    full=(
        "ui.cli.index:_workspace",
        "index.workspace.persistence:SavedIndex.load",
        "index.workspace.roots:RootFiles.walk",
        "index.workspace.workspace:Workspace._add",
        "index.workspace.segment_set:SegmentSet.merge",
        "index.workspace.segment_store:SegmentStore.save",
    ),
)
def test_index(tmp_path: Path, server: ForkServer, tokenizer: Path, place: str) -> None:
    project = make_project(tmp_path / "project")
    before = answer(project, tokenizer)["files"]
    (project / "new.py").write_text("left = 1\n")
    more = ("--find", "left") if place.endswith("find") else ()
    ended = interrupt(server, project, place, "index", "--model", tokenizer, *more)
    lines = ended.stderr.splitlines(keepends=True)
    assert ended.code == 130 and ended.stdout == b""
    assert [line for line in lines if not line.startswith(b"draftline: read ")] == [INTERRUPTED]
    found = answer(project, tokenizer, "--find", "left")["places"]
    assert {Path(one["path"]).name for one in found} == {"a.py", "new.py"} and len(found) == 3
    after = answer(project, tokenizer)
    assert (after["files"], after["loaded"], after["misses"]) == (before + 1, before + 1, 0)


EDIT = ("edit", "my file.py", "-i", "nine", "--lines", "2", "--apply")


@places(
    "engine.model.torch.torch_target:TorchTarget.__init__",
    "engine.editing.dialogue:apply",
    full=(
        "ui.cli.edit:_request",
        "ui.cli.edit:join_or_open",
        "ui.common.answer_view:AnswerView.follow",
        "engine.model.torch.torch_target:TorchTarget.forward",
    ),
)
def test_edit_before_the_file_is_written(
    tmp_path: Path, server: ForkServer, chain: Path, place: str
) -> None:
    file = make_file(tmp_path)
    ended = interrupt(server, tmp_path, place, *EDIT, "--model", chain)
    assert (ended.code, ended.stdout, ended.stderr) == (130, b"", INTERRUPTED)
    assert untouched(file) and names(tmp_path) == {file.name}


@places(
    "engine.editing.text_file:write_atomically", full=("engine.editing.text_file:replace_text",)
)
def test_edit_while_the_file_is_written_is_finished(
    tmp_path: Path, server: ForkServer, chain: Path, place: str
) -> None:
    file = make_file(tmp_path)
    assert file.read_bytes() == SOURCE
    ended = interrupt(server, tmp_path, place, *EDIT, "--model", chain)
    assert (ended.code, ended.stderr) == (0, SEEN) and ended.stdout
    assert file.read_bytes() == EDITED and names(tmp_path) == {file.name}


@places(
    "index.documents.documents:Documents.add",
    full=(
        "ui.cli.ask:read",
        "ui.cli.ask:join_or_open",
        "engine.rag.answer:prepare",
        "ui.cli.ask:_show",
    ),
)
def test_ask(tmp_path: Path, server: ForkServer, answering: Path, place: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    guide = questions.make_files(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ask = ("ask", guide.name, "-q", QUESTION, "--model", answering)
    ended = interrupt(server, folder, place, *ask)
    assert (ended.code, ended.stderr) == (130, INTERRUPTED)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_ask_while_the_answer_is_written(tmp_path: Path, server: ForkServer) -> None:
    """What is written so far is kept, and its sources are shown. The model would go on for long."""
    folder = tmp_path / "files"
    folder.mkdir()
    guide = questions.make_files(folder)
    endless = chain_model(tmp_path / "model", " ab", "\n", context=30000)
    more = ("--model", endless, "--max-tokens", "29000", "--no-speculation")
    place = "ui.common.answer_view:AnswerView.follow"
    ended = interrupt(server, folder, place, "ask", guide.name, "-q", QUESTION, *more)
    assert (ended.code, ended.stderr) == (130, b"") and ended.stdout
