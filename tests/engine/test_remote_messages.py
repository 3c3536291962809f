"""Requests and events as JSON: nothing is lost on the way, and nothing malformed gets through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import (
    Done,
    Info,
    Message,
    Passage,
    Piece,
    Request,
    RequestError,
    Step,
    Usage,
)
from engine.remote.messages import (
    SERVER,
    BadMessage,
    ServerInfo,
    Submission,
    done_from_json,
    event_from_json,
    info_from_json,
    submission_from_json,
    to_json,
)
from index.records import Span

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 1 << 40)
seconds = st.floats(0, 1e6)
messages: st.SearchStrategy[Message] = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": texts},
    optional=dict.fromkeys(("tool_calls", "tool_call_id", "name", "reasoning_content"), texts),
)


def lists_of(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=3).map(tuple)


requests = st.builds(
    Request,
    st.sampled_from(["edit", "complete", "chat"]),
    texts,
    path=texts,
    version=st.integers(-5, 5),
    selection=st.none() | st.tuples(counts, counts),
    instruction=texts,
    suffix=st.none() | texts,
    suffix_first=st.booleans(),
    snippets=lists_of(st.tuples(texts, texts)),
    messages=lists_of(messages),
    documents=lists_of(st.builds(Passage, texts, counts, texts)),
    predictions=lists_of(texts),
    max_tokens=st.none() | counts,
    temperature=st.just(0.0) | st.floats(0.1, 2),
    top_k=counts,
    top_p=st.floats(0.1, 1),
    seed=st.integers(-(1 << 62), 1 << 62),
    stop=lists_of(texts),
    tools=lists_of(texts),
    must_call=lists_of(texts),
    grammar=texts,
    thinking=st.booleans(),
)
spans = st.builds(Span, texts, counts, counts, st.integers(-5, 5))
steps = st.builds(
    Step,
    lists_of(st.builds(Piece, texts, texts, st.none() | spans)),
    counts,
    counts,
    seconds,
    st.none() | st.tuples(counts, counts),
    texts,
)
usages = st.builds(Usage, *[counts] * 6, *[seconds] * 3)
dones = st.builds(
    Done,
    st.sampled_from(["stop", "length", "cancelled", "failed"]),
    texts,
    st.none() | texts,
    usages,
    st.none() | texts,
    texts,
)
INFO = ServerInfo(SERVER, "1", 7, "ready", "", "m", "/m", "cpu", Info("m", "CPU", "q8", 9, True, 2))


def wired(value: Any) -> Any:
    """What arrives of a value that was sent."""
    return json.loads(json.dumps(to_json(value), allow_nan=False))


@given(requests, st.booleans(), texts)
def test_a_request_arrives_as_it_was(request: Request, speculation: bool, client: str) -> None:
    submission = Submission(request, speculation, client)
    assert submission_from_json(wired(submission)) == submission


@given(steps)
def test_a_step_arrives_as_it_was(step: Step) -> None:
    assert event_from_json(wired(step)) == step


@given(dones)
def test_an_end_arrives_as_it_was(done: Done) -> None:
    assert done_from_json(wired(done)) == done


def test_the_server_arrives_as_it_was() -> None:
    assert info_from_json(wired(INFO)) == INFO
    assert info_from_json(wired(ServerInfo(SERVER, "1", 7, "idle"))).engine is None


FULL = Request(
    "chat",
    "text",
    selection=(0, 1),
    suffix="s",
    snippets=(("a", "b"),),
    messages=({"role": "assistant", "content": "c", "tool_calls": "[]"},),
    documents=(Passage("d", 0, "t"),),
    max_tokens=1,
    temperature=0.5,
    stop=("x",),
    tools=("{}",),
    must_call=("f",),
    grammar="g",
    thinking=False,
)
WRONG: list[Any] = [{}, {"a": 1}, [1], [[]], "\ud800", 1.5, float("nan"), True, -1, 1 << 70]


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the parts of a JSON value are."""
    items: Any = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    return [before, *(path for key, one in items for path in paths(one, (*before, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A JSON value with another one in a place."""
    if not path:
        return new
    key, *rest = path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    made = {at: replaced(one, tuple(rest), new) if at == key else one for at, one in items}
    return made if isinstance(value, dict) else [*made.values()]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Submission(FULL), submission_from_json),
        (Step((Piece("a", "b", Span("p", 0, 1)),), 1, 1, 0.5, (1, 2), "r"), event_from_json),
        (Done("stop", "t", "m", Usage(1, decode_seconds=0.5), "e", "r"), done_from_json),
        (INFO, info_from_json),
    ],
    ids=["submission", "step", "done", "info"],
)
def test_a_wrong_value_anywhere_is_refused_or_is_a_valid_one(
    value: Any, read: Any, wrong: Any
) -> None:
    """No other exception gets out, and what is accepted is what was sent. The message never quotes
    the value."""
    whole = wired(value)
    for path in paths(whole):
        sent = replaced(whole, path, wrong)
        try:
            found = read(sent)
        except BadMessage as error:
            assert "\n" not in str(error) and "\ud800" not in str(error)
        except RequestError:
            pass  # a number that is out of range
        else:
            assert found == read(json.loads(json.dumps(to_json(found))))


@pytest.mark.parametrize("read", [submission_from_json, event_from_json, done_from_json])
def test_unknown_and_missing_keys_are_refused(read: Any) -> None:
    with pytest.raises(BadMessage, match="no field"):
        read({"shell": "rm"})
    if read is not event_from_json:
        with pytest.raises(BadMessage, match="missing"):
            read({})


def test_another_program_is_no_server() -> None:
    with pytest.raises(BadMessage, match="another program"):
        info_from_json(wired(INFO) | {"server": "nginx"})
