"""Workspaces that are sent to an engine of another machine: the server has exactly the texts of the
client's index, by key, and loses what the client deletes."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config, Engine
from engine.records import Done, Piece, Request, Step
from engine.remote import received_indexes, sent_workspace
from engine.remote.engine_url import EngineUrl
from engine.remote.http_engine import HttpEngine
from engine.remote.link import LinkError
from engine.remote.messages import BadMessage
from engine.remote.received_indexes import (
    DELETE_WITHIN_S,
    ENTRY_CHARS,
    EXPUNGE_AFTER_S,
    FORGET_AFTER_S,
    IndexesFull,
    ReceivedIndexes,
)
from engine.remote.sent_workspace import SentWorkspace
from index.workspace.received_workspace import ReceivedWorkspace
from index.workspace.token_cache import digest
from tests.support.command import EOS, chain_model
from tests.support.encoders import Bytes
from tests.support.server import LocalServer, serve_engine
from ui.api.security import AccessRules
from ui.api.security import digest as key_digest

KEY, OTHER_KEY = "0123456789abcdef", "fedcba9876543210"
OWNER = key_digest(KEY).hex()
SECRET = "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def engine(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("DRAFTLINE_ENGINE_KEY", KEY)
        patch.setattr(sent_workspace, "SETTLE_S", 3600.0)  # tests send when they want to
        with Engine(Config(model=str(tiny()), threads=1, library=False)) as engine:
            yield engine


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LocalServer]:
    with serve_engine(engine, rules=AccessRules(key=f"{KEY} {OTHER_KEY}")) as server:
        yield server


@pytest.fixture
def remote(server: LocalServer) -> Iterator[HttpEngine]:
    with HttpEngine(EngineUrl(server.url)) as remote:
        yield remote


def indexes(server: LocalServer) -> ReceivedIndexes:
    found: ReceivedIndexes = server.app.state.indexes
    return found


def received(server: LocalServer, sent: SentWorkspace, owner: str = OWNER) -> ReceivedWorkspace:
    found = indexes(server).find(owner, sent.name)
    assert found is not None
    return found


def texts_of(workspace: Any, engine: Engine) -> dict[str, str]:
    """The texts that an index holds, by name, made of its tokens."""
    return {one.path: engine.encoder.decode(one.tokens.tolist()) for one in workspace.documents}


NAMES = st.sampled_from(["a.py", "b.py", "c/d.py", "c/e.py"])
TEXTS = st.sampled_from(["x = 1\n", "def f():\n    return 2\n", "été 😋\n", ""])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, TEXTS),
        st.tuples(st.just("delete"), NAMES, st.just("")),
        st.tuples(st.just("open"), NAMES, TEXTS),
        st.tuples(st.just("close"), NAMES, st.just("")),
        st.tuples(st.just("send"), st.just(""), st.just("")),
        st.tuples(st.just("lose"), st.just(""), st.just("")),
    ),
    max_size=12,
)


@settings(max_examples=20)
@given(steps=STEPS)
def test_the_server_has_the_texts_of_the_client(
    engine: Engine, server: LocalServer, steps: list[tuple[str, str, str]], tmp_path_factory: Any
) -> None:
    root = tmp_path_factory.mktemp("root")
    with (
        HttpEngine(EngineUrl(server.url)) as remote,
        remote.open_workspace(root) as sent,
    ):
        sent.build()
        for step, name, text in [*steps, ("send", "", "")]:
            file = root / name
            if step == "write":
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, "utf-8")
                sent.refresh([file])
            elif step == "delete":
                file.unlink(missing_ok=True)
                sent.refresh([file])
            elif step == "open":
                sent.update(file, text, 1)
            elif step == "close":
                sent.update(file, None)
            elif step == "lose":  # as a server that was started again
                indexes(server)._indexes.clear()
            else:
                sent.send()
                assert texts_of(received(server, sent), engine) == texts_of(sent, engine)
    shutil.rmtree(root)


def test_only_what_the_server_lacks_is_sent(
    engine: Engine, server: LocalServer, remote: HttpEngine, tmp_path: Path
) -> None:
    for number in range(5):
        (tmp_path / f"{number}.py").write_text(f"x = {number}\n")
    with remote.open_workspace(tmp_path) as sent:
        sent.build()
        sent.send()
        cache = received(server, sent).token_cache
        assert cache.misses == 5
        sent.send()
        (tmp_path / "3.py").write_text("x = 33\n")
        (tmp_path / "4.py").rename(tmp_path / "5.py")
        shutil.copy(tmp_path / "1.py", tmp_path / "6.py")
        sent.scan()
        sent.send()
        assert cache.misses == 6
        assert texts_of(received(server, sent), engine) == texts_of(sent, engine)
    with remote.open_workspace(tmp_path) as again:  # as after a restart of the editor
        again.build()
        again.send()
        assert received(server, again).token_cache is cache and cache.misses == 6


def test_ignored_files_and_secrets_stay_here(
    engine: Engine, server: LocalServer, remote: HttpEngine, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("out/\n")
    for name, text in {
        "a.py": "x = 1\n", "out/b.py": "y = 2\n", ".env": SECRET, "c.py": SECRET,
        "node_modules/d.js": "z\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    posted: list[bytes] = []
    with remote.open_workspace(tmp_path) as sent:
        post = sent._sender._link.post
        sent._sender._link.post = lambda *args: posted.append(repr(args).encode()) or post(*args)  # type: ignore
        sent.build()
        sent.update(tmp_path / "e.py", SECRET, 1)
        sent.update(tmp_path / ".env", "SAFE=1\n", 1)
        sent.send()
        names = {os.path.relpath(path, tmp_path) for path in received(server, sent).paths}
    assert names == {"a.py", ".gitignore"}
    assert b"EXAMPLEKEY" not in b"".join(posted) and b"y = 2" not in b"".join(posted)


def test_a_text_that_is_deleted_while_it_is_sent(
    engine: Engine, server: LocalServer, remote: HttpEngine, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.py").write_text(f"x = {number}\n")
    with remote.open_workspace(tmp_path) as sent:
        sent.build()
        (tmp_path / "1.py").unlink()
        (tmp_path / "2.py").write_text("another text\n")
        sent.send()
        assert [Path(path).name for path in received(server, sent).paths] == ["0.py"]
        sent.scan()
        sent.send()
        assert texts_of(received(server, sent), engine) == texts_of(sent, engine)


def test_answers_are_drafted_from_the_workspace_of_the_same_key_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer occurs only in one file of the workspace."""
    head, answer = "# THE HEAD OF A FILE\n", "abcdefghijklmnopqrstuvwxyz"
    model = chain_model(tmp_path / "model", answer, EOS)
    file = tmp_path / "work" / "answer.py"
    file.parent.mkdir()
    file.write_text(source := f"\u00e9\U0001f60b first line\n{head}{answer}\n", "utf-8")
    monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", KEY)
    request = Request("complete", head)
    rules = AccessRules(key=f"{KEY} {OTHER_KEY}")
    with (
        Engine(Config(model=str(model), library=False)) as engine,
        serve_engine(engine, rules=rules) as server,
        HttpEngine(EngineUrl(server.url)) as remote,
        remote.open_workspace(file.parent) as sent,
    ):
        sent.build()
        sent.send()
        monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", OTHER_KEY)
        with HttpEngine(EngineUrl(server.url)) as other:
            pieces, text = answered(other, request, sent)
        assert text == answer and not any(piece.source == "workspace" for piece in pieces)
        assert indexes(server).find(key_digest(OTHER_KEY).hex(), sent.name) is None
        pieces, text = answered(remote, request, sent)
        drafted = [piece for piece in pieces if piece.source == "workspace"]
        assert text == answer and sum(len(piece.text) for piece in drafted) > 13
        for piece in drafted:
            assert piece.span is not None and piece.span.path == str(file)
            assert source[piece.span.start : piece.span.stop] == piece.text


