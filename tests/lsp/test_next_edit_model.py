"""Next edits by a model made for them, beside the one that answers everything else: a small real
model that writes Sweep's format, through the protocol."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine import config
from engine.editing.edits import plain
from engine.prompts.next_edit.context import NextEditPrompt, NoEdit
from engine.prompts.next_edit.formats import FORMATS
from engine.records import Done, Piece, Step
from engine.remote.address import shared_address
from engine.weights.catalogue.builtins import NEXT_EDITS
from engine.weights.model_list import Machine
from lsp_server import cli
from lsp_server.next_edit import by_model
from lsp_server.next_edit.edit_history import EditHistory
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import OpenDocument
from tests.support.command import EOS, FENCE, chain_model
from tests.support.lsp_editor import Asked, Editor, LocalServer, local_server, ready, started
from tests.support.server import occupied, renamed, wait_until

pytestmark = pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning")
URI = "file:///project/app.py"


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("main") / "model", "x=9", FENCE))


@pytest.fixture(scope="module")
def made_for_it(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model in Sweep's format that rewrites every region as `x=9`."""
    folder = tmp_path_factory.mktemp("models")
    plain_model = chain_model(folder / "chain", "x=9", EOS)
    return str(renamed(plain_model, folder / "sweep-next-edit-tiny", {"À": "<|file_sep|>"}))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    with local_server(tmp_path) as server:
        yield server


def editor(server: LocalServer, main: str, **own: Any) -> AbstractAsyncContextManager[Editor]:
    return ready(server.port, settings={"model": main, **own})


def typed(one: Editor, old: str = "y=1\n", new: str = "x", uri: str = URI) -> None:
    """A document in which the first character was just replaced."""
    one.open(uri, old)
    one.type(uri, 0, new, old[0])


async def next_edit(one: Editor, uri: str = URI) -> dict[str, Any]:
    where = {"textDocument": one.doc(uri), "position": one.at(uri, 1)}
    found: dict[str, Any] = await one.ask("draftline/nextEdit", where)
    return found


async def loaded(one: Editor, server: LocalServer) -> None:
    """Ask for a next edit, whereupon the model is loaded, and wait for that."""
    await next_edit(one)
    beside = server.shared_engine.for_next_edits
    await one.until(lambda: beside.loaded is not None or beside.state == "error")


def messages(one: Editor) -> list[str]:
    return [message.message for message in one.messages]


@pytest.mark.asyncio
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
async def test_the_model_s_answer_is_the_smallest_edit(
    server: LocalServer, main: str, made_for_it: str, end: str
) -> None:
    async with editor(server, main, nextEditModel=made_for_it) as one:
        typed(one, f"y=1{end}")
        beside = server.shared_engine.for_next_edits
        assert beside.state == "idle"  # it is loaded when it is first asked for
        await loaded(one, server)
        assert (beside.model, beside.state) == (made_for_it, "ready")
        found = await next_edit(one)
        assert found["reason"] == "next edit by sweep-next-edit-tiny" and found["others"] == []
        (change,) = found["edit"]["documentChanges"][0]["edits"]
        assert change["newText"] == "9" and change["range"] == one.span(URI, "1")
        assert found["location"]["uri"] == URI
        one.apply(found["edit"])
        assert one.texts[URI] == f"x=9{end}"
        again = await next_edit(one)
        assert again["edit"] is None and "nothing" in again["reason"]


@pytest.mark.asyncio
async def test_an_answer_is_cached_and_drafted_without_changing_it(
    server: LocalServer, main: str, made_for_it: str
) -> None:
    found = []
    for speculation in (True, False):
        async with editor(server, main, nextEditModel=made_for_it, speculation=speculation) as one:
            typed(one)
            await loaded(one, server)
            found.append(await next_edit(one))
            passes = (await one.command("stats"))["answers"]["passes"]
            assert await next_edit(one) == found[-1]
            assert (await one.command("stats"))["answers"]["passes"] == passes
    assert found[0]["edit"] == found[1]["edit"] is not None


@pytest.mark.asyncio
async def test_without_a_recent_edit_nothing_is_asked(
    server: LocalServer, main: str, made_for_it: str
) -> None:
    async with editor(server, main, nextEditModel=made_for_it) as one:
        one.open(URI, "x=1\n")
        await loaded(one, server)
        found = await next_edit(one)
        assert found["edit"] is None and "nothing was changed lately" in found["reason"]
        assert not (await one.command("stats"))["answers"].get("passes")


