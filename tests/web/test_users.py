"""Logins on the page, the privacy of each user's files, and what is never logged."""

from __future__ import annotations

import hmac
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from tests.support.page import (
    ANN,
    API,
    BEN,
    ROUTES,
    SECRET,
    event_with_inputs,
    file_data,
    gradio_routes,
    guard_of,
    join,
    login,
    page,
    paged,
    upload,
)
from tests.support.sample_documents import pdf
from tests.support.server import LocalServer
from ui.api import failures as failed
from ui.api.failures import Failures
from ui.web import gradio_guard
from ui.web import login as logins
from ui.web.login import client_address, password_check

locked = paged(ANN, BEN)


def test_a_login_is_required(locked: LocalServer) -> None:
    """Even on routes that Gradio itself leaves unprotected."""
    with locked.http() as http:
        first = http.get("/ui/")
        assert first.status_code == 200 and '"auth_required": true' in first.text.replace(
            ":t", ": t"
        )
        for word in ("Summarize", "tab-ask", "reciter", 'dependencies":[{'):
            assert word not in first.text, word
        for cookie in ("", "x", "None", "null"):
            http.cookies.clear()
            http.cookies.set(guard_of(locked).cookie, cookie)
            for method, path in [*gradio_routes(locked), *ROUTES[1:]]:
                public = gradio_guard.PUBLIC_ROUTES.get("GET" if method == "HEAD" else method, ())
                if not gradio_guard.is_listed(path.removeprefix("/ui"), public) and path != "/ui":
                    status = http.request(method, path).status_code
                    assert status in (401, 404), (method, path, status)
        assert http.get("/ui/config").status_code == 401
        assert http.post(f"{API}/upload", files={"files": ("a", b"b")}).status_code == 401
        assert join(http, []).status_code == 401


def test_only_a_name_with_its_password_is_accepted(locked: LocalServer) -> None:
    with locked.http() as http:
        for name, password in (
            *(("", ""), ("ann", ""), ("ann", BEN[1]), ("ben", ANN[1]), ("nobody", ANN[1])),
            *(("ann", ANN[1] + " "), ("ann", ANN[1].upper()), ("ann", "é"), ("ANN", ANN[1])),
        ):
            form = {"username": name, "password": password}
            answer = http.post("/ui/login", data=form)
            assert answer.status_code in (400, 422) and "set-cookie" not in answer.headers
            assert http.get("/ui/config").status_code == 401
    with login(locked, ANN) as http:
        config = http.get("/ui/config")
        assert config.status_code == 200 and config.json()["username"] == "ann"
        cookies = [cookie for cookie in http.cookies.jar if cookie.name == guard_of(locked).cookie]
        assert [cookie.has_nonstandard_attr("HttpOnly") for cookie in cookies] == [True]
        http.get("/ui/logout")
        assert http.get("/ui/config").status_code == 401


def test_uploads_are_private(locked: LocalServer) -> None:
    with login(locked, ANN) as ann, login(locked, BEN) as ben:
        path = upload(ann, "diary.txt", SECRET)
        assert ann.get(f"{API}/file={path}").content == SECRET
        assert ben.get(f"{API}/file={path}").status_code == 404
        assert join(ben, [file_data(path)]).status_code == 403
        assert join(ann, [file_data(path)], fn_index=event_with_inputs(ann, 1)).status_code == 200
        assert upload(ben, "diary.txt", SECRET) == path, "Gradio names files by content"
        assert ben.get(f"{API}/file={path}").content == SECRET


def test_documents_are_private(locked: LocalServer) -> None:
    library = locked.app.state.page.library
    library("ann").add_data("diary.txt", SECRET)
    assert [document.name for document in library("ann").list()] == ["diary.txt"]
    for other in ("ben", "Ann", "ann ", "../ann", "", None):
        assert library(other).list() == []


