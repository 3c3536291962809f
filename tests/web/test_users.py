"""Logins on the page, the privacy of each user's files, and what is never logged."""

from __future__ import annotations

import hmac
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    paged,
    upload,
)
from tests.support.server import LocalServer
from ui.web import gradio_guard

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
    is_valid = gradio_guard.password_check([ANN, BEN])
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
    assert gradio_guard.password_check([(name, password)])(name, password)
    assert not gradio_guard.password_check([])(name, password)
    assert gradio_guard.password_check([ANN])(name, password) == ((name, password) == ANN)
    assert not gradio_guard.password_check([(name + "x", password)])(name, password)


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