@pytest.mark.asyncio
async def test_one_model_may_do_both(server: LocalServer, made_for_it: str) -> None:
    async with editor(server, made_for_it, nextEditModel=made_for_it) as one:
        typed(one)
        assert (await next_edit(one))["edit"] is not None
        assert server.shared_engine.for_next_edits.engine is None


@pytest.mark.asyncio
async def test_the_next_keystroke_cancels_it(
    server: LocalServer, main: str, made_for_it: str
) -> None:
    async with editor(server, main, nextEditModel=made_for_it) as one:
        typed(one)
        await loaded(one, server)
        engine = server.shared_engine.for_next_edits.engine
        assert engine is not None
        with occupied(engine, yields=False) as release:
            where = {"textDocument": one.doc(URI), "position": one.at(URI, 1)}
            asked = one.begin("draftline/nextEdit", where)
            await one.until(lambda: engine.worker.waiting)
            one.type(URI, 1, " ")
            (job,) = engine.worker.waiting
            await one.until(job.cancelled)
            release()
            answer = one.json(await asked)
        assert answer["edit"] is None and "the text has changed" in answer["reason"]
        assert not (await one.command("stats"))["answers"].get("passes")


@pytest.mark.asyncio
async def test_typing_goes_first(server: LocalServer, main: str, made_for_it: str) -> None:
    """A next edit waits while a completion is written, and is then written."""
    async with editor(server, main, nextEditModel=made_for_it) as one:
        typed(one)
        await loaded(one, server)
        slots = server.shared_engine.slots
        with slots.job(0):  # a completion between two of its steps
            where = {"textDocument": one.doc(URI), "position": one.at(URI, 1)}
            asked = one.begin("draftline/nextEdit", where)
            await one.until(lambda: slots._urgencies[1])
            stats = await one.command("stats")
            assert stats["running"] == 1 and not stats["answers"].get("passes")
        assert one.json(await asked)["edit"] is not None


@pytest.mark.asyncio
async def test_a_next_edit_waits_until_no_completion_is_due(
    server: LocalServer, main: str, made_for_it: str
) -> None:
    """Also until one that waits for a pause of the typing."""
    async with editor(server, main, nextEditModel=made_for_it, debounceMs=60_000) as one:
        typed(one)
        await loaded(one, server)
        where = {"textDocument": one.doc(URI), "position": one.at(URI, 1)}
        typing = where | {"context": {"triggerKind": 2}}
        completion = one.begin("textDocument/inlineCompletion", typing, id=7)
        asked = one.begin("draftline/nextEdit", where)
        while (stats := await one.command("stats"))["running"] == 0:
            await asyncio.sleep(0.01)
        assert not stats["answers"].get("passes") and not asked.done()
        one.tell("$/cancelRequest", {"id": 7})
        assert one.json(await asked)["edit"] is not None
        await asyncio.wait([completion])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_change_is_offered_before_the_region_ends(size: int) -> None:
    """With passes of any number of tokens; nothing behind the change is asked for."""
    region = "".join(f"line_{n}\n" for n in range(21))
    answer = region.replace("line_2\n", "other\n").replace("line_19\n", "later\n")
    told: list[str] = []

    async def ask(request: Any, slot: Any, on_step: Any, engine: Any) -> Done:
        for at in range(0, len(answer), size):
            told.append(answer[at : at + size])
            if on_step(Step((Piece(told[-1], "model", None),))):
                return Done("stop")
        return Done("stop", answer)

    session: Any = SimpleNamespace(ask=ask)
    prompt = NextEditPrompt("", 0, region, region, ())
    request = prompt.request("a.py", 1, 99)
    for name in ("sweep", "zeta2.1"):
        told.clear()
        model: Any = SimpleNamespace(engine=None, format=FORMATS[name])
        done = asyncio.run(by_model._ask(session, model, prompt, request))
        if name == "sweep":
            assert done == Done("stop", region.replace("line_2\n", "other\n"))
            assert size == 1000 or "".join(told).count("\n") == 5
        else:
            assert done == Done("stop", answer)  # its answers have marks


