"""`draftline mcp`, driven by the protocol's own client: the tools, and that nothing outside of the
roots is read or written."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp.types import ListRootsResult, Root

from engine import Config, Engine
from engine.editing.running.trial import Trial, make_trial
from engine.editing.text_file import replace_text
from index.documents.documents import Documents
from index.workspace.workspace import Workspace
from tests.support.command import FENCE, SOURCE, chain_model, make_file, untouched
from ui.common.errors import NO_MODEL, Failure
from ui.mcp import tools as mcp_tools
from ui.mcp.roots import PathRefused, Roots, folders_of
from ui.mcp.server import make_server
from ui.mcp.tools import Tools

MARK = "# ... existing code ...\n"
UPDATE = f"{MARK}x=1\ny=2\nb = 2\n{MARK}"
MERGED = SOURCE.replace(b"x=1\r\n", b"x=1\r\ny=2\r\n")


def no_engine() -> Engine:
    raise Failure(NO_MODEL, "no model: fetch one")


def no_workspace(folders: Sequence[Path]) -> Workspace:
    raise Failure(NO_MODEL, "no tokenizer: fetch a model")


@asynccontextmanager
async def connected(
    tools: Tools, roots: Sequence[Path] | None = None, folders: Sequence[Path] = ()
) -> AsyncIterator[Client]:
    """A client of a server in this process; it names roots unless they are None."""

    async def listed(context: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=root.as_uri()) for root in roots or ()])

    callback = None if roots is None else listed
    async with Client(make_server(tools, folders), list_roots_callback=callback) as client:
        yield client
    tools.close()


async def call(client: Client, tool: str, **arguments: object) -> tuple[bool, str]:
    """Whether the tool succeeded, and what it told."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert content.type == "text"
    return not result.is_error, content.text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_file(tmp_path)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Without a model."""
    return Tools(no_engine, no_workspace, Documents(tmp_path / "documents.db"))


@pytest.mark.asyncio
async def test_an_update_with_one_place_needs_no_model(tools: Tools, file: Path) -> None:
    async with connected(tools, [file.parent]) as client:
        fine, told = await call(client, "apply_edit", path=file.name, update=UPDATE)
        assert fine and told.startswith("merged without a model") and "+y=2" in told
        assert file.read_bytes() == MERGED
        fine, told = await call(client, "apply_edit", path=str(file), update="no line of it\n")
        assert not fine and "fits nowhere" in told and "\n" not in told
        fine, told = await call(client, "edit", path=file.name, instruction="Rename x to total")
        assert fine and told.startswith("made by rule: `x` renamed to `total`")
        fine, told = await call(client, "edit", path=file.name, instruction="Make it shorter")
        assert not fine and told.endswith("no model: fetch one")
        fine, told = await call(client, "find", text="x")
        assert not fine and told.endswith("no tokenizer: fetch a model")


@pytest.mark.asyncio
async def test_two_servers_that_edit_one_file_at_once(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is slower merges its lines into what the other has written, or says that it cannot:
    the other writes between its reading and its writing, once and then always."""
    write, times, lines = mcp_tools._write, [1, 99], ["b = 2"]

    def late(roots: Roots, path: Path, old: str, *more: str) -> str:
        if times[0]:
            times[0] -= 1
            lines.append(f"other = {len(lines)}")
            replace_text(path, old.replace(lines[-2], f"{lines[-2]}\r\n{lines[-1]}"), old)
        return write(roots, path, old, *more)

    monkeypatch.setattr(mcp_tools, "_write", late)
    server = Tools(no_engine, no_workspace, Documents(tmp_path / "documents.db"))
    async with connected(server, [file.parent]) as client:
        fine, told = await call(client, "apply_edit", path=file.name, update=UPDATE)
        assert fine and told.startswith("merged without a model") and "+y=2" in told
        assert file.read_text().splitlines()[2:] == ["y=2", *lines, "end"]
        times.pop(0)
        update = UPDATE.replace("y=2", "y=2\nz=3").replace("x=1\n", "")
        fine, told = await call(client, "apply_edit", path=file.name, update=update)
        assert not fine and "changed on disk" in told and "\n" not in told
        assert "z=3" not in file.read_text()
        assert file.read_text().splitlines()[2:] == ["y=2", *lines, "end"]


