"""Edits and their cancellation, as an editor sees them.

The models are chains, in which each token has one successor, so every answer is known. test_real.py
and test_default_model.py run real models.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.editing.edits import apply
from engine.records import Done, Request
from lsp_server.shared_engine import SharedEngine
from tests.support import lsp_editor
from tests.support.command import FENCE, chain_model
from tests.support.held_model import unfinished
from tests.support.lsp_editor import (
    Editor,
    LocalServer,
    local_server,
    parts,
    ready,
    refused,
)

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/app.py"
SLOW = "".join(chr(code) for code in range(33, 127) if code != 96)  # a long answer
CANCELLED, MODIFIED, FAILED, INVALID = -32800, -32801, -32803, -32602
PIECES = ["x", "=", "1", " ", "é", "e\u0301", "😋", "\n", "\r\n", "\r", "\f", "\u2028", "\t"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalServer]]:
    """Servers of three models, with a short, a long and an endless answer."""
    root = tmp_path_factory.mktemp("features")
    models = {
        "short": chain_model(root / "short", "x=9", FENCE),
        "slow": chain_model(root / "slow", SLOW, FENCE),
        "endless": chain_model(root / "endless", "x=9", "\n", 20000),
    }
    folders = {name: root / f"of {name}" for name in models}
    for folder in folders.values():
        folder.mkdir()
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(local_server(folders[name], str(models[name])))
            for name in models
        }


Engines = dict[str, SharedEngine]  # by model
Open = Any  # (model, **initialize) -> a connected editor whose server is ready


@pytest.fixture
def engines(servers: dict[str, LocalServer]) -> Engines:
    return {name: server.shared_engine for name, server in servers.items()}


@pytest.fixture
def editor(servers: dict[str, LocalServer]) -> Open:
    return lambda model="short", *roots, **hello: ready(servers[model].port, *roots, **hello)


def asking(editor: Editor, part: str = "", **more: Any) -> dict[str, Any]:
    return lsp_editor.asking(editor, URI, part, **more)


def long_text() -> str:
    return "".join(f"value_{number} = {number}\n" for number in range(60))


# -- edits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_the_client_gets_the_engines_text_by_applying_the_edit(
    editor: Open, encoding: str
) -> None:
    """For texts with every kind of line end, combining mark and surrogate pair."""
    chance = random.Random(encoding)
    async with editor(encoding=encoding) as one:
        for number in range(15):
            text = "".join(chance.choices(PIECES, k=chance.randrange(40)))
            ends = [at for at in range(len(text) + 1) if text[at - 1 : at + 1] != "\r\n" or not at]
            start, stop = sorted(chance.choices(ends, k=2))
            selection = (start, stop) if number else None
            uri = one.open(f"untitled:{number}", text)
            where = {"start": one.at(uri, start), "end": one.at(uri, stop)}
            params = {
                "textDocument": one.doc(uri),
                "instruction": "make it nine",
                "partialResultToken": uri,
            } | ({"range": where} if selection else {})
            answer = await one.ask("draftline/edit", params)
            request = Request("edit", text, selection=selection, instruction="make it nine")
            wanted = apply(request, Done("stop", one.partial[uri], matched=FENCE))
            assert one.partial[uri] == "x=9"
            if answer["edit"] is None:
                assert wanted == text
            else:
                one.apply(answer["edit"])
                assert one.texts[uri] == wanted
                assert (await one.ask("draftline/edit", params | {"textDocument": one.doc(uri)}))[
                    "stats"
                ]["tokens"], "the server has another text"


async def test_a_rule_renames_without_the_model(editor: Open) -> None:
    text = "def f(x):\n    return x\n\nf(x=1)\n"
    async with editor() as one:
        one.open(URI, text)
        params = asking(one, "def f(x)", instruction="Rename x to total", keepDefinitions=True)
        answer = await one.ask("draftline/edit", params)
        (note,) = answer["edit"]["changeAnnotations"].values()
        assert note["label"] == "made by rule: `x` renamed to `total` in 3 places"
        assert answer["stats"]["rule"] == "`x` renamed to `total` in 3 places"
        assert answer["stats"]["tokens"] == 0
        one.apply(answer["edit"])
        assert one.texts[URI] == text.replace("x", "total")
        asked = one.begin("draftline/edit", asking(one, "def f", instruction="Rename y to total"))
        code, message = await refused(asked)
        assert code == FAILED and "`y` is not in the selection" in message


async def test_an_edit_is_tried_by_the_command_of_the_settings(
    editor: Open, tmp_path: Path
) -> None:
    """The command sees open documents as they are, and the folder of the file."""
    (tmp_path / "a.py").write_text("x=1\n")
    (tmp_path / "b.py").write_text("saved\n")
    uri, other = (tmp_path / "a.py").as_uri(), (tmp_path / "b.py").as_uri()
    async with editor() as one:
        one.open(uri, "x=1\n")
        one.open(other, "typed\n")
        asked = lsp_editor.asking(one, uri, "x=1")
        answer = await one.ask("draftline/edit", asked)
        assert answer["seen"] == "not run: syntax, lost definitions and names looked at"
        for command in ("grep -q x=9 a.py", "grep -q typed b.py", "grep -q x=1 a.py"):
            one.configure(check=command, checkCandidates=2)
            answer = await one.ask("draftline/edit", asked)
            if command.endswith("x=1 a.py"):
                assert answer["warnings"] == [f"`{command}` fails with exit code 1"]
                assert answer["seen"] == f"check this: {answer['warnings'][0]}"
                assert answer["stats"]["requests"] == 2
            else:
                assert answer["seen"] == f"checked by {command}" and not answer["warnings"]
        one.configure(check="no-such-program")
        code, message = await refused(one.begin("draftline/edit", asked))
        assert code == FAILED and message.startswith("no-such-program: no such program: install it")
    assert (tmp_path / "a.py").read_text() == "x=1\n"


async def test_a_shown_edit_is_tried_by_a_command_that_the_user_types(
    editor: Open, tmp_path: Path
) -> None:
    """What was to be checked before stays so; the command fails without the edit, or with it."""
    (tmp_path / "a.py").write_text("x=1\n")
    uri = (tmp_path / "a.py").as_uri()
    async with editor() as one:
        one.open(uri, "x=9\n")

        async def seen(command: str, *warnings: str, before: str = "x=1\n") -> str:
            known = {"before": before, "command": command, "warnings": warnings}
            document = {"textDocument": {"uri": uri, "version": 1}}
            answer = await one.ask("draftline/tryEdit", document | known)
            return str(answer["seen"])

        assert await seen("grep -q x=9 a.py") == "checked by grep -q x=9 a.py"
        fails = "check this: `grep -q x=1 a.py` fails with exit code 1"
        assert await seen("grep -q x=1 a.py") == fails
        assert await seen("grep -q x=1 a.py", "`grep -q x=1 a.py` fails: it did") == fails
        assert await seen("false") == (
            "check this: `false` fails with exit code 1 (it fails without the edit, too)"
        )
        assert await seen("true", "`f` would be lost") == "check this: `f` would be lost"
        for command, before, why in (
            ("no-such-program", "x=1\n", "no-such-program: no such program: install it"),
            ("true && false", "x=1\n", "no shell reads it"),
            ("'", "x=1\n", "correct the quotes"),
            ("true", "x=9\n", "a.py: no change is left to check"),
        ):
            code, message = await refused(asyncio.ensure_future(seen(command, before=before)))
            assert code == FAILED and why in message
    assert (tmp_path / "a.py").read_text() == "x=1\n"


async def test_an_edit_that_fails_a_check_is_asked_for_again_and_has_a_warning(
    editor: Open,
) -> None:
    """The model's answer, "x=9", drops the function, and so does its second."""
    async with editor() as one:
        one.open(URI, "def a():\n    pass\n\n\nx=1\n")
        tokens = {"workDoneToken": "w", "partialResultToken": "p"}
        answer = await one.ask("draftline/edit", asking(one, "def a():\n    pass", **tokens))
        assert answer["warnings"] == ["`a` would be lost"] and answer["note"] is None
        assert answer["stats"]["requests"] == 2
        assert one.partial["p"] == "x=9"  # the second answer's
        assert "asking again" in [each.get("message") for each in one.progress["w"]]
        (note,) = answer["edit"]["changeAnnotations"].values()
        assert "`a` would be lost" in note["label"] and note["needsConfirmation"]
        fine = await one.ask("draftline/edit", asking(one, "x=1"))
        assert fine["warnings"] == [] and fine["stats"]["requests"] == 1
        one.configure(checks=False)
        text = asking(one, "def a():\n    pass")
        unchecked = await one.ask("draftline/edit", text)
        assert unchecked["warnings"] == [] and unchecked["stats"]["requests"] == 1
        one.open(URI, "x=9\n")
        same = await one.ask("draftline/edit", asking(one, "x=9") | {"instruction": "Fix `abc`."})
        assert same["edit"] is None and "`abc` does not occur" in same["note"]