def answered(remote: HttpEngine, request: Request, sent: SentWorkspace) -> tuple[list[Piece], str]:
    *steps, done = remote.submit(request, workspace=sent)
    assert isinstance(done, Done)
    return [piece for step in steps if isinstance(step, Step) for piece in step.pieces], done.text


def test_a_server_that_is_gone_and_comes_back(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with serve_engine(engine) as server:
        with HttpEngine(EngineUrl(server.url)) as remote:
            sent = remote.open_workspace(tmp_path)
        sent.build()
        sent.send()
    with pytest.raises(LinkError, match=r"running|lost"):
        sent.send()
    with serve_engine(engine) as server:
        sent._sender._link._http.base_url = server.url  # type: ignore[assignment]
        sent.send()
        assert texts_of(received(server, sent, ""), engine) == texts_of(sent, engine)
    sent.close()


def test_a_machine_has_one_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = sent_workspace.machine_name(tmp_path / "home")
    assert sent_workspace.machine_name(tmp_path / "home") == name != ""
    (tmp_path / "file").write_text("")
    assert sent_workspace.machine_name(tmp_path / "file") != name
    assert "sent again" in caplog.text


# -- the indexes alone ------------------------------------------------------------------------


def files_of(texts: dict[str, str]) -> dict[str, str]:
    return {path: digest(text).hex() for path, text in texts.items()}


def sent_texts(texts: dict[str, str]) -> dict[str, str]:
    return {digest(text).hex(): text for text in texts.values()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> Iterator[ReceivedIndexes]:
    made = ReceivedIndexes(Bytes(), clock)
    yield made
    made.close()


def fill(kept: ReceivedIndexes, texts: dict[str, str], owner: str = "o", name: str = "w") -> str:
    """Send a whole workspace; returns its revision."""
    answer = kept.sync(owner, name, {"whole": True, "files": files_of(texts)})
    answer = kept.sync(owner, name, {"base": answer["revision"], "texts": sent_texts(texts)})
    assert answer["missing"] == []
    revision: str = answer["revision"]
    return revision


def held_tokens(workspace: ReceivedWorkspace) -> bytes:
    """All that memory has of texts, the deleted ones included."""
    found = b""
    for segment in workspace._segments.segments:
        for document in segment.documents:
            found += bytes(document.tokens.astype(np.uint8))
    return found


def test_deleted_texts_are_gone_in_the_announced_time(kept: ReceivedIndexes, clock: Clock) -> None:
    texts = {f"{n}.py": f"text number {n}\n" * 9 for n in range(20)}
    revision = fill(kept, texts)
    workspace = kept.find("o", "w")
    assert workspace is not None and workspace.match(list(b"number 7\ntext"))
    kept.sync("o", "w", {"base": revision, "deleted": ["7.py"]})
    assert not workspace.match(list(b"number 7\ntext number 7"))[0].length > 12
    clock.now += EXPUNGE_AFTER_S - 1
    kept.tidy()
    assert b"number 7" in held_tokens(workspace), "the test sees what memory has"
    clock.now += 1
    kept.tidy()
    assert b"number 7" not in held_tokens(workspace) and b"number 8" in held_tokens(workspace)
    assert len(workspace.documents) == 19 and EXPUNGE_AFTER_S < DELETE_WITHIN_S


def test_an_index_without_a_client_is_forgotten(kept: ReceivedIndexes, clock: Clock) -> None:
    revision = fill(kept, {"a": "text"})
    clock.now += FORGET_AFTER_S - 1
    kept.tidy()
    assert kept.sync("o", "w", {"base": revision})["revision"] == revision  # a sign of life
    clock.now += FORGET_AFTER_S - 1
    kept.tidy()
    assert kept.find("o", "w") is not None
    clock.now += FORGET_AFTER_S
    kept.tidy()
    assert kept.find("o", "w") is None
    assert kept.sync("o", "w", {"base": revision, "files": {}}) == {"stale": True}


def test_keys_and_workspaces_have_indexes_of_their_own(kept: ReceivedIndexes) -> None:
    fill(kept, {"a": "one"}, "o", "w")
    fill(kept, {"a": "two"}, "p", "w")
    fill(kept, {"a": "three"}, "o", "v")
    found = [kept.find(*key) for key in (("o", "w"), ("p", "w"), ("o", "v"))]
    assert [held_tokens(one) for one in found if one] == [b"one", b"two", b"three"]
    assert kept.find("p", "v") is None
    # A digest of another key's text gets nobody that text.
    answer = kept.sync("p", "x", {"whole": True, "files": files_of({"a": "one"})})
    assert answer["missing"] == [digest("one").hex()]


def test_ten_thousand_files_at_once(kept: ReceivedIndexes) -> None:
    texts = {f"{n}.py": f"x = {n}\n" for n in range(10_000)}
    fill(kept, texts)
    workspace = kept.find("o", "w")
    assert workspace is not None and len(workspace.documents) == 10_000
    assert kept.sync("o", "w", {"whole": True, "files": {}})["missing"] == []
    assert not workspace.documents


def test_a_full_disk_harms_no_index(kept: ReceivedIndexes) -> None:
    """Nothing is written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        fill(kept, {f"{n}.py": f"x = {n}\n" * 99 for n in range(200)})
        workspace = kept.find("o", "w")
        assert workspace is not None
        workspace.compact()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(workspace.documents) == 200


def test_what_is_too_much_is_one_line(
    kept: ReceivedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_indexes, "MAX_FILES", 2)
    with pytest.raises(IndexesFull, match="over 2 files"):
        fill(kept, {"a": "1", "b": "2", "c": "3"})
    monkeypatch.setattr(received_indexes, "MAX_INDEX_CHARS", 1 << 20)
    with pytest.raises(IndexesFull, match="over 1 MiB"):
        fill(kept, {"a": "x" * (1 << 20), "b": "y"})
    monkeypatch.setattr(received_indexes, "MAX_CHARS", 1 << 20)
    monkeypatch.setattr(received_indexes, "MAX_INDEX_CHARS", 2 << 20)
    fill(kept, {"a": "x" * ((1 << 20) - ENTRY_CHARS - 1)})
    with pytest.raises(IndexesFull, match="1 MiB of text"):
        fill(kept, {"b": "y"}, name="v")
    monkeypatch.setattr(received_indexes, "MAX_INDEXES", 2)
    with pytest.raises(IndexesFull, match="2 workspaces"):
        fill(kept, {}, name="u")


def test_a_key_that_has_less_gets_a_workspace(
    kept: ReceivedIndexes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key that has most loses the workspace that it has not used for longest, and sends it
    again once it needs it."""
    monkeypatch.setattr(received_indexes, "MAX_INDEXES", 4)
    revisions = {}
    for name in "abcd":
        revisions[name] = fill(kept, {"file": name}, "greedy", name)
        clock.now += 1
    kept.sync("greedy", "a", {"base": revisions["a"]})
    fill(kept, {"file": "other"}, "other", "w")
    assert kept.find("greedy", "b") is None and kept.find("other", "w") is not None
    assert kept.find("greedy", "a") is not None
    with pytest.raises(IndexesFull, match="4 workspaces"):
        kept.sync("greedy", "b", {"base": revisions["b"]})
    fill(kept, {"file": "more"}, "other", "v")
    with pytest.raises(IndexesFull, match="4 workspaces"):  # both have two
        fill(kept, {"file": "more"}, "other", "u")


def test_names_without_texts_count_with_what_their_entries_take(
    kept: ReceivedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_indexes, "MAX_CHARS", 10 * (ENTRY_CHARS + 1))
    for name, count in (("a", 6), ("b", 4)):
        files = {str(number): "0" * 32 for number in range(count)}
        kept.sync("key", name, {"whole": True, "files": files})
    with pytest.raises(IndexesFull, match="of text"):
        kept.sync("key", "c", {"whole": True, "files": {"x": "0" * 32}})
    kept.sync("key", "b", {"whole": True, "files": {}})
    kept.sync("key", "c", {"whole": True, "files": {"x": "0" * 32}})


def test_a_key_that_has_less_gets_room_for_its_texts(
    kept: ReceivedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_indexes, "MAX_CHARS", 1000 + 2 * (ENTRY_CHARS + 4))
    fill(kept, {"file": "x" * 600}, "greedy", "a")
    fill(kept, {"file": "y" * 400}, "greedy", "b")
    fill(kept, {"file": "z" * 300}, "other", "w")
    assert kept.find("greedy", "a") is None and kept.find("greedy", "b") is not None
    more = {"file": "z" * 700}
    with pytest.raises(IndexesFull, match="of text"):
        body = {"whole": True, "files": files_of(more), "texts": sent_texts(more)}
        kept.sync("other", "w", body)
    other = kept.find("other", "w")
    assert other is not None and held_tokens(other) == b"z" * 300, "it is as it was"


WISHES = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["", "one", "two", "three" * 9])),
    max_size=6,
)


