"""Completions and the index, as an editor sees them.

The model is a chain, in which each token has one successor: it writes the same on every empty line.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import Engine, Request
from lsp_server.completion.inline import MIN_PREFIX_TOKENS, PromptLayout, request_for
from lsp_server.protocol.text_sync import OpenDocuments
from lsp_server.settings import Settings
from tests.support.command import EOS, chain_model
from tests.support.held_model import held, held_at_step
from tests.support.lsp_editor import TIMEOUT_S, Editor, LocalServer, local_server, ready

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/app.py"
WRITTEN = "xyz=1,abc+de"  # each character occurs once, so its successor is unique
Open = Any  # (*roots, **initialize) -> a connected editor whose server is ready


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    root = tmp_path_factory.mktemp("complete")
    model = chain_model(root / "model", WRITTEN, EOS)
    with local_server(root, str(model)) as server:
        yield server


@pytest.fixture
def editor(server: LocalServer) -> Open:
    def opened(*roots: Path, settings: Any = None, **hello: Any) -> Any:
        quick = {"debounceMs": 0, "maxTimeMs": 60_000} | (settings or {})
        return ready(server.port, *roots, settings=quick, **hello)

    return opened


async def inline(one: Editor, uri: str, place: int, by_hand: bool = False) -> list[dict[str, Any]]:
    where = {"textDocument": {"uri": uri}, "position": one.at(uri, place)}
    kind = {"context": {"triggerKind": 1 if by_hand else 2}}
    answer = await one.ask("textDocument/inlineCompletion", where | kind)
    return list(answer["items"])


async def listed(one: Editor, uri: str, place: int) -> list[dict[str, Any]]:
    where = {"textDocument": {"uri": uri}, "position": one.at(uri, place)}
    answer = await one.ask("textDocument/completion", where | {"context": {"triggerKind": 1}})
    assert answer["isIncomplete"]
    return list(answer["items"])


async def why(one: Editor) -> str:
    return str((await one.command("why"))["why"])


async def figures(one: Editor) -> tuple[dict[str, float], dict[str, int]]:
    """Of the model, and of completions."""
    stats = await one.command("stats")
    return stats["answers"], stats["completions"]


# -- what is offered ---------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_both_requests_offer_the_same_text_at_the_cursor(editor: Open, encoding: str) -> None:
    """Also after emoji and on a last line without a line end."""
    async with editor(encoding=encoding) as one:
        for text, place in (("a = 1\n", 6), ("😋 = 1\n\n# é\n", 6), ("# 😋😋 x", 6)):
            uri = one.open(f"untitled:{len(text)}", text)
            (item,) = await inline(one, uri, place)
            at = one.at(uri, place)
            assert item["range"] == {"start": at, "end": at}
            assert WRITTEN.endswith(item["insertText"]) and item["insertText"]
            assert item["command"]["command"] == "draftline.accepted"
            (other,) = await listed(one, uri, place)
            edit = other["textEdit"]
            one.apply({"changes": {uri: [edit]}})
            assert one.texts[uri] == text[:place] + item["insertText"] + text[place:]


async def test_a_listed_item_passes_the_editors_filter(editor: Open) -> None:
    """Its text replaces the word at the cursor and starts with it."""
    async with editor() as one:
        uri = one.open("untitled:1", "new_x")
        (item,) = await listed(one, uri, 5)
        assert item["filterText"].startswith("new_x") and item["label"].startswith("new_x")
        assert item["textEdit"]["range"]["start"] == {"line": 0, "character": 0}
        assert item["textEdit"]["newText"] == "new_" + WRITTEN


async def test_typing_into_a_completion_keeps_it_without_asking_the_model(editor: Open) -> None:
    async with editor() as one:
        uri = one.open(URI, "a = 1\n\nb = 2\n")
        (item,) = await inline(one, uri, 6)
        assert item["insertText"] == WRITTEN
        before = (await figures(one))[0]
        for number, char in enumerate(WRITTEN[:5]):
            one.type(uri, 6 + number, char)
            (item,) = await inline(one, uri, 7 + number)
            assert item["insertText"] == WRITTEN[number + 1 :]
            assert "type" in await why(one)
        one.type(uri, 10, "", WRITTEN[4])  # and one back
        (item,) = await inline(one, uri, 10)
        assert item["insertText"] == WRITTEN[4:]
        after, counts = await figures(one)
        assert after == before and counts["kept"] == 6 and counts["made"] == 1
        one.type(uri, 10, "?")  # something else
        await inline(one, uri, 11)
        assert (await figures(one))[0] != before


async def test_typing_what_the_model_is_writing_keeps_it_running(editor: Open) -> None:
    """Like an editor, faster than the model: change, new request, cancellation of the old one."""
    async with editor() as one:
        uri = one.open(URI, "a = 1\n\nb = 2\n")
        asked = []
        for typed in range(5):
            if typed:
                one.type(uri, 5 + typed, WRITTEN[typed - 1])
            where = {"textDocument": {"uri": uri}, "position": one.at(uri, 6 + typed)}
            kind = {"context": {"triggerKind": 2}}
            asked.append(one.begin("textDocument/inlineCompletion", where | kind, id=70 + typed))
            if typed:
                one.tell("$/cancelRequest", {"id": 70 + typed - 1})
            await one.command("status")  # the requests have been received
        (item,) = (await asked[-1]).items
        await asyncio.wait(asked)
        assert item.insert_text == WRITTEN[4:]
        answers, counts = await figures(one)
        assert counts["made"] == 1 and not answers.get("cancelled")


async def test_typing_something_else_stops_the_model(editor: Open, server: LocalServer) -> None:
    async with editor() as one:
        uri = one.open(URI, "a = 1\n\nb = 2\n")
        with held(server.shared_engine.engine):
            asked = []
            for typed in ("", "?"):
                if typed:
                    one.type(uri, 6, typed)
                where = {"textDocument": {"uri": uri}, "position": one.at(uri, 6 + len(typed))}
                kind = {"context": {"triggerKind": 2}}
                asked.append(one.begin("textDocument/inlineCompletion", where | kind))
                await one.command("status")  # the server has received it
        first, second = [(await each).items for each in asked]
        assert not first
        assert not second or not second[0].insert_text.startswith(WRITTEN)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that reach the engine."""
    found: list[Request] = []
    submit = Engine.submit

    def noted(engine: Engine, request: Request, *arguments: Any, **options: Any) -> Any:
        found.append(request)
        return submit(engine, request, *arguments, **options)

    monkeypatch.setattr(Engine, "submit", noted)
    return found