async def test_an_edit_with_a_warning_is_applied_only_where_the_client_shows_the_warning(
    editor: Open,
) -> None:
    """The command makes the client apply what it gets."""
    text, able = "def a():\n    pass\n\n\nx=1\n", {"applyEdit": True}
    for edits in (
        {"documentChanges": True},
        {"documentChanges": True, "changeAnnotationSupport": {}},
    ):
        async with editor(workspace=able | {"workspaceEdit": edits}) as one:
            one.open(URI, text)
            done = await one.command("edit", asking(one, "def a():\n    pass"))
            shown = "changeAnnotationSupport" in edits
            assert (done["applied"], bool(one.applied)) == (shown, shown)
            assert done["warnings"] == ["`a` would be lost"] and done["edit"]
            messages = [each.message for each in one.messages]
            assert any("not applied: `a` would be lost" in each for each in messages) != shown
            assert (await one.command("edit", asking(one, "x=1")))["applied"]


async def test_an_edit_is_small_versioned_and_annotated_and_reports_progress(editor: Open) -> None:
    async with editor() as one:
        one.open(URI, "a = 1\nx=1 # 😋\nb = 2\n")
        params = asking(one, "x=1 # 😋", workDoneToken="w", partialResultToken="p")
        answer = await one.ask("draftline/edit", params)
        (change,) = answer["edit"]["documentChanges"]
        (edit,) = change["edits"]
        assert change["textDocument"] == {"uri": URI, "version": 1}
        assert edit["range"]["start"] == {"line": 1, "character": 2}
        assert edit["range"]["end"] == {"line": 1, "character": 8}  # UTF-16
        assert edit["newText"] == "9"
        note = answer["edit"]["changeAnnotations"][edit["annotationId"]]
        assert note == {"label": "make it nine", "needsConfirmation": True}
        kinds = [step["kind"] for step in one.progress["w"]]
        assert kinds == ["begin", *["report"] * (len(kinds) - 2), "end"] and len(kinds) > 2
        percents = [step["percentage"] for step in one.progress["w"][:-1]]
        assert percents == sorted(percents) and one.progress["w"][0]["cancellable"]
        stats = answer["stats"]
        assert stats["tokens"] > 0 and stats["promptTokens"] > 0 and stats["tokensPerSecond"] > 0


