"""One instruction for several files: what is found, edited, refused and reported.

The model is a chain, whose answer is always "x=9"; test_rename_files.py has the renames by rule.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.editing.rename_files import rename_files
from engine.records import Request
from lsp_server.editing import edit_files, find_files
from lsp_server.editing.edit_files import MAX_FILES
from tests.support.command import FENCE, chain_model
from tests.support.held_model import held
from tests.support.lsp_editor import (
    Asked,
    Editor,
    LocalServer,
    edited,
    local_server,
    parts,
    ready,
    refused,
)

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
CANCELLED, FAILED = -32800, -32803
FILES = {
    "a.py": "def area(x):\n    return x\n",
    "b.py": "from a import area\n\nprint(area(1))\n",
    "c.py": "x=1\n",
    "d.md": "The area of a page.\n",
}
Open = Any  # () -> a connected editor in the folder, whose server is ready


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    root = tmp_path_factory.mktemp("files")
    (root / "server").mkdir()
    model = chain_model(root / "model", "x=9", FENCE)
    with local_server(root / "server", str(model)) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text, newline="")
    return root


@pytest.fixture
def editor(server: LocalServer, folder: Path) -> Open:
    return partial(ready, server.port, folder)


def uris(folder: Path, *names: str) -> list[str]:
    return [(folder / name).as_uri() for name in names]


def asking(instruction: str, files: list[str], **more: Any) -> dict[str, Any]:
    return {"instruction": instruction, "files": files} | more


# -- which files -------------------------------------------------------------------------------


async def test_files_that_define_a_name_come_before_those_that_use_it(
    editor: Open, folder: Path
) -> None:
    async with editor() as one:
        asked = {"instruction": "Speed up `area`"}
        found = (await one.ask("draftline/findFiles", asked))["files"]
        assert [file["uri"] for file in found] == uris(folder, "a.py", "b.py", "d.md")
        assert [file["reason"] for file in found] == ["defines `area`", *["uses `area`"] * 2]
        own = {"textDocument": {"uri": (folder / "b.py").as_uri()}}
        found = (await one.ask("draftline/findFiles", asked | own))["files"]
        assert found[0]["uri"] == own["textDocument"]["uri"]
        plain = await one.ask("draftline/findFiles", {"instruction": "speed up area"})
        assert [file["uri"] for file in plain["files"]] == uris(folder, "a.py")
        nothing = await one.ask("draftline/findFiles", {"instruction": "Translate the comments"})
        assert nothing["files"] == []


async def test_an_open_file_is_found_by_its_text_in_the_editor(editor: Open, folder: Path) -> None:
    async with editor() as one:
        (uri,) = uris(folder, "a.py")
        one.open(uri, "def size(x):\n    return x\n")
        found = await one.ask("draftline/findFiles", {"instruction": "Speed up `area`"})
        assert uri not in [file["uri"] for file in found["files"]]
        found = await one.ask("draftline/findFiles", {"instruction": "Speed up `size`"})
        assert [file["uri"] for file in found["files"]] == [uri]


# -- edits -------------------------------------------------------------------------------------


async def test_files_are_edited_whether_they_are_open_or_not(editor: Open, folder: Path) -> None:
    async with editor() as one:
        (folder / "d.md").write_text("\ufeffx=1")  # editors have no BOM in the text
        opened, closed = uris(folder, "c.py", "d.md")
        one.open(opened, "x=1 # 😋\n")
        tokens = {"workDoneToken": "w", "partialResultToken": "p"}
        answer = await one.ask("draftline/editFiles", asking("nine", [opened, closed], **tokens))
        changes = answer["edit"]["documentChanges"]
        assert [each["textDocument"] for each in changes] == [
            {"uri": opened, "version": 1},
            {"uri": closed, "version": None},
        ]
        notes = answer["edit"]["changeAnnotations"]
        assert [len({each["annotationId"] for each in one["edits"]}) for one in changes] == [1, 1]
        labels = [notes[each["edits"][0]["annotationId"]]["label"] for each in changes]
        assert [label.split()[0] for label in labels] == ["c.py", "d.md"]
        assert all(note["needsConfirmation"] for note in notes.values())
        assert [file["changed"] for file in answer["files"]] == [True, True]
        assert all(file["stats"]["tokens"] > 0 for file in answer["files"])
        began = [each for each in one.progress["p"] if "file" in each]
        assert [(each["file"], each["index"], each["of"]) for each in began] == [
            (opened, 1, 2),
            (closed, 2, 2),
        ]
        percents = [step["percentage"] for step in one.progress["w"][:-1]]
        assert percents == sorted(percents) and one.progress["w"][0]["cancellable"]
        assert edited("x=1", parts(answer["edit"])[closed], one.encoding) == "x=9"
        assert (folder / "d.md").read_text() == "\ufeffx=1", "the server applies nothing"


async def test_a_client_without_document_changes_gets_plain_changes(
    editor: Open, folder: Path
) -> None:
    async with editor(workspace={"workspaceEdit": {}}) as one:
        answer = await one.ask("draftline/editFiles", asking("nine", uris(folder, "c.py")))
        assert set(answer["edit"]) == {"changes"}


async def test_a_rename_changes_every_file_that_uses_the_name_or_none(
    editor: Open, folder: Path
) -> None:
    async with editor() as one:
        files = uris(folder, "a.py", "b.py")
        asked = asking("Rename area to surface", files)
        answer = await one.ask("draftline/editFiles", asked)
        assert {file["rule"] is not None for file in answer["files"]} == {True}
        assert "d.md" in answer["files"][0]["note"]
        for uri, name in zip(files, ("a.py", "b.py"), strict=True):
            one.open(uri, FILES[name])
            answer["edit"]["documentChanges"][files.index(uri)]["textDocument"]["version"] = 1
        one.apply(answer["edit"])
        for uri, name in zip(files, ("a.py", "b.py"), strict=True):
            assert one.texts[uri] == FILES[name].replace("area", "surface")
            one.close(uri)
        for alone, other in ((files[:1], "b.py uses"), (files[1:], "defined in a.py")):
            code, message = await one.fails("draftline/editFiles", asked | {"files": alone})
            assert code == FAILED and other in message


async def test_a_rename_says_if_not_all_files_were_searched(
    editor: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "b.py").unlink()
    for limit, name in ((0, "MAX_SEARCHED_FILES"), (10, "MAX_SEARCHED_BYTES"), (9999, "MAX_FOUND")):
        with monkeypatch.context() as patch:
            patch.setattr(find_files, name, limit)
            async with editor() as one:
                asked = asking("Rename area to surface", uris(folder, "a.py"))
                (file,) = (await one.ask("draftline/editFiles", asked))["files"]
                assert ("not all files" in file["note"]) == (limit < 9999)


async def test_a_bad_file_has_an_error_and_the_others_are_edited(
    editor: Open, folder: Path
) -> None:
    (folder / "binary.py").write_bytes(b"\0\1")
    (folder / "latin.py").write_bytes(b"\xe4")
    (folder / "large.py").write_text("x=1\n" * (5 << 20))
    (folder / "secret.py").write_text("x=1\n")
    (folder / "secret.py").chmod(0)
    os.mkfifo(folder / "pipe.py")
    bad = {
        "binary.py": "a binary file",
        "latin.py": "not UTF-8",
        "large.py": "split it first",
        "pipe.py": "not a regular file",
        "": "a folder",
        "gone.py": "no such file",
    }
    if os.geteuid():
        bad["secret.py"] = "check its permissions"
    async with editor() as one:
        (good,) = uris(folder, "c.py")
        strange = ["https://example.com/a.py", "untitled:Untitled-9"]
        asked = [*uris(folder, *bad), *strange, good, good, good.replace("c.py", "%63.py")]
        answer = await one.ask("draftline/editFiles", asking("nine", asked))
        lines = {file["uri"]: file for file in answer["files"]}
        for name, reason in bad.items():
            error = lines[(folder / name).as_uri()]["error"]
            assert reason in error and "\n" not in error
        assert all("open it first" in lines[uri]["error"] for uri in strange)
        assert [each["textDocument"]["uri"] for each in answer["edit"]["documentChanges"]] == [good]
        assert len(lines) == len(answer["files"]) == len(bad) + 3


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (asking(" ", ["file:///a.py"]), "the instruction is empty"),
        (asking("nine", []), "choose some"),
        (asking("nine", [f"file:///{n}.py" for n in range(1000)]), f"at most {MAX_FILES}"),
        (asking("Rename area to x", ["file:///none.py"]), "in none of these files"),
    ],
)
async def test_a_request_that_cannot_be_made_has_one_error(
    editor: Open, asked: dict[str, Any], reason: str
) -> None:
    async with editor() as one:
        code, message = await one.fails("draftline/editFiles", asked)
        assert code == FAILED and reason in message


async def test_an_answer_that_fails_a_check_has_a_warning_in_its_line(
    editor: Open, folder: Path
) -> None:
    async with editor() as one:
        files = uris(folder, "a.py", "c.py")
        answer = await one.ask("draftline/editFiles", asking("nine", files))
        lost, fine = answer["files"]
        assert lost["warnings"] or lost["error"]
        assert fine["warnings"] == [] and fine["error"] is None


async def test_of_a_file_that_is_too_long_the_named_functions_are_edited(
    editor: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def too_long(request: Request, model: str) -> str | None:
        return None if request.selection else "20 functions are too many"

    monkeypatch.setattr(edit_files, "too_long", too_long)
    text = "".join(f"def f_{number}():\n    return 1\n\n\n" for number in range(20))
    (folder / "long.py").write_text(text, newline="")
    async with editor(settings={"checks": False}) as one:
        files = uris(folder, "long.py", "d.md")
        answer = await one.ask("draftline/editFiles", asking("Make f_3() and f_5() nine", files))
        done, prose = answer["files"]
        new = edited(text, parts(answer["edit"])[files[0]], one.encoding)
        body = "def f_{}():\n    return 1\n"
        assert new == text.replace(body.format(3), "x=9\n").replace(body.format(5), "x=9\n")
        assert "only the functions" in done["note"] and done["stats"]["requests"] == 2
        assert "name the functions" in prose["error"]
        many = "Make " + ", ".join(f"f_{number}()" for number in range(20)) + " nine"
        answer = await one.ask("draftline/editFiles", asking(many, files[:1]))
        assert answer["edit"] is None and "be more specific" in answer["files"][0]["error"]


# -- meanwhile ---------------------------------------------------------------------------------


async def running(one: Editor, count: int) -> None:
    """Wait until the server asks so much of the model at once."""
    while (await one.command("stats"))["running"] < count:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", ["deleted", "changed", "opened", "typed"])
async def test_a_file_that_changes_meanwhile_is_left_out(
    editor: Open, folder: Path, server: LocalServer, how: str
) -> None:
    async with editor() as one:
        first, second = uris(folder, "c.py", "d.md")
        if how == "typed":
            one.open(first, FILES["c.py"])
        with held(server.shared_engine.engine):
            asked = one.begin("draftline/editFiles", asking("nine", [first, second]), 7)
            await running(one, 1)
            match how:
                case "deleted":
                    (folder / "c.py").unlink()
                case "changed":
                    (folder / "c.py").write_text("y=1\n")
                case "opened":
                    one.open(first, "y=1\n")
                case _:
                    one.type(first, 0, "y")
            await one.command("status")
        answer = one.json(await asked)
        assert answer["files"][0]["error"] and not answer["files"][0]["changed"]
        assert list(parts(answer["edit"])) == [second]


async def test_a_file_that_is_opened_meanwhile_has_its_version(
    editor: Open, folder: Path, server: LocalServer
) -> None:
    async with editor() as one:
        (uri,) = uris(folder, "c.py")
        with held(server.shared_engine.engine):
            asked = one.begin("draftline/editFiles", asking("nine", [uri]), 7)
            await running(one, 1)
            one.open(uri, FILES["c.py"])
            await one.command("status")
        one.apply(one.json(await asked)["edit"])
        assert one.texts[uri] == "x=9\n"


@pytest.mark.parametrize("method", ["edit", "editFiles"])
@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "vscode-notebook-cell:/p/a.ipynb#W0sZm%3D"])
async def test_a_document_without_a_file_is_of_its_language(
    editor: Open, uri: str, method: str
) -> None:
    """A rename in it is exact: the string, and the loop's own variable, are something else."""
    text = "def total(items):\n    s = 'items'\n    return [i for i in items]\n"
    async with editor() as one:
        one.open(uri, text)
        asked: Any = {"instruction": "Rename items to entries"}
        asked |= {"textDocument": one.doc(uri)} if method == "edit" else {"files": [uri]}
        answer = await one.ask(f"draftline/{method}", asked)
        one.apply(answer["edit"])
        assert one.texts[uri] == text.replace("items)", "entries)").replace("items]", "entries]")


