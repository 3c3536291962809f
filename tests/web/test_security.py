"""Access control of the page: hosts, origins, routes, files, and no outgoing connections."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.page import (
    API,
    ROUTES,
    SECRET,
    event_with_inputs,
    file_data,
    gradio_routes,
    join,
    page,
    paged,
    upload,
)
from tests.support.server import LocalServer, send_raw
from ui.web import app, gradio_guard
from ui.web.upload_space import UploadSpace

ROOT = Path(__file__).resolve().parents[2]
served = paged()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_bytes(SECRET)
    return path


# -- hosts, origins and the content security policy -----------------------------------------------


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_foreign_hosts_and_origins_are_refused(served: LocalServer, method: str, path: str) -> None:
    """The check runs before a stream starts."""
    with served.http() as http:
        for host in ("evil.com", "localhost.evil.com:80"):
            answer = http.request(method, path, headers={"host": host}, json={})
            assert answer.status_code == 400 and "--allow-host" in answer.text
        for origin in ("http://evil.com", "null", "http://127.0.0.1", "http://localhost:1"):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            answer = http.request(method, path, headers=headers, json={})
            assert answer.status_code == 403 and "cross-origin" in answer.text
            assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_content_security_policy(served: LocalServer) -> None:
    """It is on every response; no response has CORS headers."""
    with served.http(headers={"origin": served.url}) as http:
        for path in ("/ui/", "/ui/theme.css", "/ui/config", "/ui/nowhere", "/ui/static/none"):
            headers = http.get(path).headers
            policy = dict(item.strip().split(" ", 1) for item in headers[POLICY].split(";"))
            assert policy["default-src"] == policy["connect-src"] == "'self'"
            assert policy["frame-ancestors"] == policy["script-src-attr"] == "'none'"
            for source in " ".join(policy.values()).split():
                assert source in ALLOWED, source
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert not [name for name in headers if name.startswith("access-control")]
        assert POLICY not in http.get("/v1/models").headers


POLICY = "content-security-policy"
ALLOWED = {"'self'", "'none'", "data:", "blob:", "'unsafe-inline'", "'unsafe-eval'"}


def test_only_the_routes_that_the_page_needs_are_reachable(served: LocalServer) -> None:
    """The other routes are those in Gradio's own schema."""
    needed = re.compile(
        "/ui/(|login|logout|config|theme.css|manifest.json|(assets|static)/x|gradio_api/(info"
        "|startup-events|heartbeat/x|queue/join|queue/data|cancel|reset|upload|upload_progress|file=x))"
    )
    blocked = 0
    with served.http() as http:
        for method, path in gradio_routes(served):
            if not needed.fullmatch(path):
                assert http.request(method, path).status_code == 404, (method, path)
                blocked += 1
    assert blocked > 40, "proxy, custom components, history, monitoring, ..."


# -- files -------------------------------------------------------------------------------------


def spellings(path: Path) -> list[str]:
    """URLs by which a client could try to read a file."""
    full, up = str(path), "../" * 30
    encoded, twice = full.replace("/", "%2F"), full.replace("/", "%252F")
    below = full.lstrip("/")
    return [
        *(f"{API}/file={spelling}" for spelling in (full, encoded, twice, f"/{full}", f"./{full}")),
        *(f"{API}/file={app.UPLOADS}/{parents}{below}" for parents in (up, up.replace(".", "%2e"))),
        *(
            f"{API}/file={spelling}"
            for spelling in (f"file://{full}", f"{up}{below}", f"\\\\?\\{full}")
        ),
        *(
            f"{API}/file={spelling}"
            for spelling in (f"{full}%00.txt", f"{full}%20", f"{full}/", "//etc/")
        ),
        *(f"{API}/file/{spelling}" for spelling in (full, encoded, below)),
        *(f"/ui/{route}/{up}{below}" for route in ("static", "assets", "svelte", "gradio_api")),
        *(f"/ui/{route}/{up}{below}".replace("..", "%2e%2e") for route in ("static", "assets")),
        *(f"/ui/{route}/{encoded}" for route in ("static", "assets", "svelte")),
        f"/ui/assets/..%5c..%5c{below}",
        f"/ui/static//{full}",
        f"{API}/custom_component/file/client/component/{encoded}",
        f"{API}/custom_component/x/server/..%2f..%2f/{below}",
        f"{API}/stream/s/r/1/playlist-file",
        f"{API}/proxy=file://{full}",
        f"{API}/upload_progress?upload_id={encoded}",
        f"/ui/{up}{below}",
        f"/ui//{full}",
        f"/ui/?deep_link={up}{below}",
        f"/ui/config?deep_link={up}{below}",
    ]


def test_no_file_outside_the_uploads_is_served(served: LocalServer, secret: Path) -> None:
    with served.http() as http:
        inside = Path(upload(http))
    assert inside.is_relative_to(app.UPLOADS)
    link = inside.parent / "link.txt"
    link.symlink_to(secret)
    folder = inside.parent / "folder"
    folder.symlink_to(secret.parent, target_is_directory=True)
    urls = spellings(secret)
    urls += [
        f"{API}/file={spelling}" for spelling in (link, folder / secret.name, folder, inside.parent)
    ]
    for url in urls:
        line = f"GET {url.replace(' ', '%20')} HTTP/1.1\r\nHost: localhost\r\n"
        response = send_raw(served.port, f"{line}Connection: close\r\n\r\n".encode())
        status = int(response.split(b" ")[1])
        assert SECRET not in response, url
        assert status in (400, 401, 403, 404, 405) or "deep_link" in url, (url, status)
    link.unlink()
    folder.unlink()


