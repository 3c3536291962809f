"""The start of a session: status, settings, waiting for the model, models that cannot be loaded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import DEFAULT_MODEL
from engine.weights import BUILTINS, LARGER
from index.workspace.workspace import Workspace
from lsp_server.shared_engine import NotReady, SharedEngine
from tests.support.command import EOS, FENCE, chain_model
from tests.support.lsp_editor import (
    TIMEOUT_S,
    Editor,
    connected,
    local_server,
    refused,
    serving,
    started,
)

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/app.py"
QUICK = {"debounceMs": 0, "maxTimeMs": 60_000}  # completions come at once, and on a busy machine
SECRET = "Xyzzy-Plugh-4711"
CANCELLED, MODIFIED, FAILED = -32800, -32801, -32803


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("other") / "model", "y=8", EOS))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server for tests of settings alone."""
    with serving(tmp_path_factory.mktemp("settings")) as port:
        yield port


@pytest.fixture
def may_load(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No model is loaded before this is set."""
    event, load = threading.Event(), SharedEngine._load

    def wait_and_load(self: SharedEngine, *args: Any) -> None:
        assert event.wait(TIMEOUT_S)
        load(self, *args)

    monkeypatch.setattr(SharedEngine, "_load", wait_and_load)
    yield event
    event.set()


def texts(messages: list[Any]) -> list[str]:
    return [one.message for one in messages]


def inline_params(one: Editor, uri: str, place: int | str) -> dict[str, Any]:
    """Params of an inline completion that was not invoked by hand."""
    position = one.at(uri, place)
    return {"textDocument": {"uri": uri}, "position": position, "context": {"triggerKind": 2}}


async def test_initialize_is_answered_before_the_model_is_loaded(
    tmp_path: Path, chain: str
) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    async with started(tmp_path) as one:
        result = await one.hello(tmp_path, settings={"model": chain})
        assert one.states == []
        assert result["serverInfo"]["name"] == "draftline"
        able = result["capabilities"]
        assert able["inlineCompletionProvider"] is not None and able["completionProvider"]
        assert able["codeActionProvider"]["resolveProvider"]
        wanted = {"edit", "status", "stats", "why", "reindex", "cancel", "toggle", "accepted"}
        wanted |= {"download"}
        named = set(able["executeCommandProvider"]["commands"])
        assert named == {f"draftline.{name}" for name in wanted}
        status = await one.command("status")
        assert status["state"] in ("loading", "ready") and status["model"]
        status = await one.ready()
        assert (status["state"], status["message"], status["model"]) == ("ready", "", chain)
        assert status["files"] >= 1 and status["tokens"] >= 6 and status["device"].startswith("cpu")
        assert status["tokensPerSecond"] is None  # nothing has been generated yet
        states = [state["state"] for state in one.states]
        assert states[0] == "loading" and set(states[1:]) == {"ready"}
        assert {*one.registered} == {
            "workspace/didChangeWatchedFiles",
            "workspace/didChangeConfiguration",
        }
        await one.until(lambda: [e[-1]["kind"] for e in one.progress.values()] == ["end"])
        (steps,) = one.progress.values()
        assert steps[0] == {"kind": "begin", "title": "Draftline"}
        reports = steps[1:-1]
        assert reports and all(step["kind"] == "report" and step["message"] for step in reports)
        assert one.messages == []


# -- requests before the model is loaded -----------------------------------------------------------


async def test_requests_wait_for_the_settings_and_the_model(
    tmp_path: Path, chain: str, may_load: threading.Event
) -> None:
    """Also those that come before `initialized`, when the settings are not known. Only popups do
    not: editors show none before all providers have responded."""
    with serving(tmp_path) as port:
        async with connected(port) as one:
            asked: dict[str, asyncio.Future[Any]] = {}

            def ask() -> None:
                one.open(URI, "x=1\n")
                one.open("untitled:1", "\n")
                document = {"textDocument": one.doc(URI)}
                edit = {"instruction": "do", "workDoneToken": "edit"}
                asked["edit"] = one.begin("draftline/edit", document | edit)
                question = {"question": "why?", "workDoneToken": "ask"}
                asked["ask"] = one.begin("draftline/ask", document | question)
                where = inline_params(one, "untitled:1", 1)
                asked["inline"] = one.begin("textDocument/inlineCompletion", where)
                reindex = {"command": "draftline.reindex"}
                asked["reindex"] = one.begin("workspace/executeCommand", reindex)

            await one.hello(settings=QUICK | {"model": chain}, before_initialized=ask)
            assert (await one.command("status"))["state"] == "loading"
            loading = {"kind": "report", "message": "loading the model", "percentage": 0}
            await one.until(lambda: loading in one.progress.get("edit", []))
            await one.until(lambda: loading in one.progress.get("ask", []))
            popup = await one.ask("textDocument/completion", inline_params(one, URI, 0))
            assert (popup["items"], popup["isIncomplete"]) == ([], True)
            assert not any(future.done() for future in asked.values())
            may_load.set()
            found = {name: one.json(await future) for name, future in asked.items()}
            one.apply(found["edit"]["edit"])
            assert one.texts[URI] == "x=9\n"
            assert "answer" in found["ask"]
            assert found["inline"]["items"][0]["insertText"].startswith("x=9")
            assert found["reindex"]["files"] >= 0


async def test_requests_that_wait_for_the_model_can_be_cancelled(
    tmp_path: Path, chain: str, may_load: threading.Event
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(settings={"model": chain, "debounceMs": 0})
            one.open(URI, "x=1\n")
            document = {"textDocument": one.doc(URI)}
            edit = document | {"instruction": "do", "workDoneToken": "cancelled"}
            first = one.begin("draftline/edit", edit, id=901)
            await one.until(lambda: len(one.progress.get("cancelled", [])) == 2)
            one.tell("$/cancelRequest", {"id": 901})
            assert (await refused(first))[0] == CANCELLED
            edit = document | {"instruction": "do", "workDoneToken": "edit"}
            second = one.begin("draftline/edit", edit)
            await one.until(lambda: len(one.progress.get("edit", [])) == 2)
            one.tell("window/workDoneProgress/cancel", {"token": "edit"})
            assert (await refused(second))[0] == CANCELLED
            older = one.begin("draftline/edit", document | {"instruction": "do"})
            newer = one.begin("draftline/edit", document | {"instruction": "do"})
            assert (await refused(older))[0] == CANCELLED
            where = inline_params(one, URI, 0)
            older = one.begin("textDocument/inlineCompletion", where)
            stale = one.begin("textDocument/inlineCompletion", where)
            assert one.json(await older)["items"] == []
            one.type(URI, 1, "\n")
            await one.command("status")  # the server has received it
            may_load.set()
            assert (await refused(newer))[0] == MODIFIED
            assert one.json(await stale)["items"] == []


async def test_requests_that_wait_fail_if_the_model_cannot_be_loaded(
    tmp_path: Path, may_load: threading.Event
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(settings={"model": "no-such"})
            one.open(URI, "x=1\n")
            edit = {"textDocument": one.doc(URI), "instruction": "do", "workDoneToken": "edit"}
            asked = one.begin("draftline/edit", edit)
            await one.until(lambda: len(one.progress.get("edit", [])) == 2)
            may_load.set()
            code, message = await refused(asked)
            assert code == FAILED and message.startswith("no-such: ")


async def test_closing_the_engine_ends_every_wait(may_load: threading.Event) -> None:
    shared = SharedEngine("no-such")
    shared.configure("client", "", "auto")
    waiting = asyncio.ensure_future(shared.ready())
    await asyncio.sleep(0)
    shared.close(TIMEOUT_S)
    with pytest.raises(NotReady, match="shutting down"):
        await asyncio.wait_for(waiting, TIMEOUT_S)


# -- models ----------------------------------------------------------------------------------------


async def test_a_model_that_cannot_be_loaded_and_a_good_one_after_it(
    tmp_path: Path, chain: str
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(settings={"model": "no-such"})
            await one.until(lambda: one.states and one.states[-1]["state"] == "error")
            reason = one.states[-1]["message"]
            assert reason.startswith("no-such: ")
            assert await one.command("status") == one.states[-1]
            one.open(URI, "x=1\n")
            where = inline_params(one, URI, "x=1\n")
            assert (await one.ask("textDocument/inlineCompletion", where))["items"] == []
            assert await one.command("why") == {"why": reason}
            for method, more in (("edit", {"instruction": "do"}), ("ask", {"question": "why?"})):
                found = await one.fails(
                    f"draftline/{method}", {"textDocument": one.doc(URI)} | more
                )
                assert found == (FAILED, reason)
            place = {"textDocument": one.doc(URI), "position": one.at(URI, 0)}
            next_edit = await one.ask("draftline/nextEdit", place)
            assert next_edit["edit"] is None and next_edit["reason"]
            reindex = {"command": "draftline.reindex"}
            assert await one.fails("workspace/executeCommand", reindex) == (FAILED, reason)
            params = {"textDocument": {"uri": URI}, "range": one.span(URI, "x=1")}
            params["context"] = {"diagnostics": []}
            listed = await one.ask("textDocument/codeAction", params)
            assert [action["title"] for action in listed] == [
                "Edit with instruction…",
                "Add a docstring",
                "Add type hints",
                "Simplify",
            ]
            assert one.messages == []  # the status shows the error
            one.configure(model=chain)
            params = {"textDocument": one.doc(URI), "instruction": "do"}
            assert (await one.ask("draftline/edit", params))["edit"]
            # A quick load may end before its progress is shown, but none stays open.
            await one.until(lambda: all(e[-1]["kind"] == "end" for e in one.progress.values()))


async def test_an_error_of_the_model_is_shown_once_to_clients_without_a_status(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(settings={"model": str(tmp_path / "none")}, experimental={})
            await one.until(lambda: one.messages)
            await one.command("status")
            (message,) = texts(one.messages)
            assert message.startswith("Draftline: ") and str(tmp_path / "none") in message


async def test_a_model_that_appears_is_loaded_when_it_is_configured_again(
    tmp_path: Path, other: str
) -> None:
    late = tmp_path / "late"
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(settings={"model": str(late)})
            await one.until(lambda: one.states and one.states[-1]["state"] == "error")
            late.symlink_to(other)
            one.configure(model=str(late))
            await one.ready()


async def test_another_model_answers_and_the_index_holds_its_tokens(
    tmp_path: Path, chain: str, other: str
) -> None:
    (tmp_path / "a.py").write_text("y=8\n" * 20)
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(tmp_path, settings=QUICK | {"model": chain})
            uri = one.open("untitled:1", "\n")
            for model, text in ((other, "y=8"), (chain, "x=9")):
                one.configure(model=model)
                await one.until(lambda model=model: one.states and one.states[-1]["model"] == model)
                assert (await one.ready())["model"] == model
                where = inline_params(one, uri, len(one.texts[uri]))
                (item,) = (await one.ask("textDocument/inlineCompletion", where))["items"]
                assert item["insertText"].startswith(text)
                one.type(uri, 0, " ")  # invalidates the cached completion


# -- roots and clients -----------------------------------------------------------------------------


async def test_root_path_is_a_path_and_not_a_uri(tmp_path: Path, chain: str) -> None:
    root = tmp_path / "C# 100%20?"
    root.mkdir()
    (root / "a.py").write_text("a = 1\n")
    with serving(tmp_path) as port:
        async with connected(port) as one:
            await one.hello(settings={"model": chain}, root_path=str(root))
            assert (await one.ready())["files"] == 1


async def test_a_client_that_leaves_blocks_no_other(
    tmp_path: Path, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saving its index may take long."""
    is_closing, may_close = threading.Event(), threading.Event()
    close = Workspace.close

    def wait_and_close(self: Workspace) -> None:
        is_closing.set()
        assert may_close.wait(TIMEOUT_S)
        close(self)

    with local_server(tmp_path, chain) as server:
        async with connected(server.port) as stays:
            await stays.hello()
            await stays.ready()
            async with connected(server.port) as leaves:
                await leaves.hello()
                await leaves.ready()
                monkeypatch.setattr(Workspace, "close", wait_and_close)
                leaves.exit(None)
                await stays.until(is_closing.is_set)
                assert (await stays.command("status"))["state"] == "ready"
                may_close.set()


async def test_clients_of_one_server_are_independent(
    tmp_path: Path, chain: str, other: str
) -> None:
    """The same URI with different texts and settings. The second client cannot change the model."""
    with serving(tmp_path) as port:
        async with connected(port) as first, connected(port) as second:
            await first.hello(settings=QUICK | {"model": chain})
            await first.ready()
            await second.hello(encoding="utf-8", settings={"model": other, "languages": ["rust"]})
            await second.ready()
            await second.until(lambda: second.messages)
            (warning,) = texts(second.messages)
            assert warning.startswith(f"Draftline answers with {chain} here, too")
            assert other in warning and "draftline.server" in warning
            first.open(URI, "x=1 # 😋\n")
            second.open(URI, "# 😋 x=1\n")
            asked = []
            for one, part in ((first, "x=1"), (second, "x=1")):
                given = {"textDocument": one.doc(URI), "range": one.span(URI, part)}
                asked.append(one.begin("draftline/edit", given | {"instruction": "do"}))
            for one, future in zip((first, second), asked, strict=True):
                one.apply(one.json(await future)["edit"])
            assert first.texts[URI] == "x=9 # 😋\n" and second.texts[URI] == "# 😋 x=9\n"
            for one, count in ((first, 1), (second, 0)):
                where = inline_params(one, URI, len(one.texts[URI]))
                answer = await one.ask("textDocument/inlineCompletion", where)
                assert len(answer["items"]) == count
            assert await second.command("toggle") == {"enabled": False}
            assert (await first.command("status"))["state"] == "ready"
            assert (await second.command("status"))["state"] == "off"


async def test_models_are_listed_with_what_a_picker_shows(port: int) -> None:
    async with connected(port) as one:
        await one.hello()
        answer = await one.ask("draftline/models", {})
        models = {row["name"]: row for row in answer["models"]}
        assert {*BUILTINS, *LARGER} <= {*models} and answer["problems"] == []
        assert [row["name"] for row in answer["models"] if row["default"]] == [DEFAULT_MODEL]
        for row in answer["models"]:
            assert row["bytes"] > 0 and row["memoryBytes"] > row["bytes"] // 2
            assert row["fits"] in {"yes", "not now", "no"}
        for name in BUILTINS:  # the cache of these tests is empty
            assert not models[name]["present"] and models[name]["licence"]


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", ["options", "configuration", "changed", "changed without section", "pulled"]
)
async def test_settings_reach_the_server_from_every_source(
    port: int, chain: str, source: str
) -> None:
    """Each disables the document's language, and has an unknown key and an invalid value."""
    good = {"model": chain, "languages": ["rust"]}
    values = good | {"maxTokns": 5, "debounceMs": -1}
    async with connected(port) as one:
        initial = {"pulled": {"model": chain}, "configuration": values}.get(source)
        settings = values if source == "options" else {"model": chain}
        await one.hello(settings=settings, own=initial)
        if source == "changed":
            one.tell("workspace/didChangeConfiguration", {"settings": {"draftline": values}})
        elif source == "changed without section":
            one.tell("workspace/didChangeConfiguration", {"settings": values})
        elif source == "pulled":
            await one.until(lambda: one.states)
            one.set_configuration(values, section="draftline")
            one.tell("workspace/didChangeConfiguration", {"settings": None})
        await one.until(lambda: len(one.messages) >= 2)
        uri = one.open("untitled:1", "x")
        where = inline_params(one, uri, 1)
        assert (await one.ask("textDocument/inlineCompletion", where))["items"] == []
        assert "draftline.languages" in (await one.command("why"))["why"]
        bad, wrong = sorted(texts(one.messages))
        assert wrong == "draftline.maxTokns: no such setting; did you mean maxTokens?"
        assert bad.startswith("draftline.debounceMs: ")
        assert bad.endswith("-1 does not fit; it must be a whole number from 0 to 60000")


