"""Attacks on the page: other users' sessions, guessed passwords, uploads and streams that nobody
reads. Injected scripts are run in a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import psutil
import pytest

from index.documents.formats import MAX_FILE_BYTES
from tests.support.page import (
    ANN,
    API,
    BEN,
    guard_of,
    join,
    login,
    page,
    paged,
    reciting,
)
from tests.support.server import LocalServer, occupied, wait_until
from ui.web import app as web
from ui.web import gradio_guard, sessions, upload_space
from ui.web import login as logins

locked, opened = paged(ANN, BEN), paged()

HASH = "a1b2c3d4e5f"  # of Ann's session, which Ben knows
QUESTION = "What does my diary say?"
MEBIBYTE = 1 << 20
MAX_LEFT_BYTES = 100 * MEBIBYTE  # that an attack may leave behind
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}


def blocks_of(served: LocalServer) -> Any:
    inner: Any = guard_of(served).app
    return inner.get_blocks()


def event_named(served: LocalServer, name: str) -> tuple[int, list[Any]]:
    """The index and the initial inputs of the event that calls a function."""
    found = [
        (index, [getattr(component, "value", None) for component in event.inputs])
        for index, event in blocks_of(served).fns.items()
        if getattr(event.fn, "__name__", "") == name
    ]
    return found[0]


def stream_of(http: httpx.Client, session: str) -> contextlib.AbstractContextManager[Any]:
    return http.stream("GET", f"{API}/queue/data", params={"session_hash": session})


def refresh(http: httpx.Client, served: LocalServer, session: str) -> httpx.Response:
    """Start an event that lists the user's documents."""
    index, inputs = event_named(served, "_refresh")
    return join(http, inputs, fn_index=index, session_hash=session)


# -- sessions -------------------------------------------------------------------------------------


def assert_strangers(served: LocalServer, ann: httpx.Client, ben: httpx.Client) -> None:
    """Check that Ben cannot read or end what runs in Ann's session, though he knows its hash and
    the ids of its events."""
    served.app.state.page.library("ann").add_data("diary.txt", b"nobody else reads this")
    event = refresh(ann, served, HASH).json()["event_id"]
    assert ben.get(f"{API}/queue/data?session_hash={HASH}").status_code == 404
    assert refresh(ben, served, HASH).status_code == 200, "in a session of his own"
    with stream_of(ben, HASH) as stream:
        text = stream.read().decode()
    assert "process_completed" in text and "diary" not in text and event not in text
    with stream_of(ann, HASH) as stream:
        text = stream.read().decode()
    assert "process_completed" in text and event in text


def test_another_users_session_is_out_of_reach(locked: LocalServer) -> None:
    with login(locked, ANN) as ann, login(locked, BEN) as ben:
        assert_strangers(locked, ann, ben)


def test_without_logins_each_browser_has_its_own_sessions(opened: LocalServer) -> None:
    with opened.http() as ann, opened.http() as ben, opened.http() as program:
        for http in (ann, ben):
            answer = http.get("/ui/")
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith(f"{gradio_guard.BROWSER_COOKIE}=")
            assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax")
            assert "set-cookie" not in http.get("/ui/").headers, "the browser has one"
        assert_strangers(opened, ann, ben)
        assert_strangers(opened, ann, program)


def test_another_users_event_cannot_be_cancelled(locked: LocalServer) -> None:
    """Neither by its id nor by the session's hash; nor can a heartbeat that ends it."""
    index, inputs = event_named(locked, "_ask")
    with login(locked, ANN) as ann, login(locked, BEN) as ben, occupied(locked.engine):
        data = [QUESTION, "b" * 32, [], *inputs[3:]]
        event = join(ann, data, fn_index=index, session_hash=HASH).json()["event_id"]
        body = {"event_id": event, "fn_index": index, "session_hash": HASH}
        queue = blocks_of(locked)._queue
        for route in ("cancel", "reset"):
            assert ben.post(f"{API}/{route}", json=body).status_code == 404
            fake = body | {"session_hash": queue.event_ids_to_events[event].session_hash}
            assert ben.post(f"{API}/{route}", json=fake).status_code == 404
        other = body | {"event_id": "f" * 32}
        assert ben.post(f"{API}/cancel", json=other).status_code == 200, "nothing to cancel"
        with ben.stream("GET", f"{API}/heartbeat/{HASH}") as heartbeat:
            next(heartbeat.iter_lines())
        assert event in queue.event_ids_to_events
        assert ann.post(f"{API}/cancel", json=body).status_code == 200
        wait_until(lambda: event not in queue.event_ids_to_events)