def test_uploads_are_served_as_downloads_only(served: LocalServer) -> None:
    """A browser saves them and does not run their scripts."""
    script = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    with served.http() as http:
        for name in ("a.svg", "a.html", "a.js", "a.txt"):
            answer = http.get(f"{API}/file={upload(http, name, script)}")
            assert (answer.status_code, answer.content) == (200, script)
            assert answer.headers["content-disposition"] == "attachment"
            assert "sandbox" in answer.headers[POLICY]
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_events_may_only_refer_to_uploads(served: LocalServer, secret: Path) -> None:
    """Without this, Gradio would copy any file to where clients can read it, and fetch URLs."""
    with served.http() as http:
        inside = upload(http)
        (link := Path(inside).parent / "link.txt").symlink_to(secret)
        for path in (
            *(
                str(secret),
                "/etc/passwd",
                f"{inside}/../../../../../..{secret}",
                "a.txt",
                str(link),
            ),
            *("http://example.com/a.txt", f"file://{secret}", str(app.UPLOADS), "\0", "x" * 9999),
            *({"path": inside}, 7, "", [inside]),
        ):
            for data in (
                [file_data(path)],
                [[file_data(inside), file_data(path)]],
                [{"a": {"b": [file_data(path)]}}],
            ):
                assert join(http, data).status_code == 403, path
            assert join(http, [], event_data=file_data(path)).status_code == 403, path
        assert (
            join(http, [file_data(inside)], fn_index=event_with_inputs(http, 1)).status_code == 200
        )
        link.unlink()


NAMES = st.sampled_from(["", ".", "..", "a", "b.txt", "loop", "out", "etc", "passwd", "\0", "é"])


@given(st.lists(NAMES, max_size=6), st.booleans(), st.booleans())
@example(["b.txt"], False, True)
@example(["a", "b.txt"], False, True)
def test_readable_paths_are_in_the_upload_folder(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], root: bool, inside: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / "uploads"
    if not folder.exists():
        (folder / "a").mkdir(parents=True)
        for file in ("b.txt", "a/b.txt"):
            (folder / file).write_text("")
        (folder / "loop").symlink_to(folder / "loop")
        (folder / "out").symlink_to("/etc")
    guard = object.__new__(gradio_guard.GradioGuard)
    guard.files = folder.resolve()
    guard.space = UploadSpace(guard.files)
    name = (f"{folder}/" if inside else "/" if root else "") + "/".join(names)
    if guard.may_read(name, None):
        real = Path(os.path.realpath(name))
        assert real.is_file() and str(real).startswith(f"{folder.resolve()}{os.sep}")
    elif inside and names in (["b.txt"], ["a", "b.txt"]):
        raise AssertionError("these files are readable")


def test_upload_names_cannot_escape_the_folder(served: LocalServer) -> None:
    names = (
        "../../up.txt",
        "/etc/up.txt",
        "..",
        ".",
        "",
        "a/../../b.txt",
        "..\\..\\up.txt",
        "é.txt",
    )
    with served.http() as http:
        for name in (*names, "n" * 400 + ".txt", "<img src=x onerror=alert(1)>.md"):
            head = f'Content-Disposition: form-data; name="files"; filename="{name}"'
            body = f"--b\r\n{head}\r\n\r\nwords\r\n--b--\r\n".encode()
            kind = {"content-type": "multipart/form-data; boundary=b"}
            answer = http.post(f"{API}/upload", content=body, headers=kind)
            assert answer.status_code in (200, 400), (name, answer.text)
            if answer.status_code == 200:
                path = Path(answer.json()[0])
                assert path.resolve().is_relative_to(app.UPLOADS) and path.read_bytes() == b"words"


# -- connections ------------------------------------------------------------------------------

recorded: list[Any] | None = None


def audit(event: str, args: tuple[Any, ...]) -> None:
    if recorded is not None and event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        recorded.append(args[1] if event != "socket.getaddrinfo" else args[0])


def test_gradio_sends_nothing_whatever_is_imported_of_the_page() -> None:
    """The package says so, which each of its modules imports first."""
    code = "import os, ui.web; print(os.environ['GRADIO_ANALYTICS_ENABLED'])"
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=PIPE, check=True)
    assert output.stdout == b"False\n"


def test_the_page_makes_no_outgoing_connections(served: LocalServer) -> None:
    """Whatever URLs a client sends, neither to a host name nor to a server on this machine."""
    global recorded
    sys.addaudithook(audit)  # cannot be removed: it records only while `recorded` is a list
    recorded = []
    try:
        with socket.create_server(("127.0.0.1", 0)) as bait, page(served.engine) as target_server:
            bait.setblocking(False)
            targets = ("http://example.com/a.txt", f"http://127.0.0.1:{bait.getsockname()[1]}/a")
            with target_server.http() as http:
                for target in targets:
                    for route in ("proxy=", "file=", "file/"):
                        assert http.get(f"{API}/{route}{target}").status_code == 404
                    assert join(http, [file_data(target)]).status_code == 403
                    for value in (target, {"url": target, "meta": {"_type": "gradio.FileData"}}):
                        join(http, [value], fn_index=event_with_inputs(http, 1))
                for method, path in gradio_routes(target_server):
                    if "heartbeat" not in path:  # an endless stream
                        http.request(method, path, json={"session_hash": "s", "url": targets[0]})
            with pytest.raises(BlockingIOError):
                bait.accept()
    finally:
        connections, recorded = recorded, None
    assert connections, "the client's own connections must be recorded"
    for address in connections:
        assert address in ("127.0.0.1", ("127.0.0.1", target_server.port)), address
