"""How an editor and its server begin: status, settings, a model that cannot be had, the log.

Most tests have a server of their own over pipes; none has another model than a chain of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EOS, FENCE, chain_model
from tests.support.lsp_editor import connected, serving, started

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/app.py"
SECRET = "Xyzzy-Plugh-4711"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("other") / "model", "y=8", EOS))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server for those who only speak of settings."""
    with serving(tmp_path_factory.mktemp("settings")) as port:
        yield port


def told(messages: list[Any]) -> list[str]:
    return [one.message for one in messages]


async def test_hello_is_answered_before_the_model_is_loaded(tmp_path: Path, chain: str) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    async with started(tmp_path) as one:
        result = await one.hello(tmp_path, settings={"model": chain})
        assert one.states == []
        assert result["serverInfo"]["name"] == "draftline"
        able = result["capabilities"]
        assert able["inlineCompletionProvider"] is not None and able["completionProvider"]
        assert able["codeActionProvider"]["resolveProvider"]
        wanted = {"edit", "status", "stats", "why", "reindex", "cancel", "toggle", "accepted"}
        named = set(able["executeCommandProvider"]["commands"])
        assert named == {f"draftline.{name}" for name in wanted}
        status = await one.command("status")
        assert status["state"] in ("loading", "ready") and status["model"]
        status = await one.ready()
        assert (status["state"], status["message"], status["model"]) == ("ready", "", chain)
        assert status["files"] >= 1 and status["tokens"] >= 6 and status["device"].startswith("cpu")
        assert status["tokensPerSecond"] is None  # nothing was asked for yet
        states = [state["state"] for state in one.states]
        assert states[0] == "loading" and set(states[1:]) == {"ready"}
        assert {*one.registered} == {
            "workspace/didChangeWatchedFiles",
            "workspace/didChangeConfiguration",
        }
        await one.until(lambda: next(iter(one.progress.values()))[-1]["kind"] == "end")
        (steps,) = one.progress.values()
        assert steps[0] == {"kind": "begin", "title": "Draftline"}
        told = steps[1:-1]  # how far it was whenever it was looked at: a small model loads at once
        assert told and all(step["kind"] == "report" and step["message"] for step in told)
        assert one.messages == []


async def test_a_model_that_cannot_be_had_and_a_good_one_after_it(
    tmp_path: Path, chain: str
) -> None:
    async with started(tmp_path) as one:
        await one.hello(tmp_path, settings={"model": "no-such"})
        await one.until(lambda: one.states and one.states[-1]["state"] == "error")
        reason = one.states[-1]["message"]
        assert reason.startswith("no-such: ") and await one.command("status") == one.states[-1]
        one.open(URI, "x=1\n")
        where = {"textDocument": one.doc(URI), "position": one.at(URI, "x=1\n")}
        assert (
            await one.ask("textDocument/inlineCompletion", where | {"context": {"triggerKind": 2}})
        )["items"] == []
        assert await one.command("why") == {"why": reason}
        for method, more in (("edit", {"instruction": "do"}), ("ask", {"question": "why?"})):
            found = await one.fails(f"draftline/{method}", {"textDocument": one.doc(URI)} | more)
            assert found == (-32803, reason)
        next_edit = await one.ask("draftline/nextEdit", where)
        assert next_edit["edit"] is None and next_edit["reason"]
        code, message = await one.fails(
            "workspace/executeCommand", {"command": "draftline.reindex"}
        )
        assert (code, message) == (-32803, reason)
        params = {"textDocument": {"uri": URI}, "range": one.span(URI, "x=1")}
        listed = await one.ask("textDocument/codeAction", params | {"context": {"diagnostics": []}})
        assert [action["title"] for action in listed] == [
            "Edit with instruction…",
            "Add a docstring",
            "Add type hints",
            "Simplify",
        ]
        assert one.messages == []  # the status says it
        await one.until(lambda: [shown[-1]["kind"] for shown in one.progress.values()] == ["end"])
        one.configure(model=chain)
        await one.ready()
        params = {"textDocument": one.doc(URI), "instruction": "do"}
        assert (await one.ask("draftline/edit", params))["edit"]
        assert len(one.progress) == 2  # each load is shown


async def test_a_client_without_a_status_is_told_of_the_error_once(tmp_path: Path) -> None:
    async with started(tmp_path) as one:
        await one.hello(settings={"model": str(tmp_path / "none")}, experimental={})
        await one.until(lambda: one.messages)
        await one.command("status")
        (message,) = told(one.messages)
        assert message.startswith("Draftline: ") and str(tmp_path / "none") in message


async def test_a_model_that_came_since_is_loaded_when_it_is_asked_for_again(
    tmp_path: Path, other: str
) -> None:
    late = tmp_path / "late"
    async with started(tmp_path) as one:
        await one.hello(settings={"model": str(late)})
        await one.until(lambda: one.states and one.states[-1]["state"] == "error")
        late.symlink_to(other)
        one.configure(model=str(late))
        await one.ready()