VUE = '<script>import { load } from "./api"</script>\n'


@pytest.mark.parametrize("answer", ["Rename Anyway", "Cancel", None])
async def test_the_user_is_asked_about_a_file_that_is_not_read_as_code(
    editor: Open, folder: Path, answer: str | None
) -> None:
    (folder / "api.ts").write_text("export function load(p: number) { return p }\n")
    (folder / "View.vue").write_text(VUE)
    (home,) = uris(folder, "api.ts")
    async with editor() as one:
        one.open(home, "export function load(p: number) { return p }\n")
        asked = Asked(one, answer)
        begun = one.begin("draftline/editFiles", asking("Rename load to read", [home]))
        if answer == "Rename Anyway":
            made = one.json(await begun)
            one.apply(made["edit"])
            (file,) = made["files"]
            assert "`load` stays in View.vue" in file["note"]
        else:
            code, message = await refused(begun)
            assert code == FAILED and message.startswith("View.vue has `load`")
        (question,) = asked.questions
        assert "View.vue has `load`, and it cannot be read as code" in question.message
        assert asked.titles == ["Rename Anyway", "Cancel"]
    new = "read" if answer == "Rename Anyway" else "load"
    assert one.texts[home] == f"export function {new}(p: number) {{ return p }}\n"
    assert (folder / "View.vue").read_text() == VUE