@pytest.mark.parametrize("ask", [inline, listed])  # VS Code and Neovim 0.12, older Neovim
async def test_after_something_else_the_draft_starts_from_what_was_offered(
    editor: Open, requests: list[Request], ask: Any
) -> None:
    async with editor() as one:
        uri = one.open("untitled:1", "a = 1\n\nb = 2\n", language="plaintext")
        assert await ask(one, uri, 6) and not requests[-1].predictions
        one.type(uri, 6, "xyb")
        (item,) = await ask(one, uri, 9)
        assert requests[-1].predictions == (WRITTEN[2:],)
        other = one.open("untitled:2", "a = 1\nxyb\nb = 2\n", language="plaintext")
        (plain,) = await ask(one, other, 9)
        assert not requests[-1].predictions  # nothing was written here
        texts = [each.get("insertText") or each["textEdit"]["newText"] for each in (item, plain)]
        assert texts[0] == texts[1] and texts[0].endswith("c+de")  # the model's own


async def test_after_something_else_the_draft_starts_from_what_is_being_written(
    editor: Open, requests: list[Request]
) -> None:
    """As far as the model has come when it is stopped."""
    async with editor(settings={"speculation": False}) as one:
        uri = one.open("untitled:1", "a = 1\n\nb = 2\n", language="plaintext")
        kind = {"context": {"triggerKind": 2}}
        before = (await figures(one))[0].get("passes", 0)
        with held_at_step(4):
            where = {"textDocument": {"uri": uri}, "position": one.at(uri, 6)}
            first = one.begin("textDocument/inlineCompletion", where | kind)
            async with asyncio.timeout(TIMEOUT_S):
                while (await figures(one))[0].get("passes", 0) < before + 3:
                    await asyncio.sleep(0.01)
            one.type(uri, 6, "b")
            where = {"textDocument": {"uri": uri}, "position": one.at(uri, 7)}
            second = one.begin("textDocument/inlineCompletion", where | kind)
            await one.command("status")  # the server has received it
        assert not (await first).items
        (item,) = (await second).items
        (expected,) = requests[-1].predictions
        assert item.insert_text == "c+de" and WRITTEN.startswith(expected) and expected


