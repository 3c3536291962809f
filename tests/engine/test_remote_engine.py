"""An engine in another process: the same text as from an engine of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine
from engine.records import Done, Passage, Request, RequestError, Step
from engine.remote import remote_engine
from engine.remote.address import AddressError
from engine.remote.remote_engine import RemoteEngine, open_connection
from engine.sampling.grammar import json_grammar
from tests.support.held_model import held, held_at_step, unfinished
from tests.support.shared_server import ThreadServer, shared_server

TEXT = "class Point:\n    def __init__(self, x: int) -> None:\n        self.x = x\n"
ASK = ({"role": "user", "content": "sums \u00e9t\u00e9 \U0001f60b?"},)
TOOLS = ('{"name": "f"}',)
CALLS = '[{"id": "1", "name": "f", "arguments": {}}]'
CALLED = (
    *ASK,
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "content": "7", "tool_call_id": "1"},
)
BAD_TOOLS = ("", "[]", "{}", '{"name": 1}', '{"name": "f", "parameters": []}', "[" * 9999)
REQUESTS = [
    Request("edit", TEXT, path="a.py", instruction="rename x", max_tokens=24),
    Request("edit", TEXT, selection=(13, 40), instruction="do", max_tokens=24, temperature=0.8),
    Request("complete", TEXT, suffix="\n", snippets=(("b.py", "x = 1\n"),), max_tokens=16),
    Request("chat", messages=ASK, documents=(Passage("d", 0, "sums"),), max_tokens=24, seed=3),
    Request("chat", messages=ASK, predictions=(TEXT,), max_tokens=24, temperature=1.0, top_k=9),
    Request("chat", messages=CALLED, tools=TOOLS, must_call=("f",), max_tokens=24, temperature=1.0),
    Request("chat", messages=ASK, grammar=json_grammar({"type": "object"}), max_tokens=24),
]


@pytest.fixture(scope="module")
def server(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    home = tmp_path_factory.mktemp("home")
    with shared_server(home, str(tiny())) as server:
        yield server


@pytest.fixture
def remote(server: ThreadServer) -> Iterator[RemoteEngine]:
    with RemoteEngine(open_connection(server.address)) as engine:
        yield engine


@pytest.fixture(scope="module")
def own(server: ThreadServer, tiny: Any) -> Iterator[Engine]:
    """An engine of one's own with the same model; `server` has set its cache folder."""
    with Engine(Config(model=str(tiny()))) as engine:
        yield engine


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: f"{one.kind} {one.temperature}")
@pytest.mark.parametrize("speculation", [True, False])
def test_the_text_is_that_of_an_own_engine(
    remote: RemoteEngine, own: Engine, request_: Request, speculation: bool
) -> None:
    expected = own.submit(request_, speculation=False).result()
    *steps, done = remote.submit(request_, speculation)
    assert isinstance(done, Done) and expected.text
    assert (done.text, done.reason, done.matched) == (
        expected.text,
        expected.reason,
        expected.matched,
    )
    assert done.usage.completion_tokens == expected.usage.completion_tokens
    assert all(isinstance(step, Step) for step in steps)
    assert "".join(step.text for step in steps if isinstance(step, Step)).startswith(done.text)
    if not speculation:
        assert done.usage.drafted == 0


def test_what_faces_ask_of_an_engine(remote: RemoteEngine, own: Engine) -> None:
    speed = own.info.prefill_tokens_per_s  # each engine measures its own
    assert remote.info._replace(prefill_tokens_per_s=speed) == own.info
    assert remote.context == own.context and remote.info.prefill_tokens_per_s > 0
    assert remote.folder == own.folder and remote.config.model == own.config.model
    assert remote.encode(TEXT) == own.encode(TEXT) and remote.chat(ASK) == own.chat(ASK)
    assert remote.encoder.fingerprint == own.encoder.fingerprint