@pytest.mark.parametrize("output", [0, 2 << 20])
async def test_a_client_that_cannot_ask_gets_the_files_in_the_error(
    editor: Open, folder: Path, output: int
) -> None:
    """Among them a notebook that is too large for the index."""
    text = '{"source": "import a\\narea(1)", "outputs": "' + "x " * (output // 2) + '"}'
    (folder / "n.ipynb").write_text(text)
    async with editor() as one:
        asked = asking("Rename area to surface", uris(folder, "a.py", "b.py"))
        code, message = await one.fails("draftline/editFiles", asked)
        assert code == FAILED and message.startswith("n.ipynb has `area`")


async def test_a_rename_of_which_a_file_changes_meanwhile_is_refused(
    editor: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a rename would break the code."""

    def rename_and_change(*args: Any) -> Any:
        (folder / "b.py").write_text("from a import area  # new\n")
        return rename_files(*args)

    monkeypatch.setattr(edit_files, "rename_files", rename_and_change)
    async with editor() as one:
        asked = asking("Rename area to surface", uris(folder, "a.py", "b.py"))
        code, message = await one.fails("draftline/editFiles", asked)
        assert code == FAILED and "b.py: the text changed" in message
        asked = asking("Rename area to surface", uris(folder, "a.py", "b.py", "gone.py"))
        code, message = await one.fails("draftline/editFiles", asked)
        assert code == FAILED and "gone.py: no such file" in message


@pytest.mark.parametrize("how", ["request", "command", "newer"])
async def test_a_cancelled_request_changes_nothing(
    editor: Open, folder: Path, server: LocalServer, how: str
) -> None:
    async with editor() as one:
        files = uris(folder, "c.py", "d.md")
        newer = None
        with held(server.shared_engine.engine):
            asked = one.begin("draftline/editFiles", asking("nine", files), 7)
            await running(one, 1)
            match how:
                case "request":
                    one.tell("$/cancelRequest", {"id": 7})
                case "command":
                    await one.command("cancel")
                case _:
                    newer = one.begin("draftline/editFiles", asking("nine", files), 8)
                    await running(one, 2)
        assert (await refused(asked))[0] == CANCELLED
        if newer:
            assert len(one.json(await newer)["files"]) == 2