async def test_as_you_type_complete_lines_are_enough_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = chain_model(tmp_path / "model", "x=9", "\n")  # the same line again and again
    settings = {"debounceMs": 0, "maxTimeMs": 60_000, "multiline": "always", "maxTokens": 30}
    found = []
    with local_server(tmp_path, str(model)) as server:
        for seconds in (math.inf, -1.0):
            monkeypatch.setattr("lsp_server.completion.inline.EAGER_AFTER_S", seconds)
            async with ready(server.port, settings=settings | {"speculation": False}) as one:
                one.open(URI, "a = 1\n\nb = 2\n")
                (item,) = await inline(one, URI, 6)
                found.append(item["insertText"].splitlines())
    whole, early = found
    assert len(whole) > 2 and early == ["x=9"]


async def test_eagerness_decides_how_long_and_how_sure_what_is_not_asked_for_is(
    editor: Open,
) -> None:
    found = {}
    for level in ("low", "medium", "high"):
        async with editor(settings={"eagerness": level, "maxTokens": 3, "checks": False}) as one:
            uri = one.open(URI, "a = 1\n\nb = 2\n")
            found[level] = [item["insertText"] for item in await inline(one, uri, 6)]
            assert ("draftline.eagerness is low" in await why(one)) == (level == "low")
            asked = await inline(one, uri, 6, by_hand=True)
            assert asked[0]["insertText"] == WRITTEN[:3], "as it is, where it is asked for"
    assert found == {"low": [], "medium": [WRITTEN[:3]], "high": [WRITTEN[:6]]}
    async with editor(settings={"eagerness": "low"}) as one:
        uri = one.open(URI, "a = 1\n\nb = 2\n")
        (item,) = await inline(one, uri, 6)
        assert item["insertText"] == WRITTEN, "a complete line is offered"


async def test_explicit_invocation_adds_sampled_candidates(editor: Open) -> None:
    async with editor() as one:
        uri = one.open(URI, "a = 1\n\nb = 2\n")
        (first,) = await inline(one, uri, 6)
        passes = (await figures(one))[0]["passes"]
        items = await inline(one, uri, 6, by_hand=True)
        texts = [item["insertText"] for item in items]
        assert texts[0] == first["insertText"] and 1 <= len(texts) == len(set(texts)) <= 3
        assert (await figures(one))[0]["passes"] > passes  # the others are sampled
        ids = [item["command"]["arguments"][0] for item in items]
        assert len(set(ids)) == len(ids)


async def test_what_becomes_of_completions_is_counted(editor: Open) -> None:
    async with editor() as one:
        uri = one.open(URI, "a = 1\n\nb = 2\n")
        (item,) = await inline(one, uri, 6)
        for _ in range(2):
            one.tell("textDocument/didShowCompletion", {"item": item})
        part = {"item": item, "acceptedLength": 4}
        one.tell("textDocument/didPartiallyAcceptCompletion", part)
        counts = (await figures(one))[1]
        assert (counts["made"], counts["shown"], counts["partly"]) == (1, 1, 1)
        assert counts["acceptedCharacters"] == 4
        command = item["command"]
        named = {"command": command["command"], "arguments": command["arguments"]}
        assert await one.ask("workspace/executeCommand", named) is None
        counts = (await figures(one))[1]
        assert counts["accepted"] == 1 and counts["acceptedCharacters"] >= 4
        unknown = {"command": "draftline.accepted", "arguments": ["no such"]}
        assert await one.ask("workspace/executeCommand", unknown) is None
        assert (await figures(one))[1] == counts


