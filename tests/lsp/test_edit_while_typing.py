"""Edits of documents that change meanwhile, as an editor sees them: what is typed outside the range
moves the edit, what is typed inside refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support import lsp_editor
from tests.support.command import FENCE, chain_model
from tests.support.held_model import held, unfinished
from tests.support.lsp_editor import (
    Editor,
    LocalServer,
    edited,
    local_server,
    ready,
    refused,
)

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/app.py"
MODIFIED = -32801
TEXT = 'é = "😋"\r\nx=1\r\nlast = "😋"\r\n'


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalServer]]:
    """Servers of two models: one answers "x=9", the other without end."""
    root = tmp_path_factory.mktemp("typing")
    models = {
        "short": chain_model(root / "short", "x=9", FENCE),
        "endless": chain_model(root / "endless", "x=9", "\n", 20000),
    }
    with ExitStack() as stack:
        found = {}
        for name, model in models.items():
            (root / f"of {name}").mkdir()
            server = local_server(root / f"of {name}", str(model))
            found[name] = stack.enter_context(server)
        yield found


Open = Any  # (model, **initialize) -> a connected editor whose server is ready


@pytest.fixture
def editor(servers: dict[str, LocalServer]) -> Open:
    return lambda model="short", **hello: ready(servers[model].port, **hello)


def asking(editor: Editor, part: str = "", **more: Any) -> dict[str, Any]:
    return lsp_editor.asking(editor, URI, part, **more)


def typed_around(one: Editor) -> None:
    """Type above, in front of, behind and below "x=1", with undo and redo, in every way."""
    one.type(URI, 0, "😋\r\n# ")
    one.type(URI, "x=1", "  # was 😋")
    one.type(URI, one.texts[URI].index("x=1"), "if é: ")
    one.type(URI, 'last = "', "", "😋")
    one.type(URI, 'last = "', "😋😋")
    one.type(URI, "x", "y", "=1")  # inside, and
    one.type(URI, "x", "=1", "y")  # undone
    one.replace(URI, one.texts[URI] + "# end\r\n")
    one.replace(URI, "# first\r\n" + one.texts[URI])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_what_is_typed_outside_the_range_moves_the_edit(
    editor: Open, servers: dict[str, LocalServer], monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr("lsp_server.session.UNDO_GRACE_S", 600.0)
    async with editor(encoding=encoding) as one:
        one.open(URI, TEXT)
        with held(servers["short"].shared_engine.engine):
            asked = one.begin("draftline/edit", asking(one, "x=1"))
            await one.command("status")  # the server has received it
            typed_around(one)
            await one.command("status")  # and this
        expected = one.texts[URI].replace("x=1", "x=9")
        one.apply(one.json(await asked)["edit"])  # it names the current version
        assert one.texts[URI] == expected and "if é: x=9  # was 😋" in expected


async def test_a_client_that_owns_the_range_gets_the_edit_of_the_version_it_asked_for(
    editor: Open, servers: dict[str, LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does with the document meanwhile, for however long."""
    monkeypatch.setattr("lsp_server.session.UNDO_GRACE_S", 0.0)
    async with editor() as one:
        one.open(URI, TEXT)
        version = one.doc(URI)
        with held(servers["short"].shared_engine.engine):
            asked = one.begin("draftline/edit", asking(one, "x=1", ownsRange=True))
            await one.command("status")
            typed_around(one)
            one.type(URI, "x", "", "=1")
            await one.command("status")
            await one.command("status")
        (change,) = one.json(await asked)["edit"]["documentChanges"]
        assert change["textDocument"] == version
        assert edited(TEXT, change["edits"], "utf-16") == TEXT.replace("x=1", "x=9")


@pytest.mark.parametrize("part", ["", "x=1"])
async def test_an_edit_is_refused_if_its_range_was_changed_meanwhile(
    editor: Open, servers: dict[str, LocalServer], part: str
) -> None:
    """Without a range it is the whole document."""
    async with editor() as one:
        one.open(URI, TEXT)
        with held(servers["short"].shared_engine.engine):
            asked = one.begin("draftline/edit", asking(one, part))
            await one.command("status")
            one.type(URI, "x=", "1")
            await one.command("status")
        code, message = await refused(asked)
        assert code == MODIFIED
        assert message == "app.py: the text changed meanwhile where it is edited: ask again"
        await one.idle()


@pytest.mark.parametrize(("owns", "again"), [(False, False), (False, True), (True, False)])
async def test_an_edit_is_refused_if_its_document_was_closed_meanwhile(
    editor: Open, servers: dict[str, LocalServer], owns: bool, again: bool
) -> None:
    """As when its file is renamed or deleted; also if it was opened again with the same text."""
    async with editor() as one:
        one.open(URI, TEXT)
        with held(servers["short"].shared_engine.engine):
            asked = one.begin("draftline/edit", asking(one, "x=1", ownsRange=owns))
            await one.command("status")
            one.close(URI)
            if again:
                one.open(URI, TEXT)
            await one.command("status")
        code, message = await refused(asked)
        assert code == MODIFIED and "closed, renamed or deleted meanwhile" in message
        await one.idle()


async def test_an_edit_whose_range_changed_stops_before_its_answer_is_complete(
    editor: Open, servers: dict[str, LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.session.UNDO_GRACE_S", 0.0)
    async with editor("endless", settings={"speculation": False}) as one:
        with unfinished(servers["endless"].shared_engine.engine):
            one.open(URI, TEXT)
            tokens = {"partialResultToken": "p", "workDoneToken": "w"}
            asked = one.begin("draftline/edit", asking(one, "x=1", **tokens))
            await one.until(lambda: one.partial.get("p"))
            one.type(URI, 0, "# ")
            assert (await one.command("stats"))["running"] == 1
            one.type(URI, "x=", "1")
            assert (await refused(asked))[0] == MODIFIED
        await one.idle()
        assert (await one.command("stats"))["answers"]["cancelled"] == 1
        assert one.progress["w"][-1]["kind"] == "end"


async def test_an_edit_survives_a_change_that_is_undone(
    editor: Open, servers: dict[str, LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.session.UNDO_GRACE_S", 600.0)
    async with editor() as one:
        one.open(URI, TEXT)
        with held(servers["short"].shared_engine.engine):
            asked = one.begin("draftline/edit", asking(one))
            await one.command("status")
            one.type(URI, 5, "#")
            one.type(URI, 5, "", "#")
            await one.command("status")
        assert one.json(await asked)["edit"]["documentChanges"][0]["textDocument"] == one.doc(URI)