async def test_a_client_without_document_changes_gets_plain_changes(editor: Open) -> None:
    for able, key in (({}, "changes"), ({"documentChanges": True}, "documentChanges")):
        async with editor(workspace={"workspaceEdit": able}) as one:
            one.open(URI, "x=1\n")
            answer = await one.ask("draftline/edit", asking(one))
            assert set(answer["edit"]) == {key}
            assert parts(answer["edit"])[URI][0]["newText"] == "9"
            assert "annotationId" not in parts(answer["edit"])[URI][0]


async def test_an_answer_that_changes_nothing_has_no_edit(editor: Open) -> None:
    async with editor() as one:
        one.open(URI, "x=9\n")
        assert (await one.ask("draftline/edit", asking(one)))["edit"] is None
        done = await one.command("edit", asking(one))
        assert (done["applied"], done["edit"], one.applied) == (False, None, [])


async def test_empty_and_unsaved_documents_are_edited(editor: Open) -> None:
    async with editor() as one:
        uri = one.open("untitled:Untitled-1", "")
        params = {"textDocument": {"uri": uri}, "instruction": "write it"}
        one.apply((await one.ask("draftline/edit", params))["edit"])
        assert one.texts[uri] == "x=9\n"


async def test_the_command_applies_its_edit(editor: Open) -> None:
    async with editor() as one:
        one.open(URI, "x=1\n")
        done = await one.command("edit", asking(one))
        assert done["applied"] and one.texts[URI] == "x=9\n" and one.applied == [done["edit"]]
        assert (await one.ask("draftline/edit", asking(one)))[
            "edit"
        ] is None  # the server has the new text


@pytest.mark.parametrize("takes", [False, None])
async def test_an_edit_that_the_client_does_not_apply_is_in_the_answer(
    editor: Open, takes: bool | None
) -> None:
    async with editor() as one:
        one.takes_edits = takes
        one.open(URI, "x=1\n")
        done = await one.command("edit", asking(one))
        assert not done["applied"] and parts(done["edit"])[URI][0]["newText"] == "9"


async def test_speculation_does_not_change_an_edit(editor: Open) -> None:
    answers = []
    for speculation in (True, False):
        async with editor("slow", settings={"speculation": speculation}) as one:
            one.open(URI, f"a\n{SLOW[:50]}\n")
            answer = await one.ask("draftline/edit", asking(one))
            answers.append(answer["edit"])
            assert bool(answer["stats"]["acceptedShare"]) == speculation
    assert answers[0] == answers[1]


async def test_an_edit_of_another_version_is_refused(editor: Open) -> None:
    async with editor() as one:
        one.open(URI, "x=1\n")
        old = asking(one)
        one.type(URI, 0, "y")
        for method in ("draftline/edit", "draftline/ask", "draftline/explain"):
            code, message = await one.fails(method, old | {"question": "why?"})
            assert code == MODIFIED and message.startswith("app.py: the text changed")