async def test_a_wrong_key_is_one_warning_however_often_it_is_sent(port: int, chain: str) -> None:
    """Neovim both answers with its settings and notifies of them; VS Code also sends options."""
    values = {"model": chain, "maxTokns": 5}
    async with connected(port) as one:
        await one.hello(settings=values, own=values)
        one.configure(**values)
        await one.ready()
        one.configure(**values)
        await one.command("status")
        assert texts(one.messages) == [
            "draftline.maxTokns: no such setting; did you mean maxTokens?"
        ]
        one.configure(model=chain)
        one.configure(**values)  # corrected, and wrong again
        await one.command("status")
        assert len(one.messages) == 2


async def test_settings_of_other_servers_are_ignored(port: int, chain: str) -> None:
    async with connected(port) as one:
        await one.hello(settings={"model": chain})
        one.tell("workspace/didChangeConfiguration", {"settings": {"python": {"path": "x"}}})
        await one.ready()
        assert one.messages == []


# -- the log -----------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("level", ["warning", "info"])
async def test_the_log_holds_no_text_of_the_user(tmp_path: Path, chain: str, level: str) -> None:
    (tmp_path / "a.py").write_text(f"# {SECRET}\n")
    async with started(tmp_path, "--log-level", level) as one:
        await one.hello(tmp_path, settings={"model": chain, SECRET: 1}, own={"model": [SECRET]})
        await one.ready()
        one.open(URI, f"x=1 # {SECRET}\n")
        base = {"textDocument": one.doc(URI)}
        where = base | {"position": {"line": 1, "character": 0}, "context": {"triggerKind": 1}}
        await one.ask("textDocument/inlineCompletion", where)
        await one.ask("textDocument/completion", where)
        await one.ask("draftline/edit", base | {"instruction": SECRET})
        await one.command("edit", base | {"instruction": SECRET})
        base = {"textDocument": one.doc(URI)}
        await one.ask("draftline/ask", base | {"question": SECRET})
        for wrong in (
            {"textDocument": {"uri": URI, "version": 99}, "instruction": SECRET},
            base | {"instruction": [SECRET]},
            {"textDocument": {"uri": SECRET}, "instruction": SECRET},
        ):
            await one.fails("draftline/edit", wrong)
        one.configure(model=SECRET)
        one.tell("textDocument/didShowCompletion", {"item": {"insertText": SECRET}})
        one.tell("textDocument/didShowCompletion", {"item": [SECRET]})
        one.tell(SECRET, {SECRET: SECRET})
        await one.until(lambda: one.states[-1]["state"] == "error")
    log = (tmp_path / "log").read_text("utf-8")
    left = [line for line in log.splitlines() if SECRET in line]
    assert all("no such method" in line for line in left), left  # of the unknown method
    assert log