@pytest.mark.asyncio
async def test_the_command_line_overrides_what_clients_configure(
    main: str, made_for_it: str, tmp_path: Path
) -> None:
    named = ["--next-edit-model", made_for_it, "--next-edit-format", "sweep"]
    async with started(tmp_path, "--model", main, *named) as one:
        await one.hello(settings={"nextEditModel": "no-such", "nextEditFormat": "zeta2.1"})
        await one.ready()
        typed(one)
        while (found := await next_edit(one))["edit"] is None:
            await asyncio.sleep(0.05)  # the model is loaded
        assert found["reason"] == "next edit by sweep-next-edit-tiny" and messages(one) == []


def test_other_options_are_other_shared_servers() -> None:
    model, kind = ("--next-edit-model", "m"), ("--next-edit-format", "sweep")
    found = {
        cli._next_edit_options(Namespace(next_edit_model=a, next_edit_format=b))
        for a in ("", "m")
        for b in ("", "sweep")
    }
    assert found == {(), model, kind, (*model, *kind)}
    assert len({shared_address("main", options) for options in found}) == 4
    assert shared_address("main", ()) == shared_address("main")


# -- models that cannot be used ----------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("format", "warning"),
    [
        ("zeta2.1", "has no mark <[fim-suffix]>, so it does not know the next-edit format zeta2.1"),
        ("", "its name tells no format"),
    ],
)
async def test_a_model_of_another_format_is_named_once_and_the_rules_stay(
    server: LocalServer, main: str, made_for_it: str, tmp_path: Path, format: str, warning: str
) -> None:
    model = made_for_it
    if not format:
        (tmp_path / "link").symlink_to(made_for_it)
        model = str(tmp_path / "link")
    async with editor(server, main, nextEditModel=model, nextEditFormat=format) as one:
        typed(one)
        if format:
            await loaded(one, server)
        for _ in range(2):
            found = await next_edit(one)
            assert found["edit"] is None and "nothing that was changed" in found["reason"]
        (shown,) = messages(one)
        assert shown.startswith("Draftline: ") and warning in shown
        values = {"nextEditFormat": "sweep"}
        one.tell("workspace/didChangeConfiguration", {"settings": {"draftline": values}})
        await loaded(one, server)
        assert (await next_edit(one))["edit"] is not None