async def test_another_model_writes_and_the_index_is_of_its_tokens(
    tmp_path: Path, chain: str, other: str
) -> None:
    (tmp_path / "a.py").write_text("y=8\n" * 20)
    async with started(tmp_path) as one:
        await one.hello(tmp_path, settings={"model": chain, "debounceMs": 0})
        await one.ready()
        uri = one.open("untitled:1", "\n")
        where = {"textDocument": {"uri": uri}, "position": one.at(uri, 1)}
        where["context"] = {"triggerKind": 2}
        for model, text in ((other, "y=8"), (chain, "x=9")):
            one.configure(model=model)
            await one.until(lambda model=model: one.states[-1]["model"] == model)
            assert (await one.ready())["model"] == model
            (item,) = (await one.ask("textDocument/inlineCompletion", where))["items"]
            assert item["insertText"].startswith(text)
            one.type(uri, 0, " ")  # what is remembered does not count here any more
            where["position"] = one.at(uri, len(one.texts[uri]))


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["options", "asked", "told", "told bare", "pulled"])
async def test_settings_reach_the_server_by_every_way(port: int, chain: str, way: str) -> None:
    """Each turns the document's language off, and has one wrong key and one wrong value."""
    good = {"model": chain, "languages": ["rust"]}
    values = good | {"maxTokns": 5, "debounceMs": -1}
    async with connected(port) as one:
        own = {"model": chain} if way == "pulled" else values if way == "asked" else None
        await one.hello(settings=values if way == "options" else {"model": chain}, own=own)
        if way == "told":
            one.tell("workspace/didChangeConfiguration", {"settings": {"draftline": values}})
        elif way == "told bare":
            one.tell("workspace/didChangeConfiguration", {"settings": values})
        elif way == "pulled":
            await one.until(lambda: one.states)
            one.set_configuration(values, section="draftline")
            one.tell("workspace/didChangeConfiguration", {"settings": None})
        await one.until(lambda: len(one.messages) >= 2)
        uri = one.open("untitled:1", "x")
        where = {"textDocument": {"uri": uri}, "position": one.at(uri, 1)}
        where["context"] = {"triggerKind": 2}
        assert (await one.ask("textDocument/inlineCompletion", where))["items"] == []
        assert "draftline.languages" in (await one.command("why"))["why"]
        bad, wrong = sorted(told(one.messages))
        assert wrong == "draftline.maxTokns: no such setting; did you mean maxTokens?"
        assert bad.startswith("draftline.debounceMs: ")
        assert bad.endswith("-1 does not fit; it must be a whole number from 0 to 60000")


async def test_one_wrong_key_is_one_warning_however_often_it_is_sent(port: int, chain: str) -> None:
    """Neovim answers with its settings and tells them, too; VS Code adds its options."""
    values = {"model": chain, "maxTokns": 5}
    async with connected(port) as one:
        await one.hello(settings=values, own=values)
        one.configure(**values)
        await one.ready()
        one.configure(**values)
        await one.command("status")
        assert told(one.messages) == [
            "draftline.maxTokns: no such setting; did you mean maxTokens?"
        ]
        one.configure(model=chain)
        one.configure(**values)  # mended, and wrong again
        await one.command("status")
        assert len(one.messages) == 2


async def test_settings_of_others_are_passed_over(port: int, chain: str) -> None:
    async with connected(port) as one:
        await one.hello(settings={"model": chain})
        one.tell("workspace/didChangeConfiguration", {"settings": {"python": {"path": "x"}}})
        await one.ready()
        assert one.messages == []


async def test_clients_of_one_server_keep_to_themselves(
    tmp_path: Path, chain: str, other: str
) -> None:
    """The same URI, other texts and settings. The second one wants another model in vain."""
    with serving(tmp_path) as port:
        async with connected(port) as first, connected(port) as second:
            await first.hello(settings={"model": chain})
            await first.ready()
            await second.hello(encoding="utf-8", settings={"model": other, "languages": ["rust"]})
            await second.ready()
            (warning,) = told(second.messages)
            assert warning.startswith(f"this server runs {chain} for others")
            first.open(URI, "x=1 # 😋\n")
            second.open(URI, "# 😋 x=1\n")
            asked = []
            for one, part in ((first, "x=1"), (second, "x=1")):
                given = {"textDocument": one.doc(URI), "range": one.span(URI, part)}
                asked.append(one.begin("draftline/edit", given | {"instruction": "do"}))
            for one, future in zip((first, second), asked, strict=True):
                one.apply(one.json(await future)["edit"])
            assert first.texts[URI] == "x=9 # 😋\n" and second.texts[URI] == "# 😋 x=9\n"
            where = {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 0}}
            where["context"] = {"triggerKind": 2}
            for one, count in ((first, 1), (second, 0)):
                answer = await one.ask("textDocument/inlineCompletion", where)
                assert len(answer["items"]) == count
            assert await second.command("toggle") == {"enabled": False}
            assert (await first.command("status"))["state"] == "ready"
            assert (await second.command("status"))["state"] == "off"


# -- the log -----------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("level", ["warning", "info"])
async def test_the_log_holds_nothing_of_the_user(tmp_path: Path, chain: str, level: str) -> None:
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
    assert all("no such method" in line for line in left), left  # a method is no text of the user
    assert log  # something was logged: this test can fail