@settings(max_examples=50)
@given(wishes=WISHES, most=st.integers(0, 60))
def test_copies_of_a_text_are_counted_before_they_are_made(
    wishes: list[dict[str, str]], most: int
) -> None:
    """A text is here under one name at least, and under further ones while they are few. Whatever
    a client sends, in whatever order, its files are never missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(received_indexes, "MAX_COPIED_CHARS", most)
        kept = ReceivedIndexes(Bytes(), Clock())
        for texts in wishes:
            fill(kept, texts)
            workspace = kept.find("o", "w")
            assert workspace is not None
            held = {
                one.path: bytes(one.tokens.astype(np.uint8)).decode() for one in workspace.documents
            }
            assert held.items() <= texts.items()
            assert set(held.values()) == set(texts.values())
            copied = sum(map(len, held.values())) - sum(map(len, set(held.values())))
            assert copied <= most
        kept.close()


def test_no_copy_is_made_of_what_is_too_large(
    kept: ReceivedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_indexes, "MAX_COPIED_CHARS", 2500)
    revision = fill(kept, {"first": "x" * 1000})
    made: list[str] = []
    copy = ReceivedWorkspace.copy
    monkeypatch.setattr(
        ReceivedWorkspace, "copy", lambda own, one, path: made.append(path) or copy(own, one, path)
    )
    many = {f"g{n}": digest("x" * 1000).hex() for n in range(5000)}
    answer = kept.sync("o", "w", {"base": revision, "files": many})
    assert answer["missing"] == [] and len(made) == 2
    answer = kept.sync("o", "w", {"base": answer["revision"], "deleted": ["first", *made]})
    assert answer["missing"] == [] and len(made) == 5, "another name has the text now"
    monkeypatch.setattr(received_indexes, "MAX_NAMES_CHARS", 20_000)
    with pytest.raises(IndexesFull, match="of names"):
        names = {f"{n:04}" + "n" * 4000: digest("").hex() for n in range(6)}
        kept.sync("o", "w", {"base": answer["revision"], "files": names})
    assert len(made) == 5


def test_deleted_texts_are_erased_when_there_are_many(
    kept: ReceivedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that adds and deletes in turns does not fill the memory."""
    monkeypatch.setattr(received_indexes, "MAX_DEAD_CHARS", 3000)
    for number in range(20):
        fill(kept, {f"{number}": f"{number:02}" * 500})
        workspace = kept.find("o", "w")
        assert workspace is not None and len(held_tokens(workspace)) <= 5000