def test_session_hashes_must_be_short_texts(opened: LocalServer) -> None:
    with opened.http() as http:
        index, inputs = event_named(opened, "_refresh")
        for wrong in ("", "x" * 10_000, None, 7, ["a"], {"a": "b"}):
            answer = join(http, inputs, fn_index=index, session_hash=wrong)
            assert answer.status_code == 400 and "reload" in answer.text
        for url in (
            f"{API}/queue/data?session_hash={'x' * 10_000}",
            f"{API}/heartbeat/{'x' * 10_000}",
        ):
            assert http.get(url).status_code == 400
        for query in ("session_hash=a&session_hash=b", "session_hash=%00", "session_hash=%FF%FE"):
            assert http.get(f"{API}/queue/data?{query}").status_code == 404


def test_the_progress_of_an_upload_is_private(locked: LocalServer) -> None:
    """Gradio would send it, with the file's name, to anyone who knows the upload's id."""
    with login(locked, ANN) as ann, login(locked, BEN) as ben:
        files = {"files": ("diary.txt", b"words")}
        assert ann.post(f"{API}/upload?upload_id=u1", files=files).status_code == 200
        assert ben.get(f"{API}/upload_progress?upload_id=u1").status_code == 404
        with ann.stream("GET", f"{API}/upload_progress?upload_id=u1") as stream:
            assert b"data: " in stream.read()


