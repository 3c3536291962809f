"""Addresses of servers: which are accepted, and who may open this user's socket."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.remote import address as addresses
from engine.remote.address import (
    Address,
    AddressError,
    connect,
    listen,
    parse,
    remove_if_idle,
    shared_address,
    start_lock,
)
from engine.remote.framing import framed
from engine.remote.remote_engine import open_connection
from tests.support.shared_server import private_runtime


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Address]:
    """This user's socket, in a folder of this test's own."""
    with private_runtime(tmp_path / "home"):
        found = shared_address()
        assert found is not None
        yield found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("localhost:65535", "localhost:65535"),
        (":80", "127.0.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("::1:80", "[::1]:80"),
        ("/run/one.sock", "/run/one.sock"),
    ],
)
def test_an_address_is_read_and_shown(text: str, shown: str) -> None:
    assert str(parse(text)) == shown
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    "text", ["x", "80", "host:", "127.0.0.1:0", "127.0.0.1:65536", "a:80", "0.0.0.0:80", "::2:80"]
)
def test_other_addresses_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(AddressError, match=r"^[^\n]+: [^\n]+: [^\n]+$"):
        parse(text)


def test_only_this_user_can_open_the_socket(own: Address) -> None:
    assert own.path is not None
    with closing(listen(own)):
        assert stat.S_IMODE(own.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(own.path.parent.stat().st_mode) == 0o700
        connect(own).close()


def test_a_folder_that_others_may_open_is_refused(own: Address) -> None:
    assert own.path is not None
    own.path.parent.chmod(0o750)
    with pytest.raises(PermissionError, match="other users"):
        shared_address()
    own.path.parent.rmdir()
    own.path.parent.symlink_to("/")
    with pytest.raises(OSError, match="symbolic link"):
        shared_address()


def test_a_process_of_another_user_is_refused(
    own: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(listen(own)):
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        monkeypatch.setattr(addresses, "_peer_user", lambda connection: 12346)
        with pytest.raises(AddressError, match="belongs to user 12346"):
            connect(own)


def test_another_configuration_has_another_socket(
    own: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {shared_address(), shared_address("m"), shared_address("n")}
    monkeypatch.setenv("DRAFTLINE_HOME", "/elsewhere")
    found.add(shared_address())
    monkeypatch.setenv("DRAFTLINE_MODEL", "m")
    found.add(shared_address())
    monkeypatch.setattr(addresses, "own_version", lambda: "0.0.1")
    found.add(shared_address())
    assert len(found) == 6 and own in found


def test_a_long_runtime_folder_is_replaced_by_a_short_one(
    own: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    short = own.path.parent.parent if own.path else tmp_path
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(short))
    found = shared_address()
    assert found and found.path and found.path.parent == short / f"draftline-{os.getuid()}"


def test_the_socket_of_a_dead_server_is_replaced_and_no_other_file(own: Address) -> None:
    assert own.path is not None
    listen(own).close()
    with pytest.raises(ConnectionRefusedError):
        connect(own)
    with closing(listen(own)):
        with pytest.raises(AddressError, match="already"):
            listen(own)
        connect(own).close()
    own.path.unlink()
    own.path.write_text("mine")
    with pytest.raises(AddressError, match="no socket"):
        listen(own)
    assert own.path.read_text() == "mine"


def test_a_server_does_not_end_while_a_client_connects_or_another_starts(own: Address) -> None:
    assert own.path is not None
    with closing(listen(own)) as listener:
        with closing(connect(own)):
            assert not remove_if_idle(listener)
            listener.accept()[0].close()
        with start_lock(own) as held:
            assert held and not remove_if_idle(listener)
        assert own.path.exists() and remove_if_idle(listener) and not own.path.exists()


@contextmanager
def program(answer: Callable[[socket.socket], None]) -> Iterator[Address]:
    """The address of another program, which answers a connection as given."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            with closing(listener.accept()[0]) as connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address(host="127.0.0.1", port=listener.getsockname()[1])
        thread.join()


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 11\r\n\r\nBad Request"


@pytest.mark.parametrize(
    "answer",
    [
        HTTP,
        b"SSH-2.0-x\r\n" * 2,
        b"Content-Length: 2\r\n\r\n{}" + HTTP,
        framed(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
        b"Content-Length: 3\r\n\r\n[1]",
        framed(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"first"}}'),
    ],
)
def test_another_program_at_an_address_is_one_message(answer: bytes) -> None:
    def reply(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(answer)
        connection.recv(1)  # until the client leaves

    with program(reply) as address, pytest.raises(AddressError, match=r"^[^\n]+$") as failure:
        open_connection(address)
    assert str(address) in str(failure.value)


def test_a_program_that_does_not_answer_is_one_message() -> None:
    def wait(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    with program(wait) as address, pytest.raises(AddressError, match="does not answer"):
        open_connection(address, 0.05)