def test_a_name_has_a_length(kept: ReceivedIndexes, tmp_path: Path) -> None:
    own = digest("x").hex()
    assert kept.sync("o", "w", {"whole": True, "files": {"n" * 4096: own, "\u20ac" * 1365: own}})
    for name in ("n" * 4097, "\u20ac" * 1366):
        with pytest.raises(BadMessage, match="4,096 bytes"):
            kept.sync("o", "w", {"whole": True, "files": {name: own}})
        assert not sent_workspace._is_text(name), "no client sends it"


def test_many_names_are_sent_in_parts(
    engine: Engine, server: LocalServer, remote: HttpEngine, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sent_workspace, "BATCH_NAMES", 3)
    for number in range(10):
        (tmp_path / f"{number}.py").write_text(f"x = {number}\n")
    with remote.open_workspace(tmp_path) as sent:
        for _ in range(2):
            sent.build()
            sent.send()
            assert texts_of(received(server, sent), engine) == texts_of(sent, engine)
            for number in range(4, 12):
                (tmp_path / f"{number}.py").write_text(f"y = {number}\n")
            (tmp_path / "0.py").unlink(missing_ok=True)
            sent.scan()
        sent.send()
        assert texts_of(received(server, sent), engine) == texts_of(sent, engine)


@pytest.mark.parametrize(
    "body",
    [
        None, [], {"files": []}, {"files": {"a": 1}}, {"files": {"a": "ab"}}, {"deleted": {}},
        {"files": {"": "0" * 32}}, {"files": {"\ud800": "0" * 32}}, {"deleted": [1]},
        {"texts": {"0" * 32: "another"}}, {"texts": {digest("a").hex(): 1}}, {"texts": {"x": "y"}},
        {"texts": {"0" * 32: "\ud800"}}, {"files": {"a\0b": "0" * 32}},
    ],
)  # fmt: skip
def test_bad_messages_change_nothing(kept: ReceivedIndexes, body: Any) -> None:
    revision = fill(kept, {"a": "text"})
    if isinstance(body, dict):
        body = {"base": revision, **body}
    with pytest.raises(BadMessage):
        kept.sync("o", "w", body)
    for name in ("", "../x", "y" * 65):
        with pytest.raises(BadMessage):
            kept.sync("o", name, {"base": revision})
    assert kept.sync("o", "w", {"base": revision}) == {"revision": revision, "missing": []}


def test_texts_that_nobody_wants_are_not_kept(kept: ReceivedIndexes) -> None:
    revision = fill(kept, {"a": "text"})
    kept.sync("o", "w", {"base": revision, "texts": sent_texts({"b": "unwanted"})})
    workspace = kept.find("o", "w")
    assert workspace is not None and held_tokens(workspace) == b"text"