def test_a_cancelled_answer_keeps_its_text(server: ThreadServer, remote: RemoteEngine) -> None:
    request = Request("chat", messages=ASK, max_tokens=200)
    with unfinished(server.shared_engine.engine):
        events = iter(job := remote.submit(request, speculation=False))
        written = next(step.text for step in events if isinstance(step, Step) and step.text)
        job.cancel()
        *_, done = events
    assert isinstance(done, Done) and done.reason == "cancelled"
    assert done.text.startswith(written) and done.usage.prompt_tokens
    assert job.result() is done
    job.cancel()  # has ended: nothing happens
    assert remote.submit(REQUESTS[0]).result().reason in ("stop", "length")


def test_jobs_of_one_engine_and_of_several_are_kept_apart(
    server: ThreadServer, remote: RemoteEngine, own: Engine
) -> None:
    expected = [own.submit(one).result().text for one in REQUESTS]
    jobs = [remote.submit(one) for one in REQUESTS]
    with RemoteEngine(open_connection(server.address)) as other:
        others = [other.submit(one) for one in REQUESTS]
        assert [job.result().text for job in reversed(jobs)] == expected[::-1]
        assert [job.result().text for job in others] == expected


@pytest.mark.parametrize(
    "request_",
    [
        Request("edit", TEXT, instruction=""),
        Request("chat"),
        Request("complete", "x" * 4000),
        Request("complete", "\x00" * (4 << 20)),
        Request("chat", messages=ASK, grammar="none"),
        Request("chat", messages=ASK, tools=TOOLS, must_call=("g",)),
        *(Request("chat", messages=ASK, tools=(tool,)) for tool in BAD_TOOLS),
        *(
            Request("chat", messages=({"role": "assistant", "content": "", "tool_calls": calls},))
            for calls in ("", "{}", "[1]", "[" * 9999, '[{"name": "f"}]', CALLS.replace("{}", "1"))
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_when_it_is_submitted(
    remote: RemoteEngine, request_: Request
) -> None:
    with pytest.raises(RequestError, match=r"^[^\n]+$"):
        remote.submit(request_)
    assert remote.submit(REQUESTS[0]).result().text


def test_an_abandoned_job_ends(server: ThreadServer, own: Engine) -> None:
    """Its client leaves while it runs; the next client is served."""
    with held_at_step(2):
        engine = RemoteEngine(open_connection(server.address))
        next(iter(engine.submit(Request("chat", messages=ASK, max_tokens=300))))
        engine.close()
    with RemoteEngine(open_connection(server.address)) as other:
        assert other.submit(REQUESTS[0]).result().text == own.submit(REQUESTS[0]).result().text


def test_a_server_that_ends_while_it_answers(tiny: Any, tmp_path: Path) -> None:
    with shared_server(tmp_path, str(tiny())) as server:
        engine = RemoteEngine(open_connection(server.address))
        with held(server.shared_engine.engine):
            job = engine.submit(REQUESTS[0])
            engine._connection.wire.shutdown(2)
            done = job.result()
        assert done.reason == "failed" and done.error and "has ended" in done.error
        assert engine.submit(REQUESTS[0]).result().reason == "failed"
        engine.close()


def test_a_model_that_is_replaced_while_it_answers(tiny: Any, tmp_path: Path) -> None:
    with shared_server(tmp_path, str(tiny())) as server:
        with RemoteEngine(open_connection(server.address)) as engine:
            with held(server.shared_engine.engine):
                job = engine.submit(REQUESTS[0])
                server.shared_engine.configure("an editor", str(tiny("qwen2")), "auto")
            done = job.result()
        # The answer may have been finished just before.
        assert done.reason != "cancelled" and (done.reason != "failed" or "another" in str(done))


def test_a_server_without_a_model(tmp_path: Path) -> None:
    with (
        shared_server(tmp_path, "no-such-model") as server,
        pytest.raises(AddressError, match="no-such-model"),
    ):
        RemoteEngine(open_connection(server.address))


def test_a_server_of_another_version(server: ThreadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "own_version", lambda: "9")
    with pytest.raises(AddressError, match="and this is 9: start"):
        RemoteEngine(open_connection(server.address))