@pytest.mark.asyncio
async def test_two_models_that_do_not_fit_into_memory_together(
    server: LocalServer, main: str, made_for_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is loaded; the sizes of both, and what would fit, are shown once."""
    small = Machine(1_300_000_000, 8 << 30, 0, native_bf16=True)
    async with editor(server, main, nextEditModel=made_for_it) as one:
        monkeypatch.setattr(Machine, "this", lambda: small)
        monkeypatch.setattr("engine.weights.model_list.memory_of", lambda name, _: (
            5_500_000_000 if name == made_for_it else 2_200_000_000, 0
        ))  # fmt: skip
        typed(one)
        await loaded(one, server)
        await one.until(lambda: messages(one))
        for _ in range(2):
            assert (await next_edit(one))["edit"] is None
        assert messages(one) == [
            f"Draftline: {made_for_it}: needs 5.0 GB of memory next to {main} (2.2 GB), and 1.3 GB "
            "are available: choose sweepai/sweep-next-edit-0.5B (1.1 GB), or a smaller main model"
        ]
        assert server.shared_engine.for_next_edits.engine is None
        monkeypatch.setattr(Machine, "this", lambda: Machine(9 << 30, 9 << 30, 0, True))
        values = {"debounceMs": 1}  # the user has closed something, and settings are sent again
        one.tell("workspace/didChangeConfiguration", {"settings": {"draftline": values}})
        await loaded(one, server)
        assert (await next_edit(one))["edit"] is not None


@pytest.mark.asyncio
async def test_windows_share_one_model_and_the_last_one_unloads_it(
    server: LocalServer, main: str, made_for_it: str, tmp_path: Path
) -> None:
    other = tmp_path / "sweep-next-edit-other"
    other.symlink_to(made_for_it)
    beside = server.shared_engine.for_next_edits
    async with editor(server, main, nextEditModel=made_for_it) as first:
        typed(first)
        await loaded(first, server)
        async with editor(server, main, nextEditModel=str(other)) as second:
            typed(second)
            assert (await next_edit(second))["edit"] is None
            (shown,) = messages(second)
            assert f"{made_for_it} predicts next edits in other windows" in shown
            values = {"nextEditModel": ""}
            first.tell("workspace/didChangeConfiguration", {"settings": {"draftline": values}})
            await next_edit(first)
            await loaded(second, server)
            assert beside.model == str(other)
            assert (await next_edit(second))["edit"] is not None
    await_idle(beside)


def await_idle(beside: Any) -> None:
    wait_until(lambda: beside.engine is None and beside.state == "idle")


# -- what the model is shown -------------------------------------------------------------------

LINES = st.lists(st.sampled_from(["a = 1", "", "def f(x):", "é😋"]), max_size=12)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def edited(text: str, start: int, stop: int, new: str) -> tuple[OpenDocument, EditHistory]:
    """A document after an edit."""
    history = EditHistory()
    history.record(URI, text, start, stop, new, 0.0)
    after = text[:start] + new + text[stop:]
    return OpenDocument(URI, "/project/app.py", "python", 2, Text.of(after)), history


def session_of(document: OpenDocument, history: EditHistory) -> Any:
    """As much of a session as prompts are made from."""
    documents = {URI: document}
    shown = type("Documents", (), {
        "get": lambda self, uri: documents[uri], "__contains__": lambda self, uri: uri in documents
    })()  # fmt: skip
    return SimpleNamespace(
        edit_history=history,
        documents=shown,
        workspace=None,
        shared_engine=SimpleNamespace(loaded=None),
        settings=SimpleNamespace(context=0),
    )


@settings(max_examples=200)
@given(LINES, ENDS, st.floats(0, 1), st.integers(0, 9), st.sampled_from(["", "zz", "q\nr", "("]))
def test_recent_edits_become_changes_with_their_context(
    lines: list[str], end: str, where: float, length: int, new: str
) -> None:
    text = end.join(lines)
    start = round(where * len(text))
    stop = min(start + length, len(text))
    new = new.replace("\n", end)
    for left, right in (
        (text[:start], text[start:]),
        (text[:stop], text[stop:]),
        (text[:start], new + text[stop:]),
    ):
        assume((left[-1:], right[:1]) != ("\r", "\n"))  # no line end is split or made of two
    document, history = edited(text, start, stop, new)
    session = session_of(document, history)
    if not history.edits():
        with pytest.raises(NoEdit, match="nothing was changed"):
            by_model._context(session, document, 0)
        return
    context = by_model._context(session, document, 0)
    after, before = plain(document.text.text), plain(text)
    assert context.text == after and context.path == "app.py"
    (change,), undo = context.changes, context.undo
    assert undo is not None
    assert after[: undo.start] + undo.text + after[undo.stop :] == before
    at = sum(len(line) + 1 for line in after.split("\n")[: change.line - 1])
    assert after[at:].startswith(change.updated)
    assert after[:at] + change.original + after[at + len(change.updated) :] == before
    changed = undo.start, undo.stop
    above = after[at : changed[0]].count("\n")
    assert above == min(3, after[: changed[0]].count("\n"))


@given(LINES, ENDS, st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_lines_of_the_shown_text_are_found_in_the_document(
    lines: list[str], end: str, first: int, count: int, has_bom: bool
) -> None:
    text = "\ufeff" * has_bom + "".join(line + end for line in lines)
    shown = plain(text).split("\n")
    first = min(first, len(shown) - 1)
    last = min(first + count, len(shown) - 1)
    start = sum(len(line) + 1 for line in shown[:first])
    stop = sum(len(line) + 1 for line in shown[:last])
    low, high = by_model._original_span(text, start, stop)
    assert plain(text[low:high]) == plain(text)[start:stop]
    assert text[:low].lstrip("\ufeff") == "".join(line + end for line in shown[:first])


@pytest.mark.asyncio
@pytest.mark.parametrize(("memory", "model"), [(8e9, "0.5B"), (16e9, "1.5B")])
async def test_a_model_by_memory_is_offered_with_its_licence(
    server: LocalServer, main: str, monkeypatch: pytest.MonkeyPatch, memory: float, model: str
) -> None:
    """Once `auto` is set, as the default model is; refused, next edits are found by rule."""
    monkeypatch.setattr(config, "memory_bytes", lambda: memory)
    name = f"sweepai/sweep-next-edit-{model}"
    async with editor(server, main, nextEditModel="auto") as one:
        asked = Asked(one, "Not Now")
        typed(one)
        await next_edit(one)
        await one.until(lambda: asked.questions)
        assert asked.titles == [f"Download {name}", "Not Now"]
        assert NEXT_EDITS[name].licence in asked.questions[0].message
        beside = server.shared_engine.for_next_edits
        await one.until(lambda: beside.state == "error")
        found = await next_edit(one)
        assert "was not fetched" not in str(found["reason"])