# -- cancelling --------------------------------------------------------------------------------


async def begun(one: Editor, text: str) -> asyncio.Future[Any]:
    """An edit whose answer has begun to stream."""
    one.open(URI, text)
    asked = one.begin("draftline/edit", asking(one, partialResultToken="p", workDoneToken="w"), 7)
    await one.until(lambda: one.partial.get("p"))
    return asked


@pytest.mark.parametrize("how", ["request", "progress", "command", "newer"])
async def test_an_edit_is_cancelled(editor: Open, engines: Engines, how: str) -> None:
    async with editor("endless", settings={"speculation": False}) as one:
        with unfinished(engines["endless"].engine):
            asked = await begun(one, long_text())
            newer = None
            if how == "request":
                one.tell("$/cancelRequest", {"id": 7})
            elif how == "progress":
                one.tell("window/workDoneProgress/cancel", {"token": "w"})
            elif how == "command":
                assert await one.command("cancel") == {"cancelled": 1}
            else:
                newer = one.begin("draftline/edit", asking(one))
            code, message = await refused(asked)
            assert code == CANCELLED and message
            if newer is not None:
                one.tell("$/cancelRequest", {"id": 8})  # no such request
                assert await one.command("cancel") == {"cancelled": 1}
                assert (await refused(newer))[0] == CANCELLED
        await one.idle()
        stats = await one.command("stats")
        assert stats["state"] == "ready" and stats["answers"]["cancelled"] >= 1
        assert one.progress["w"][-1]["kind"] == "end"
        assert await one.command("cancel") == {"cancelled": 0}


async def test_the_command_is_cancelled_with_its_request(editor: Open, engines: Engines) -> None:
    async with editor("endless", settings={"speculation": False}) as one:
        one.open(URI, long_text())
        named = {
            "command": "draftline.edit",
            "arguments": [asking(one, partialResultToken="p")],
        }
        with unfinished(engines["endless"].engine):
            asked = one.begin("workspace/executeCommand", named, 7)
            await one.until(lambda: one.partial.get("p"))
            one.tell("$/cancelRequest", {"id": 7})
            assert (await refused(asked))[0] == CANCELLED
        await one.idle()
        assert one.applied == []


async def test_the_status_is_busy_during_a_request(editor: Open) -> None:
    async with editor() as one:
        one.open(URI, "x=1\n")
        one.states.clear()
        await one.ask("draftline/edit", asking(one))
        await one.until(lambda: len(one.states) >= 2)
        assert [state["state"] for state in one.states] == ["busy", "ready"]
        assert one.states[-1]["tokensPerSecond"] > 0


# -- bad input ---------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("edit", {"textDocument": {"uri": "file:///no.py"}}, INVALID, "file:///no.py: not an open"),
    ("edit", {"instruction": " "}, FAILED, "the instruction is empty"),
    ("edit", {"instruction": 7}, INVALID, "params.instruction: not a string"),
    ("edit", {"range": {"start": {"line": -1, "character": 0}}}, INVALID, "params.range"),
    ("edit", {"range": []}, INVALID, "params.range"),
    ("edit", {"workDoneToken": 1.5}, INVALID, "params.workDoneToken"),
    ("edit", {"textDocument": {"uri": URI, "version": 99}}, MODIFIED, "app.py"),
    ("edit", {"textDocument": {"uri": URI, "version": "1"}}, INVALID, "params.textDocument"),
    ("ask", {"question": "\n"}, FAILED, "the question is empty"),
    ("ask", {"question": None}, INVALID, "params.question"),
    ("ask", {"textDocument": {"uri": "x"}, "question": "?"}, INVALID, "x: not an open"),
    ("explain", {"textDocument": None}, INVALID, "params.textDocument"),
    ("nextEdit", {"position": {"line": "1", "character": 0}}, INVALID, "params.position.line"),
    ("nextEdit", {}, INVALID, "params.position: missing"),
]


@pytest.mark.parametrize(("method", "wrong", "code", "message"), BAD)
async def test_bad_input_gets_one_error_and_changes_nothing(
    editor: Open, method: str, wrong: dict[str, Any], code: int, message: str
) -> None:
    async with editor() as one:
        one.open(URI, "x=1\n")
        base = {"textDocument": one.doc(URI)}
        given = base | ({"instruction": "make it nine"} if method == "edit" else {}) | wrong
        found = await one.fails(f"draftline/{method}", given)
        assert found[0] == code and found[1].startswith(message), found
        assert one.messages == [] and (await one.command("stats"))["running"] == 0
        one.apply((await one.ask("draftline/edit", asking(one)))["edit"])
        assert one.texts[URI] == "x=9\n"