# -- no offer, and why -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"disabledGlobs": ["app.*"]}, "draftline.disabledGlobs"),
        ({"disabledGlobs": ["/project/*"]}, "draftline.disabledGlobs"),
        ({"languages": ["rust", "go"]}, "draftline.languages"),
    ],
)
async def test_settings_disable_completion_for_some_documents(
    editor: Open, settings: dict[str, Any], reason: str
) -> None:
    async with editor(settings=settings) as one:
        one.open(URI, "a\n")
        assert await inline(one, URI, 2) == await listed(one, URI, 2) == []
        assert reason in await why(one)
        where = {"textDocument": one.doc(URI), "position": one.at(URI, 2)}
        offered = await one.ask("draftline/nextEdit", where)
        assert offered["edit"] is None and reason in offered["reason"]
        assert not (await figures(one))[0].get("passes")  # no model was asked
        other = one.open("file:///other/main.rs", "a\n", "rust")
        assert await inline(one, other, 2)
        one.configure(disabledGlobs=[], languages=[])
        assert await inline(one, URI, 2)


async def test_nothing_is_offered_while_turned_off(editor: Open) -> None:
    async with editor() as one:
        one.open(URI, "a\n")
        assert await one.command("toggle") == {"enabled": False}
        assert await inline(one, URI, 2) == await listed(one, URI, 2) == []
        assert "turned off" in await why(one)
        assert (await one.command("status"))["state"] == one.states[-1]["state"] == "off"
        assert await one.command("toggle") == {"enabled": True}
        assert (await one.command("status"))["state"] == "ready"
        assert await inline(one, URI, 2)


@pytest.mark.parametrize("switch", [False, {"python": False}, {"*": False, "go": True}])
async def test_ghost_text_is_off_by_language_unless_invoked(editor: Open, switch: Any) -> None:
    async with editor(settings={"ghostText": switch}) as one:
        uri = one.open(URI, "a = 1\n")
        assert await inline(one, uri, 6) == []
        assert await why(one) == "draftline.ghostText is off for 'python'"
        assert not (await figures(one))[0].get("passes")  # no model was asked
        assert await inline(one, uri, 6, by_hand=True)
        assert await listed(one, uri, 6)  # a menu is no ghost text
        other = one.open("file:///project/main.go", "a\n", "go")
        assert bool(await inline(one, other, 2)) == (switch is not False)
        one.configure(ghostText=True)
        assert await inline(one, uri, 6)


async def test_next_edits_are_off_by_language(editor: Open) -> None:
    async with editor(settings={"nextEdit": {"python": False}}) as one:
        for uri, language in ((URI, "python"), ("file:///project/main.go", "go")):
            one.open(uri, "a = 1\n", language)
            where = {"textDocument": one.doc(uri), "position": one.at(uri, 6)}
            offered = await one.ask("draftline/nextEdit", where)
            off = offered["reason"] == f"draftline.nextEdit is off for {language!r}"
            assert off == (language == "python"), offered
        assert await inline(one, URI, 6)  # ghost text is another switch


async def test_every_empty_answer_has_its_reason(editor: Open) -> None:
    async with editor() as one:
        assert "nothing was asked" in await why(one)
        uri = one.open(URI, f"{WRITTEN}\n")
        assert await inline(one, uri, len(WRITTEN)) == []  # the model ends here
        assert "would write nothing" in await why(one)
        one.open(URI, f"a\n\n{WRITTEN}\n")
        assert await inline(one, uri, 2) == []
        assert await why(one) and "offered" not in await why(one)
        empty = one.open("untitled:1", "")
        assert await inline(one, empty, 0) == [] and await why(one)


async def test_where_nothing_fits_the_model_is_not_asked(editor: Open) -> None:
    async with editor() as one:
        uri = one.open(URI, "page.open(x)\n")
        before, _ = await figures(one)
        for by_hand in (False, True):
            assert await inline(one, uri, len("page"), by_hand) == []
            assert "behind the cursor" in await why(one)
        assert (await figures(one))[0] == before


@pytest.mark.parametrize(("language", "offered"), [("python", ""), ("plaintext", "z=1,abc+de")])
async def test_the_client_names_the_language(editor: Open, language: str, offered: str) -> None:
    """What is written would break the syntax of Python, and is good as text."""
    async with editor() as one:
        uri = one.open("untitled:1", "x = [y]\n", language=language)
        assert "".join(item["insertText"] for item in await inline(one, uri, 6)) == offered
        assert not offered or "offered" in await why(one)