def test_one_user_cannot_displace_anothers_sessions(
    locked: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user has a bounded number; what Gradio keeps of closed ones is dropped."""
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 4)
    blocks = blocks_of(locked)
    with login(locked, ANN) as ann, login(locked, BEN) as ben:
        before = len(blocks._queue.pending_messages_per_session)
        event = refresh(ann, locked, "anns").json()["event_id"]
        for number in range(40):
            assert refresh(ben, locked, f"bens {number}").status_code == 200
        pending = blocks._queue.pending_messages_per_session
        assert len(pending) <= before + 1 + 4
        wait_until(lambda: not blocks._queue.event_ids_to_events)
        assert len(blocks._queue.pending_event_ids_session) <= before + 1 + 4
        with stream_of(ann, "anns") as stream:
            assert event in stream.read().decode()


# -- passwords ------------------------------------------------------------------------------------


@pytest.mark.parametrize("guesses", [30, pytest.param(3000, marks=pytest.mark.full)])
def test_passwords_cannot_be_guessed(
    guesses: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right one among the guesses is refused, too, and the server's memory does not grow. No
    time passes meanwhile: it would allow more guesses."""
    monkeypatch.setattr(web, "password_check", partial(logins.password_check, clock=lambda: 0.0))
    with (
        reciting(tmp_path_factory) as engine,
        page(engine, ANN) as served,
        login(served, ANN) as ann,
        served.http() as http,
    ):
        statuses = [
            http.post("/ui/login", data={"username": name, "password": password}).status_code
            for number in range(guesses)
            for name, password in (("ann", f"a guess {number}"), (f"user {number}", "guess"))
        ]
        assert statuses.count(400) == logins.ADDRESS_BURST
        assert set(statuses) == {400, 429}
        assert http.post("/ui/login", data=dict(zip(FORM, ANN, strict=True))).status_code == 429
        assert ann.get("/ui/config").status_code == 200


FORM = ("username", "password")


# -- streams that nobody reads --------------------------------------------------------------------


@pytest.mark.parametrize("events", [300, pytest.param(5000, marks=pytest.mark.full)])
def test_a_client_that_never_reads_its_events(opened: LocalServer, events: int) -> None:
    """Its events are refused after a while; another client is served."""
    blocks = blocks_of(opened)
    memory = psutil.Process().memory_info
    with opened.http() as reader, opened.http() as other:
        other.get("/ui/")
        refused, before = 0, memory().rss
        for number in range(events):
            refused += refresh(reader, opened, f"unread {number % 3}").status_code in (429, 503)
            if number % 50 == 0:
                assert refresh(other, opened, "read").status_code == 200
                with stream_of(other, "read") as stream:
                    assert "process_completed" in stream.read().decode()
        wait_until(lambda: not blocks._queue.event_ids_to_events)
        pending = [queue.qsize() for queue in blocks._queue.pending_messages_per_session.values()]
        most = sessions.MAX_UNREAD_MESSAGES + MESSAGES_PER_EVENT * blocks._queue.max_size
        assert refused and max(pending) <= most
        assert memory().rss - before < MAX_LEFT_BYTES


MESSAGES_PER_EVENT = 8  # at most: estimations, start, progress, end


# -- uploads --------------------------------------------------------------------------------------


def parts(files: int, size: int) -> Iterator[bytes]:
    """A multipart body with files of `size` bytes."""
    for number in range(files):
        disposition = f'form-data; name="files"; filename="large {number}.txt"'
        yield f"--b\r\nContent-Disposition: {disposition}\r\n\r\n".encode()
        yield from [bytes([number]) * MEBIBYTE] * (size // MEBIBYTE)
        yield b"\r\n"
    yield b"--b--\r\n"


def upload_while_watched(served: LocalServer, files: int, size: int) -> tuple[int, int, int]:
    """Upload files in one request, while another client is served: the status, and the largest
    numbers of bytes in the upload folder and of additional memory."""
    memory, stored, used = psutil.Process().memory_info, 0, 0
    before = memory().rss

    def body() -> Iterator[bytes]:
        nonlocal stored, used
        for number, part in enumerate(parts(files, size)):
            yield part
            stored = max(stored, size_of_uploads())
            used = max(used, memory().rss - before)
            if number % 16 == 0:
                assert other.get("/health").status_code == 200

    with served.http() as http, served.http() as other:
        answer = http.post(f"{API}/upload", content=body(), headers=MULTIPART)
    return answer.status_code, stored, used


def size_of_uploads() -> int:
    sizes = 0
    for path in web.UPLOADS.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size if path.is_file() else 0
    return sizes


@pytest.mark.parametrize(
    ("files", "size", "room"),
    [
        (1, 32 * MEBIBYTE, 4 * MEBIBYTE),
        pytest.param(1, 1024 * MEBIBYTE, None, marks=pytest.mark.full),
        pytest.param(17, 63 * MEBIBYTE, None, marks=pytest.mark.full),
    ],
)
def test_an_upload_that_is_too_large(
    opened: LocalServer, files: int, size: int, room: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused while it is received, and nothing of it is kept."""
    if room:
        monkeypatch.setattr(upload_space, "MAX_STORED_BYTES", room)
    limit = room or min(files * MAX_FILE_BYTES, gradio_guard.MAX_UPLOAD_BYTES)
    kept = size_of_uploads()
    status, stored, used = upload_while_watched(opened, files, size)
    assert status == 413
    assert stored - kept <= limit + MEBIBYTE
    assert used < MAX_LEFT_BYTES
    wait_until(lambda: size_of_uploads() <= kept)
    with opened.http() as http:
        assert http.post(f"{API}/upload", files={"files": ("a", b"words")}).status_code == 200


def test_the_uploads_of_a_user_are_bounded(
    locked: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes and in number. Those of other users are not affected; reading files makes room."""
    monkeypatch.setattr(upload_space, "MAX_STORED_BYTES", 8000)
    monkeypatch.setattr(upload_space, "MAX_STORED_FILES", 5)

    def send(http: httpx.Client, data: bytes) -> httpx.Response:
        return http.post(f"{API}/upload", files={"files": ("a.txt", data)})

    with login(locked, ANN) as ann, login(locked, BEN) as ben:
        for sizes in ([3000, 3000], [100] * 5):
            for path in web.UPLOADS.glob("*/*"):
                path.unlink()
            for number, size in enumerate(sizes):
                assert send(ann, bytes([65 + number]) * size).status_code == 200
            answer = send(ann, b"z" * 3000)
            assert answer.status_code == 413 and "wait until they are" in answer.text
            assert send(ben, b"z" * 3000).status_code == 200