@pytest.mark.asyncio
async def test_many_edits_of_one_file_at_once(tools: Tools, tmp_path: Path) -> None:
    """None is refused: each has to merge again at most once for each of the others."""
    file, count = tmp_path / "a.py", 20
    lines = [f"line_{number} = {number}" for number in range(2 * count)]
    file.write_text("\n".join([*lines, ""]))
    updates = [
        f"{MARK}{lines[at]}\nnew_{at} = 1\n{lines[at + 1]}\n{MARK}" for at in range(0, 2 * count, 2)
    ]
    async with connected(tools, [tmp_path]) as client:
        told = await asyncio.gather(
            *(call(client, "apply_edit", path="a.py", update=one) for one in updates)
        )
    assert all(fine for fine, _ in told), told
    for at in range(0, 2 * count, 2):
        lines[at] += f"\nnew_{at} = 1"
    assert file.read_text() == "\n".join([*lines, ""])


@pytest.mark.asyncio
async def test_nothing_outside_of_the_roots_is_read_or_written(
    tools: Tools, tmp_path: Path, file: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.py").symlink_to(file)
    (inside / "folder").symlink_to(tmp_path)
    async with connected(tools, [inside]) as client:
        for path in (str(file), "../my file.py", "link.py", "folder/my file.py", "a\0b"):
            fine, told = await call(client, "apply_edit", path=path, update=UPDATE)
            assert not fine and "\n" not in told
            fine, told = await call(client, "edit", path=path, instruction="Rename x to y")
            assert not fine
            fine, told = await call(client, "ask_documents", question="x?", paths=[path])
            assert not fine
    assert untouched(file)


async def refusals(client: Client, path: str, reads: bool) -> list[str]:
    """What the tools say about a file that they refuse; those that read it as well."""
    update = "[core]\n\tfsmonitor = touch x\n\tbare = false\n# ... existing code ...\n"
    calls: list[tuple[str, dict[str, object]]] = [
        ("apply_edit", {"path": path, "update": update}),
        ("edit", {"path": path, "instruction": "Rename bare to core"}),
    ]
    if reads:
        calls.append(("ask_documents", {"question": "core?", "paths": [path]}))
    told = [await call(client, tool, **arguments) for tool, arguments in calls]
    assert not any(fine for fine, _ in told), told
    return [text for _, text in told]


@pytest.mark.parametrize("path", [".git/config", "link", "folder/config", ".GIT/config", "hooks/a"])
@pytest.mark.asyncio
async def test_what_git_runs_commands_from_is_neither_read_nor_written(
    tools: Tools, tmp_path: Path, path: str
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.hooksPath", "hooks"], check=True)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "a").write_text("core\n")
    (tmp_path / "link").symlink_to(".git/config")
    (tmp_path / "folder").symlink_to(".git")
    config = (tmp_path / ".git" / "config").read_bytes()
    async with connected(tools, [tmp_path]) as client:
        for told in await refusals(client, path, reads=True):
            assert path in told and "git" in told and "\n" not in told
    assert (tmp_path / ".git" / "config").read_bytes() == config
    assert (tmp_path / "hooks" / "a").read_text() == "core\n"


@pytest.mark.asyncio
async def test_what_editors_and_shells_run_commands_from_is_not_written(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(".vscode/tasks.json")
    for path in (".vscode/tasks.json", "link", ".envrc", "package/.husky/pre-commit"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("core\n")
        async with connected(tools, [tmp_path]) as client:
            for told in await refusals(client, path, reads=False):
                assert path in told and "run commands" in told and "\n" not in told
            _, told = await call(client, "ask_documents", question="core?", paths=[path])
            # It may be read, unless it may hold secrets.
            assert "may hold secrets" in told or path != ".envrc"
            assert told.endswith("no model: fetch one") or path == ".envrc"
        assert file.read_text() == "core\n"
    file = make_file(tmp_path / ".vscode")
    async with connected(tools, [tmp_path / ".vscode"]) as client:  # a project in such a folder
        fine, told = await call(client, "apply_edit", path=file.name, update=UPDATE)
        assert fine, told


@pytest.mark.parametrize("where", ["/", "home", "above"])
@pytest.mark.asyncio
async def test_no_roots_where_too_much_would_be_open(
    tools: Tools, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without roots works in the current folder, but not in `/` or the home folder."""
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    file = make_file(project)
    monkeypatch.setenv("HOME", str(home))
    folder = {"/": Path("/"), "home": home, "above": tmp_path}[where]
    monkeypatch.chdir(folder)
    calls: list[tuple[str, dict[str, object]]] = [
        ("apply_edit", {"path": str(file), "update": UPDATE}),
        ("edit", {"path": str(file), "instruction": "Rename x to y"}),
        ("find", {"text": "x"}),
        ("ask_documents", {"question": "x?", "paths": [str(file)]}),
    ]
    async with connected(tools) as client:
        for tool, arguments in calls:
            fine, told = await call(client, tool, **arguments)
            assert not fine and f"{folder}: too much to work in: name the folder" in told
            assert "\n" not in told
        assert untouched(file)
        monkeypatch.chdir(project)
        fine, told = await call(client, "apply_edit", path=file.name, update=UPDATE)
        assert fine, told


@pytest.mark.asyncio
async def test_hidden_files_of_the_home_folder(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused unless a root is in there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    hidden = tmp_path / ".config" / "fish"
    hidden.mkdir(parents=True)
    file = make_file(hidden)
    (tmp_path / "link").symlink_to(file)
    async with connected(tools, [tmp_path]) as client:
        for path in (str(file), "link"):
            for told in await refusals(client, path, reads=True):
                assert path in told and "hidden in the home folder" in told
        assert untouched(file)
    async with connected(tools, [hidden]) as client:
        fine, told = await call(client, "apply_edit", path=file.name, update=UPDATE)
        assert fine, told


@pytest.mark.parametrize("roots", [None, [], ["file:///nowhere"]])
@pytest.mark.asyncio
async def test_a_client_without_such_roots(
    tools: Tools, file: Path, roots: list[str] | None
) -> None:
    """Without roots it works in the folders of the command line; with others, nowhere in them."""
    named = None if roots is None else folders_of(roots)
    async with connected(tools, named, [file.parent]) as client:
        fine, told = await call(client, "apply_edit", path=str(file), update=UPDATE)
    assert fine == (roots is None), told
    assert (file.read_bytes() == MERGED) == fine


@pytest.mark.parametrize(
    ("uri", "mode"),
    [
        ("http://example.com/x", "legacy"),
        ("file:///x%00", "legacy"),
        ("file:///a%00b", "auto"),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.asyncio
async def test_a_root_that_is_no_folder_is_named(
    tools: Tools, file: Path, uri: str, mode: str
) -> None:
    """With the protocol's versions up to 2025-11-25; in later ones its own package refuses what is
    no `file:` URI."""

    async def listed(context: object) -> ListRootsResult:
        good = Root(uri=file.parent.as_uri())
        bad = Root.model_construct(uri=uri)  # which a client of another library may send
        return ListRootsResult.model_construct(roots=[good, bad])

    calls: list[tuple[str, dict[str, object]]] = [
        ("apply_edit", {"path": str(file), "update": UPDATE}),
        ("find", {"text": "x"}),
    ]
    async with Client(make_server(tools, ()), list_roots_callback=listed, mode=mode) as client:
        for tool, arguments in calls:
            fine, told = await call(client, tool, **arguments)
            assert not fine and uri in told and "of this machine" in told
            assert "\n" not in told
    tools.close()
    assert untouched(file)


# "Secret" by its name, by its text, and by its folder
SECRET_FILES = {
    ".env": "PASSWORD=hunter2\n",
    "notes.md": "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAx\n" * 9,
    ".aws/a.txt": "core\n",
}


@pytest.mark.parametrize("name", SECRET_FILES)
@pytest.mark.asyncio
async def test_agents_are_not_shown_files_of_secrets(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "project"
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(SECRET_FILES[name])
    (folder / "link.md").symlink_to(file)
    model = chain_model(tmp_path / "model", "core", FENCE)
    with Engine(Config(model=str(model), threads=1, library=False)) as engine:
        tools = Tools(lambda: engine, no_workspace, Documents(tmp_path / "documents.db"))
        async with connected(tools, [folder]) as client:
            for path in (name, "link.md"):
                asked = {"question": "What is the password?", "paths": [path]}
                fine, told = await call(client, "ask_documents", **asked)
                assert not fine and name in told and "may hold secrets" in told, told
                assert ".draftlineindex" in told and "\n" not in told
                assert SECRET_FILES[name].strip() not in told
            (folder / ".draftlineindex").write_text(f"{name}\n")  # the user allows it
            fine, told = await call(client, "ask_documents", **asked)
            assert "secrets" not in told
            fine, told = await call(client, "apply_edit", path=".draftlineindex", update="a\n")
            assert not fine and "change it yourself" in told


@pytest.mark.asyncio
async def test_the_model_edits_and_answers(tmp_path: Path, file: Path) -> None:
    """It answers every request alike, with the file but for "x=9"."""
    model = chain_model(tmp_path / "model", "x=9", FENCE)

    def open_workspace(folders: Sequence[Path]) -> Workspace:
        workspace = Workspace(list(folders), engine.parts.tokenizer, None)
        workspace.build()
        return workspace

    with Engine(Config(model=str(model))) as engine:
        tools = Tools(lambda: engine, open_workspace, Documents(tmp_path / "documents.db"))
        async with connected(tools, [file.parent]) as client:
            fine, told = await call(
                client, "edit", path=file.name, instruction="Set x to 9", first_line=2
            )
            assert fine and "+x=9" in told, told
            assert told.startswith("not run: syntax, lost definitions and names looked at")
            assert b"x=9" in file.read_bytes()
            fine, told = await call(client, "find", text="x=9")
            assert fine and told.startswith(f"{file}:") and told.endswith("x=9")
            fine, told = await call(client, "find", text="nowhere at all")
            assert told == "This text is in no indexed file."
            fine, told = await call(client, "edit", path=file.name, instruction="Rename x to total")
            assert fine and told.startswith("made by rule"), told
            fine, told = await call(client, "find", text="total=9")  # nobody watches the folder
            assert fine and told.endswith("total=9")
            fine, told = await call(client, "edit", path=file.name, instruction="Rename total to x")
            assert fine
            for lines in ({"first_line": 0}, {"first_line": 3, "last_line": 2}, {"last_line": 999}):
                before = file.read_bytes()
                fine, told = await call(client, "edit", path=file.name, instruction="x", **lines)
                assert not fine and "the file has" in told and file.read_bytes() == before


@pytest.mark.asyncio
@pytest.mark.parametrize("expected", ["x=9", "x=8"])
async def test_an_edit_is_tried_by_the_command_of_the_user(
    tmp_path: Path, file: Path, expected: str
) -> None:
    """No argument of a tool changes it."""
    model = chain_model(tmp_path / "model", "x=9", FENCE)

    def trial(file: Path) -> Trial:
        return make_trial(("grep", "-q", expected, str(file)), file, candidates=2)

    with Engine(Config(model=str(model))) as engine:
        tools = Tools(lambda: engine, no_workspace, Documents(tmp_path / "documents.db"), trial)
        async with connected(tools, [file.parent]) as client:
            fine, told = await call(
                client, "edit", path=file.name, instruction="Set x to 9", first_line=2
            )
    assert fine == (expected == "x=9") == (b"x=9" in file.read_bytes())
    assert told.startswith("checked by grep") == fine
    assert fine or f"{file.name}: not written: `grep " in told


@pytest.mark.asyncio
async def test_what_git_runs_commands_from_is_not_found(tmp_path: Path) -> None:
    """Neither what a repository in the root names, nor links to it."""
    folder = tmp_path / "project"
    nested, bare = folder / "nested", folder / "bare.git"
    for repository in (folder, nested):
        subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    subprocess.run(
        ["git", "init", "-q", "--separate-git-dir", folder / "s", folder / "n"], check=True
    )
    for name, value in (("core.hooksPath", "../tools"), ("include.path", "../../shared.cfg")):
        subprocess.run(["git", "-C", str(nested), "config", name, value], check=True)
    (folder / "tools").mkdir()
    files = ["bare.git/config", "s/config", "tools/check", "tools/pre-commit", "shared.cfg"]
    for name in (*files, "fine.md", "nested/fine.md"):
        with (folder / name).open("a") as file:
            file.write("# found it\n")
    os.link(folder / "tools" / "check", folder / "linked.sh")
    (folder / "link.cfg").symlink_to("shared.cfg")
    model = chain_model(tmp_path / "model", "core", FENCE)

    def open_workspace(folders: Sequence[Path]) -> Workspace:
        workspace = Workspace(list(folders), engine.parts.tokenizer, None)
        workspace.build()
        assert len(workspace.find("# found it")) > 2  # it is indexed
        return workspace

    with Engine(Config(model=str(model), threads=1, library=False)) as engine:
        tools = Tools(lambda: engine, open_workspace, Documents(tmp_path / "documents.db"))
        async with connected(tools, [folder]) as client:
            fine, told = await call(client, "find", text="# found it")
            assert fine and len(told.splitlines()) == 2
            names = {line.split(":")[0] for line in told.splitlines()}
            assert names == {str(folder / "fine.md"), str(nested / "fine.md")}
            for name in (*files, "linked.sh", "link.cfg"):
                before = (folder / name).read_bytes()
                for refusal in await refusals(client, name, reads=True):
                    assert "git" in refusal and "\n" not in refusal
                assert (folder / name).read_bytes() == before


@pytest.mark.asyncio
async def test_what_fails_a_check_is_not_written_unless_it_is_forced(tmp_path: Path) -> None:
    """The model's answer drops the function; the update drops a comment."""
    model = chain_model(tmp_path / "model", "x=9", FENCE)
    file, text = tmp_path / "a.py", "def a():\n    pass\n\n\nx = 1\n# one\ny = 2\n"
    file.write_text(text)
    with Engine(Config(model=str(model), threads=1, library=False)) as engine:
        tools = Tools(lambda: engine, no_workspace, Documents(tmp_path / "documents.db"))
        async with connected(tools, [tmp_path]) as client:
            lines = {"instruction": "Set it to 9", "first_line": 1, "last_line": 2}
            update = "# ... existing code ...\n    pass\n\n\nx = 1\ny = 2\n"
            for tool, more, warning in (
                ("apply_edit", {"update": update}, "the comment “# one” would be lost"),
                ("edit", lines, "`a` would be lost"),
            ):
                fine, told = await call(client, tool, path="a.py", **more)
                assert not fine and "not written: " in told and warning in told and "@@" in told
                assert file.read_text() == text
                fine, told = await call(client, tool, path="a.py", force=True, **more)
                assert fine and f"Forced: {warning}" in told
                assert file.read_text() != text
                text = file.read_text()


def test_the_command_over_stdio(tmp_path: Path, file: Path) -> None:
    """As an agent starts it; bytes on stdout are the protocol's only, or the client would fail."""

    async def session() -> str:
        async def listed(context: object) -> ListRootsResult:
            return ListRootsResult(roots=[Root(uri=tmp_path.as_uri())])

        arguments = ["-m", "ui.cli", "mcp", "--server", "own"]
        environment = {**os.environ, "DRAFTLINE_HOME": str(tmp_path / "home")}
        command = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
        async with Client(command, list_roots_callback=listed) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"apply_edit", "edit", "find", "ask_documents"}
            return (await call(client, "apply_edit", path=file.name, update=UPDATE))[1]

    assert "+y=2" in asyncio.run(session())
    assert file.read_bytes() == MERGED


def test_what_cannot_be_read_is_answered(tmp_path: Path) -> None:
    """Half of a surrogate pair, which is JSON but no text, other bad JSON, and bad messages."""
    call = {"name": "find", "arguments": {"text": "\ud800"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
        json.dumps({"jsonrpc": "2.0", "id": "\ud800", "method": "ping"}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": call}),
        "",
        "{",
        "[" * 5000,
        "[]",
        json.dumps({"jsonrpc": "2.0", "id": "two", "method": 2}),
        json.dumps({"jsonrpc": "2.0", "id": 3, "result": "\ud800"}),
        json.dumps({"jsonrpc": "2.0", "id": 4, "method": "ping"}),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "ui.cli", "mcp", "--server", "own", str(tmp_path)],
        env={**os.environ, "DRAFTLINE_HOME": str(tmp_path / "home")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin and server.stdout
        server.stdin.write("\n".join([*lines, ""]))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(7)]
        server.stdin.close()  # only now: a client that leaves gets no more answers
        assert server.stdout.read() == ""
    assert server.returncode == 0
    (ping,) = (one for one in answers if one["id"] == 4)  # in any order with the others
    assert "result" in ping
    answers.remove(ping)
    told = [(one["id"], one["error"]["code"]) for one in answers]
    unread, other = -32700, -32600
    assert told == [(1, unread), *[(None, unread)] * 3, (None, other), ("two", other)]
    assert "surrogate" in answers[0]["error"]["message"]


# -- roots -------------------------------------------------------------------------------------

PART = st.sampled_from(["a", "b", "..", ".", "", "link", "out"])


@given(st.lists(PART, max_size=6), st.booleans())
def test_what_is_resolved_is_in_a_root(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], absolute: bool
) -> None:
    base = Path(os.path.realpath(tmp_path_factory.getbasetemp())) / "roots"
    root = base / "a"
    if not root.exists():
        (root / "b").mkdir(parents=True)
        (base / "out").mkdir()
        (root / "out").symlink_to(base / "out")
        (root / "link").symlink_to(root / "b")
    path = "/".join([*([str(base)] if absolute else []), *(parts or ["a"])])
    try:
        found = Roots.of([root]).resolve(path)
    except PathRefused:
        assert not Path(os.path.realpath(root / path)).is_relative_to(root)
    else:
        assert found.is_relative_to(root) and found == Path(os.path.realpath(found))


def test_roots_within_folders(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    both = Roots.of([tmp_path]).within(Roots.of([one]))
    assert both == Roots.of([one]) == Roots.of([one]).within(Roots.of([tmp_path]))
    assert Roots.of([one]).within(Roots.of([two])) == Roots(())
    uris = ["file:///a%20b", "https://example.com/a", "file://other/a", "untitled:x"]
    assert folders_of(uris) == [Path("/a b")]