async def test_a_slow_machine_is_shown_the_lines_before_the_cursor() -> None:
    """What it reads of them in time is not read again at the next key."""
    text = "abc\n" * 100
    info = SimpleNamespace(prefill_tokens_per_s=10.0, fills_middle=True)
    engine: Any = SimpleNamespace(info=info, context=2048, encode=list)
    session: Any = SimpleNamespace(settings=Settings(maxTimeMs=2000), workspace=None)
    document = OpenDocuments().open(URI, "python", 1, text)
    request = request_for(session, engine, document, len(text), PromptLayout())
    assert 250 <= len(request.text) <= MIN_PREFIX_TOKENS
    short: Any = SimpleNamespace(info=info, context=200, encode=list)
    request = request_for(session, short, document, len(text), PromptLayout())
    assert request.text and len(request.text) + session.settings.maxTokens <= 200


async def test_a_document_that_is_not_open_is_an_error(editor: Open) -> None:
    async with editor() as one:
        where = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}}
        for method in ("inlineCompletion", "completion"):
            code, message = await one.fails(
                f"textDocument/{method}", where | {"context": {"triggerKind": 1}}
            )
            assert code == -32602 and message.startswith(f"{URI}: not an open document")


# -- the index ---------------------------------------------------------------------------------


async def indexed(one: Editor) -> tuple[int, int]:
    status = await one.command("status")
    return status["files"], status["tokens"]


async def holds(one: Editor, files: int, tokens: int) -> None:
    """Wait until the index has so many files and tokens."""
    deadline = time.monotonic() + TIMEOUT_S
    while await indexed(one) != (files, tokens):
        assert time.monotonic() < deadline, await indexed(one)
        await asyncio.sleep(0.05)


async def test_workspace_folders_are_added_and_removed(editor: Open, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text(f"{name} = 1\n")
    async with editor(tmp_path / "a", tmp_path / "b") as one:
        assert (await indexed(one))[0] == 2

        def folder(name: str) -> dict[str, str]:
            return {"uri": (tmp_path / name).as_uri(), "name": name}

        for added, removed, files in (("c", "", 3), ("", "ab", 1), ("", "c", 0)):
            event = {"added": [*map(folder, added)], "removed": [*map(folder, removed)]}
            one.tell("workspace/didChangeWorkspaceFolders", {"event": event})
            assert (await one.command("reindex"))["files"] == files == (await indexed(one))[0]


async def test_changed_files_are_indexed_unless_they_are_open(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.workspace_index.INDEX_DEBOUNCE_S", 0.0)
    root = tmp_path / "root"
    root.mkdir()
    file = root / "one.py"
    file.write_text("a\n")
    async with editor(root) as one:
        await holds(one, 1, 2)  # each character is a token
        (root / "two.py").write_text("bb\n")
        changes = [{"uri": (root / "two.py").as_uri(), "type": 1}]
        one.tell("workspace/didChangeWatchedFiles", {"changes": changes})
        await holds(one, 2, 5)
        uri = one.open(file.as_uri(), "aaaa\n")
        await holds(one, 2, 8)
        one.type(uri, 0, "a")
        await holds(one, 2, 9)
        file.write_text("aa\n")  # the open document is indexed instead
        one.tell("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 2}]})
        assert await one.command("reindex") == {"files": 2, "tokens": 9}
        one.close(uri)
        await holds(one, 2, 6)
        (root / "two.py").unlink()
        changes[0]["type"] = 3
        one.tell("workspace/didChangeWatchedFiles", {"changes": changes})
        await holds(one, 1, 3)


async def test_gitignore_can_be_disregarded(editor: Open, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("made.py\n")
    (tmp_path / "made.py").write_text("a\n")
    async with editor(tmp_path) as one:
        files = (await indexed(one))[0]
        one.configure(respectGitignore=False)
        assert (await one.command("reindex"))["files"] == files + 1


async def test_a_position_past_the_end_means_the_end(editor: Open) -> None:
    """Items name the position where they are inserted."""
    async with editor() as one:
        one.open(URI, "a\n")
        where = {"textDocument": {"uri": URI}, "position": {"line": 9, "character": 9}}
        answer = await one.ask(
            "textDocument/inlineCompletion", where | {"context": {"triggerKind": 2}}
        )
        end = {"line": 1, "character": 0}
        assert [item["range"] for item in answer["items"]] == [{"start": end, "end": end}]