def test_passwords_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hmac.compare_digest, on digests of equal length, against every user."""
    compared: list[tuple[Any, Any]] = []
    compare = hmac.compare_digest

    def record(left: Any, right: Any) -> bool:
        compared.append((left, right))
        return compare(left, right)

    monkeypatch.setattr("hmac.compare_digest", record)
    is_valid = password_check([ANN, BEN])
    logins = {
        ANN: True,
        BEN: True,
        (ANN[0], BEN[1]): False,
        ("", ""): False,
        ("é", "x" * 99): False,
    }
    for (name, password), expected in logins.items():
        compared.clear()
        assert is_valid(name, password) == expected
        assert len(compared) == 4 and {len(digest) for pair in compared for digest in pair} == {32}


@given(st.text(max_size=20), st.text(max_size=20))
def test_only_known_users_are_accepted(name: str, password: str) -> None:
    assert password_check([(name, password)])(name, password)
    assert not password_check([])(name, password)
    assert password_check([ANN])(name, password) == ((name, password) == ANN)
    assert not password_check([(name + "x", password)])(name, password)


# -- guesses --------------------------------------------------------------------------------------


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def attempt(is_valid: Any, name: str, password: str, address: str = "") -> int:
    """The status of a login from an address."""
    client_address.set(address)
    try:
        return 200 if is_valid(name, password) else 400
    except HTTPException as refused:
        seconds = int((refused.headers or {})["retry-after"])
        assert refused.detail == f"too many failed logins: retry in {seconds} s" and seconds > 0
        return refused.status_code


def test_guesses_at_a_user_are_slowed_down() -> None:
    """From whatever address; then not even the right password is accepted."""
    clock = Clock()
    is_valid = password_check([ANN, BEN], clock)
    for number in range(logins.USER_BURST):
        assert attempt(is_valid, "ann", f"guess {number}", f"10.0.0.{number}") == 400
    assert attempt(is_valid, *ANN, "10.0.1.1") == 429
    assert attempt(is_valid, *BEN, "10.0.1.1") == 200
    clock.now += logins.USER_INTERVAL_S - 1
    assert attempt(is_valid, *ANN, "10.0.1.1") == 429
    clock.now += 1
    assert attempt(is_valid, *ANN, "10.0.1.1") == 200, "successes are not counted"
    assert attempt(is_valid, "ann", "another guess", "10.0.1.1") == 400
    assert attempt(is_valid, *ANN, "10.0.1.1") == 429
    guesses, day_s = 0, 24 * 3600
    end = clock.now + day_s
    while clock.now < end:
        guesses += (
            attempt(is_valid, "ann", "guess", f"10.{guesses >> 8 & 255}.{guesses & 255}.1") == 400
        )
        clock.now += 10
    assert guesses <= day_s / logins.USER_INTERVAL_S


def test_guesses_from_an_address_are_slowed_down() -> None:
    """At whatever users, known or not; an IPv6 client has many addresses."""
    for addresses in (
        ["10.0.0.1"],
        ["::ffff:10.0.0.1", "10.0.0.1"],
        [f"2001:db8::{n:x}" for n in range(99)],
    ):
        clock = Clock()
        is_valid = password_check([ANN, BEN], clock)
        for number in range(failed.ADDRESS_BURST):
            address = addresses[number % len(addresses)]
            assert attempt(is_valid, f"user {number}", "guess", address) == 400
        assert attempt(is_valid, *ANN, addresses[-1]) == 429
        assert attempt(is_valid, *ANN, "10.0.0.2") == 200
        clock.now += failed.ADDRESS_INTERVAL_S
        assert attempt(is_valid, *ANN, addresses[-1]) == 200


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=60))
def test_failures_are_a_leaky_bucket(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    failures = Failures(5, 10.0, clock)
    full = dict.fromkeys("ab", 0.0)  # seconds until the bucket is empty
    for key, seconds in steps:
        clock.now += seconds
        full = {key: max(0.0, value - seconds) for key, value in full.items()}
        assert failures.wait_s(key) == max(0.0, full[key] - 40.0)
        failures.add(key)
        full[key] += 10.0


def test_the_memory_for_guesses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number of other keys makes it forget one."""
    monkeypatch.setattr(failed, "SLOTS", 64)
    failures = Failures(2, 10.0, Clock())
    for _ in range(2):
        failures.add("ann")
    for number in range(5000):
        failures.add(f"user {number}")
    assert len(failures._empty_at) <= 64 and failures.wait_s("ann") > 0


