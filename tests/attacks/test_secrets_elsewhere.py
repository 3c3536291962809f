"""Secrets beside an engine of another machine: whatever an editor or a command asks, the texts of
files that may hold secrets, and of ignored ones that nobody asked about, stay here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.rag.answer import prepare
from engine.rag.summarize import summarize
from engine.records import Passage, Request, RequestError
from engine.remote.openai_engine import OpenAiEngine
from engine.remote.secret_texts import without_secrets
from index.documents.documents import Documents
from index.workspace.workspace import Workspace
from tests.support.command import draftline
from tests.support.encoders import Bytes
from tests.support.lsp_editor import Editor, connected, local_server
from tests.support.recording_server import RecordingServer, recording_server

PASSWORD = "correct-battery-staple"  # in a file whose name says it: its text looks like any other
KEY = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"  # in a file with a harmless name
IGNORED = "nothing_for_others"
FILES = {
    ".env": f"def load_password(): return '{PASSWORD}'\n",
    "settings.py": f"def load_key():\n    return '{KEY}'\n",
    "ignored.py": f"def load_ignored(): return '{IGNORED}'\n",
    ".gitignore": "ignored.py\n",
    "app.py": "import x\n\nload_password\nload_key\nload_ignored\n",
}
ALL = (PASSWORD, KEY, IGNORED)
INVOKED, AUTOMATIC = 1, 2


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RecordingServer]:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    with recording_server("```\nx = 1\n```\n") as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for name, text in FILES.items():
        (root / name).write_text(text)
    return root


@asynccontextmanager
async def editor(server: RecordingServer, root: Path) -> AsyncIterator[Editor]:
    """An editor with all files open, whose index is up to date."""
    with local_server(root.parent, elsewhere=server.url) as lsp:
        async with connected(lsp.port) as one:
            await one.hello(root, settings={"debounceMs": 0, "maxTimeMs": 60_000})
            for name in FILES:
                one.open((root / name).as_uri(), FILES[name])
            await one.ready()
            server.take()
            yield one


def uri(root: Path, name: str) -> str:
    return (root / name).as_uri()


def sent(server: RecordingServer) -> list[str]:
    """The secrets that were sent since the last call."""
    bodies = server.take()
    return [one for one in ALL if one in bodies]


async def completed(one: Editor, uri: str, trigger: int, line: int = 0) -> list[Any]:
    where = {"textDocument": {"uri": uri}, "position": {"line": line, "character": 0}}
    asked = where | {"context": {"triggerKind": trigger}}
    made = await one.ask("textDocument/inlineCompletion", asked)
    return list(made["items"])


@pytest.mark.asyncio
async def test_completions(server: RecordingServer, root: Path) -> None:
    """None in files that are not for others, and none of their text in those of other files."""
    async with editor(server, root) as one:
        for name in (".env", "settings.py", "ignored.py"):
            for trigger in (AUTOMATIC, INVOKED):
                assert await completed(one, uri(root, name), trigger) == []
            popup = {"textDocument": {"uri": uri(root, name)}}
            where = {"position": {"line": 0, "character": 0}}
            assert not (await one.ask("textDocument/completion", popup | where))["items"]
            assert server.take() == ""
            assert name in (await one.command("why"))["why"]
        told = [message.message for message in one.messages]
        assert [name for name in FILES if any(f"{name}: " in each for each in told)] == [
            ".env",
            "settings.py",
            "ignored.py",
        ], "a completion on request is answered with a message"
        await completed(one, uri(root, "app.py"), AUTOMATIC, line=1)
        assert "load_password" in server.bodies[0]
        assert sent(server) == []


@pytest.mark.asyncio
async def test_what_git_keeps_is_not_for_others(server: RecordingServer, root: Path) -> None:
    """Such as the message of `git commit --verbose`, with the whole diff; wherever its file is."""
    async with editor(server, root) as one:
        for folder in (root / ".git", root.parent / "main" / ".git" / "worktrees" / "root"):
            message = one.open((folder / "COMMIT_EDITMSG").as_uri(), f"\n# +{PASSWORD}\n")
            assert await completed(one, message, AUTOMATIC) == []
            assert server.take() == ""


@pytest.mark.asyncio
async def test_edits_and_questions(server: RecordingServer, root: Path) -> None:
    """A file that may hold secrets is refused; what was asked about other files has none of it."""
    async with editor(server, root) as one:
        for name in (".env", "settings.py"):
            named = {"textDocument": {"uri": uri(root, name)}}
            asked = [
                ("draftline/edit", named | {"instruction": "Do something nice"}),
                ("draftline/ask", named | {"question": "What is it?"}),
                ("draftline/explain", named),
            ]
            for method, params in asked:
                _, message = await one.fails(method, params)
                assert message.startswith(f"{name}: may hold secrets"), method
                assert ".draftlineindex" in message and "127.0.0.1" in message
            files = [uri(root, name), uri(root, "app.py")]
            many = {"files": files, "instruction": "Do something nice"}
            answer = await one.ask("draftline/editFiles", many)
            assert "may hold secrets" in answer["files"][0]["error"]
            assert not answer["files"][1]["error"]
            assert "load_password" in server.bodies[0] and sent(server) == []
        edit = {"textDocument": {"uri": uri(root, "app.py")}, "instruction": "Do something nice"}
        await one.ask("draftline/edit", edit)
        await one.ask("draftline/findFiles", {"instruction": "Use `load_password` everywhere"})
        assert sent(server) == []
        own = {"textDocument": {"uri": uri(root, "ignored.py")}, "question": "What is it?"}
        await one.ask("draftline/ask", own)
        assert sent(server) == [IGNORED], "a question about an ignored file sends it"


@pytest.mark.asyncio
async def test_a_chat_leaves_secrets_out_and_says_so(server: RecordingServer, root: Path) -> None:
    async with editor(server, root) as one:
        start = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 3}}
        problem = {"uri": uri(root, ".env"), "range": start, "message": f"is {PASSWORD}"}
        asked = {
            "messages": [{"role": "user", "content": "What is load_password?"}],
            "context": [{"uri": uri(root, name)} for name in (".env", "settings.py", "app.py")],
            "diagnostics": [problem],
        }
        answer = await one.ask("draftline/chat", asked)
        assert [note.split(":")[0] for note in answer["notes"]] == [".env", "settings.py"]
        assert "load_ignored" in server.bodies[0] and sent(server) == []


@pytest.mark.asyncio
async def test_next_edits(server: RecordingServer, root: Path) -> None:
    """What was changed in a secret file, or was a secret before, asks for no edit elsewhere."""
    async with editor(server, root) as one:
        app, env = uri(root, "app.py"), uri(root, ".env")
        one.type(env, "def load_password", "_again")
        settings = uri(root, "settings.py")
        one.type(settings, "return ", "load_other()", f"'{KEY}'")
        for where in (app, env, settings):
            asked = {"textDocument": one.doc(where), "position": {"line": 2, "character": 0}}
            await one.ask("draftline/nextEdit", asked)
            assert sent(server) == []
        one.type(app, "import ", "y", "x")
        asked = {"textDocument": one.doc(app), "position": {"line": 2, "character": 0}}
        await one.ask("draftline/nextEdit", asked)
        assert sent(server) == []


@pytest.mark.asyncio
async def test_a_commit_message(server: RecordingServer, root: Path) -> None:
    """The changes of secret files are left out of what git writes, and a message says so."""
    async with editor(server, root) as one:
        subprocess.run(["git", "add", "-f", "."], cwd=root, check=True)
        diff = subprocess.check_output(["git", "diff", "--cached"], cwd=root, text=True)
        assert all(secret in diff for secret in ALL)
        answer = await one.ask("draftline/commitMessage", {"diff": diff})
        assert {note.split(":")[0] for note in answer["notes"]} == {".env", "settings.py"}
        assert len(one.messages) == 2
        assert "import x" in server.bodies[0] and sent(server) == [IGNORED]  # which git has now
        subprocess.run(["git", "reset", "-q"], cwd=root, check=True)
        subprocess.run(["git", "add", "-f", ".env"], cwd=root, check=True)
        diff = subprocess.check_output(["git", "diff", "--cached"], cwd=root, text=True)
        _, message = await one.fails("draftline/commitMessage", {"diff": diff})
        assert message.startswith(".env: may hold secrets") and server.take() == ""


@pytest.mark.asyncio
async def test_a_part_of_a_secret_file_is_judged_as_the_file(
    server: RecordingServer, root: Path
) -> None:
    """Lines without the one that tells, in a question and in a diff without context."""
    body = [f"{PASSWORD}{n:048d}" for n in range(4)]
    lines = ["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", ""]
    key = root / "gateway.txt"
    key.write_text("\n".join(lines))
    subprocess.run(["git", "add", "-f", "gateway.txt"], cwd=root, check=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "key"]
    subprocess.run(git, cwd=root, check=True)
    key.write_text("\n".join([lines[0], *reversed(body), *lines[-2:]]))
    diff = subprocess.check_output(["git", "diff", "-U0", "gateway.txt"], cwd=root, text=True)
    assert PASSWORD in diff and "BEGIN" not in diff.partition("@@")[2].replace("@@ -----BEGIN", "")
    async with editor(server, root) as one:
        where = one.open(key.as_uri(), key.read_text())
        some = {"start": {"line": 2, "character": 0}, "end": {"line": 4, "character": 0}}
        asked = {"textDocument": {"uri": where}, "range": some}
        for method in ("draftline/ask", "draftline/explain"):
            _, message = await one.fails(method, asked | {"question": "What is it?"})
            assert message.startswith("gateway.txt: may hold secrets")
        _, message = await one.fails("draftline/commitMessage", {"diff": diff})
        assert message.startswith("gateway.txt: may hold secrets") and server.take() == ""


@pytest.mark.asyncio
async def test_what_draftlineindex_names_is_sent(server: RecordingServer, root: Path) -> None:
    (root / ".draftlineindex").write_text(".env\n")
    async with editor(server, root) as one:
        named = {"textDocument": {"uri": uri(root, ".env")}, "question": "What is it?"}
        await one.ask("draftline/ask", named)
        assert sent(server) == [PASSWORD]


@pytest.mark.parametrize("name", [".env", "settings.py"])
def test_commands(server: RecordingServer, root: Path, name: str) -> None:
    options = ["--engine", str(server.url)]
    commands = [
        ["edit", name, "-i", "Do something nice"],
        ["ask", name, "-q", "What is load_password and load_key?"],
        ["summarize", name],
    ]
    for command in commands:
        done = draftline(root, *command, *options, cache=root.parent)
        assert done.returncode == 2 and f"{name}: may hold secrets".encode() in done.stderr, command
        assert sent(server) == []
    (root / ".draftlineindex").write_text(name)
    draftline(root, *commands[0], *options, cache=root.parent)
    assert len(sent(server)) == 1


def test_every_text_of_a_request_is_judged(tmp_path: Path) -> None:
    """Of the fields that are texts of files; and a request without secrets stays the same."""
    key = f"key = '{KEY}'\n"
    for request in (
        Request("edit", "a = 1\n", path=str(tmp_path / "id_rsa")),
        Request("edit", "a = 1\n", path=str(tmp_path / ".aws" / "config")),
        Request("edit", key, path="a.py"),
        Request("complete", "x", suffix=key),
        Request("edit", "a = 1\n", update=key),
        Request("chat", messages=({"role": "user", "content": "x"},), predictions=(key,)),
        Request("chat", documents=(Passage("d", 0, key),)),
    ):
        with pytest.raises(RequestError, match="may hold secrets"):
            without_secrets(request, "host", None)
    with_snippets = Request("complete", "x", snippets=(("a.py", "a"), (".env", "b"), ("c.py", key)))
    assert without_secrets(with_snippets, "host", None).snippets == (("a.py", "a"),)
    harmless = Request("edit", "a = 1\n", path="a.py", snippets=(("b.py", "b"),))
    assert without_secrets(harmless, "host", None) is harmless


def test_links_to_secrets_are_secrets(tmp_path: Path) -> None:
    """By symbolic and by hard link."""
    (tmp_path / ".env").write_text(FILES[".env"])
    (tmp_path / "soft.py").symlink_to(".env")
    os.link(tmp_path / ".env", tmp_path / "hard.py")
    with Workspace(tmp_path, Bytes()) as workspace:
        workspace.build()
        for name in ("soft.py", "hard.py"):
            request = Request("edit", FILES[".env"], path=str(tmp_path / name))
            with pytest.raises(RequestError, match=f"{name}: may hold secrets"):
                without_secrets(request, "host", workspace)


def test_documents(server: RecordingServer, tmp_path: Path) -> None:
    """As the page and MCP ask about them."""
    (tmp_path / "secrets.txt").write_text(f"load_key is {PASSWORD}\n")
    with OpenAiEngine(server.url) as engine, Documents() as documents:
        server.take()
        added = documents.add(tmp_path / "secrets.txt", "secrets.txt")
        with pytest.raises(RequestError, match=r"secrets.txt: may hold secrets"):
            prepare("What is load_key?", documents, [added.id], engine, engine.context)
        with pytest.raises(RequestError, match=r"secrets.txt: may hold secrets"):
            list(summarize(engine, added))
        assert server.take() == ""