def test_the_server_slows_guesses_down(locked: LocalServer) -> None:
    """With `retry-after`. Those who are logged in are not affected."""
    with page(locked.engine, ANN) as guessed, login(guessed, ANN) as ann, guessed.http() as http:
        statuses = []
        for number in range(logins.USER_BURST + 3):
            form = {"username": "ann", "password": f"guess {number}"}
            statuses.append(http.post("/ui/login", data=form))
        expected = [400] * logins.USER_BURST + [429] * 3
        assert [answer.status_code for answer in statuses] == expected
        assert int(statuses[-1].headers["retry-after"]) <= logins.USER_INTERVAL_S
        form = {"username": "ann", "password": ANN[1]}
        answer = http.post("/ui/login", data=form)
        assert answer.status_code == 429 and "retry in" in answer.text
        assert "set-cookie" not in answer.headers
        assert ann.get("/ui/config").json()["username"] == "ann"


def test_old_logins_of_a_user_end(locked: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradio_guard, "MAX_TOKENS", 2)
    with login(locked, BEN) as ben, login(locked, ANN) as first:
        assert first.get("/ui/config").status_code == 200
        with login(locked, ANN) as second, login(locked, ANN) as third:
            for http, status in ((first, 401), (second, 200), (third, 200), (ben, 200)):
                assert http.get("/ui/config").status_code == status


def test_passwords_and_texts_are_never_logged(
    locked: LocalServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(1)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "ui", "engine", "gradio"):
        caplog.set_level(1, name)
    with login(locked, ANN) as http:
        http.post("/ui/login", data={"username": "ann", "password": "tried-in-vain"})
        for words in (["the user's own words"], ["the user's own words"] * 50):
            for event in (0, 99999, event_with_inputs(http, 1)):
                join(http, words, fn_index=event)
        token = next(cookie.value for cookie in http.cookies.jar if cookie.value)
    records = [
        record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))
    ]
    output = "".join(map(logging.Formatter().format, records)) + "".join(capfd.readouterr())
    for secret in (ANN[1], "tried-in-vain", "own words", str(token)):
        assert secret not in output


# -- pictures of pages -----------------------------------------------------------------------------


def test_only_the_owner_sees_a_page(locked: LocalServer) -> None:
    document = locked.app.state.page.library(ANN[0]).add_data("a.pdf", pdf(["only Ann reads this"]))
    path = f"/ui/page.png?document={document.id}&page=1&marks=0-4"
    with login(locked, ANN) as ann, login(locked, BEN) as ben, locked.http() as nobody:
        picture = ann.get(path)
        assert picture.status_code == 200 and picture.content.startswith(b"\x89PNG")
        assert picture.headers["content-type"] == "image/png"
        assert picture.headers["x-content-type-options"] == "nosniff"
        assert ben.get(path).status_code == 404 and nobody.get(path).status_code == 401
        for query in ("", "?page=1", "?document=x&page=one", f"{path[12:]}&marks=", "?marks=1-2-3"):
            assert ann.get(f"/ui/page.png{query}").status_code in (200, 404)
        for marks in ("1", "a-b", "1-2-3", "-", "9" * 5000 + "-1"):
            bad = f"/ui/page.png?document={document.id}&page=1&marks={marks}"
            assert ann.get(bad).status_code == 404
