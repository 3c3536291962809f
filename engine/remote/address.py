"""The addresses of servers of this machine: this user's sockets, and addresses that are named.

The shared server's socket is in a folder that only this user can open; the user of the process at
its other end is checked as well where the system reports it. Nothing leaves the machine: an address
is a loopback host and a port, or the path of a Unix-domain socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import select
import socket
import stat
import struct
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.config import MODEL_VARIABLE
from index.cache_folder import check_cache_folder, make_cache_folder
from index.os_calls import IS_WINDOWS, is_own, lock
from index.version import own_version

MAX_PATH_BYTES = 100  # bytes of a socket's path; the smallest limit of a system is 104
CONNECT_TIMEOUT_S = 10.0  # seconds to connect to a socket
HELLO_TIMEOUT_S = 10.0  # seconds to the first answer of a server that runs
BACKLOG = 64  # clients that wait for a server that is still starting
STOPPED = ("T", "t")  # states of processes stopped by a signal, by a debugger
OWN = "own"  # the value of --server that shares nothing
SERVER_VARIABLE = "DRAFTLINE_SERVER"  # the default of --server
SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES = 0, 1, 76  # values of macOS and the BSDs


class AddressError(ValueError):
    """An address that cannot be used. The message is one line with the problem and a remedy."""


class NoAnswer(AddressError):
    """What listens at an address takes a request, and does not answer, or was stopped."""

    def __init__(self, message: str, is_stopped: bool = False) -> None:
        super().__init__(message)
        self.is_stopped = is_stopped


@dataclass(frozen=True, slots=True)
class Address:
    """A Unix-domain socket, or a loopback host and a port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address:
    """Parse `HOST:PORT` of this machine, or the path of a socket.

    Raises AddressError.
    """
    if "/" in text:
        if not hasattr(socket, "AF_UNIX"):
            raise AddressError(f"{text}: no Unix-domain sockets here: name HOST:PORT")
        return Address(path=Path(text).expanduser().absolute())
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise AddressError(
            f"{text}: not an address: write HOST:PORT, the path of a socket, or {OWN}"
        )
    host = host.strip("[]") or "127.0.0.1"
    check_loopback(host)
    return Address(host=host, port=int(port))


def check_loopback(host: str) -> None:
    """Raise AddressError unless only this machine can reach the host."""
    with contextlib.suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return
    raise AddressError(f"{host}: not a loopback address, and clients need no key: use 127.0.0.1")


# -- the shared server's socket ----------------------------------------------------------------


def shared_address(model: str | None = None, options: Sequence[str] = ()) -> Address | None:
    """Return the address of this user's shared server.

    Servers of another version, installation, cache folder, model (as the command line names it) or
    with other `options` have other addresses. None where the system has no such sockets; OSError if
    there is no private folder for the socket.
    """
    if not hasattr(socket, "AF_UNIX"):
        return None
    home = os.environ.get("DRAFTLINE_HOME", "")
    parts = (
        own_version(),
        sys.prefix,
        str(Path(home).expanduser().absolute()) if home else "",
        os.environ.get(MODEL_VARIABLE, ""),
        model or "",
        *options,
    )
    name = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Address(path=_private_folder() / f"{name}.sock")


def serve_address(folder: Path) -> Address | None:
    """Return the address of this user's `draftline serve` of the model in `folder`.

    None and errors as in `shared_address`.
    """
    return shared_address(str(folder), ("engine",))


def runtime_folder() -> Path:
    """Return the folder of this user's sockets, which may not exist yet."""
    return runtime_folders()[0]


def runtime_folders() -> list[Path]:
    """List the folders that may have this user's sockets, the one for new ones first.

    They are the system's, and one in the cache folder, which is used where another user has made
    the system's before.
    """
    from engine.weights import home

    if IS_WINDOWS:  # Windows has no sockets there
        return [Path(platformdirs.user_runtime_dir("draftline", appauthor=False))]
    short = Path(tempfile.gettempdir()) / f"draftline-{os.getuid()}"
    system = _system_folder()
    if system is not None and _is_too_long(system):
        system = short
    found = [each for each in (system, home() / "run") if each is not None and _can_be_ours(each)]
    return [each for each in found if not _is_too_long(each)] or [short]


def _system_folder() -> Path | None:
    """Return the system's folder for sockets of this user; None where that is another user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an unsuitable XDG_RUNTIME_DIR: there is another
        try:
            return Path(platformdirs.user_runtime_dir("draftline", appauthor=False))
        except PermissionError:  # `/tmp/runtime-UID`, which anybody can make
            return None


def _is_too_long(folder: Path) -> bool:
    return len(os.fsencode(folder)) > MAX_PATH_BYTES - len("/0123456789abcdef.sock")


def _can_be_ours(folder: Path) -> bool:
    """Return whether a folder is this user's, or can be made.

    It can be made if the folder above it is this user's, or the system's, as /tmp is.
    """
    try:
        if folder.parent.lstat().st_uid not in (os.geteuid(), 0):
            return False
        return is_own(folder.lstat())
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _private_folder() -> Path:
    """Create `runtime_folder` with mode 0700, and return it.

    OSError if it is not private.
    """
    folder = runtime_folder()
    make_cache_folder(folder)
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Raise OSError unless only this user may open the folder.

    The error's `strerror` includes the remedy.
    """
    check_cache_folder(folder)
    if IS_WINDOWS:
        return
    status = folder.stat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        why = "other users may open it: delete it, or take their permissions away (chmod 700)"
        raise PermissionError(1, why, str(folder))


def listen(address: Address) -> socket.socket:
    """Listen on a socket at a path, for this user only.

    The socket replaces that of a dead server; an AddressError says that a server listens there, or
    that the path is another thing.
    """
    assert address.path is not None
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(address.path.lstat().st_mode):
            raise AddressError(f"{address}: a file that is no socket: name another path")
        try:
            connect(address).close()
        except ConnectionRefusedError:
            address.path.unlink(missing_ok=True)  # left by a dead server
        else:
            raise AddressError(f"{address}: a server listens there already: name another path")
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # the socket is created with mode 0600
    try:
        listener.bind(str(address.path))
    except OSError as error:
        listener.close()
        reason = error.strerror or "the path is too long"
        raise AddressError(f"{address}: {reason}: name another path") from error
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


def remove_if_idle(listener: socket.socket) -> bool:
    """Remove the path of a listening socket before its server ends.

    Returns False if a client is about to connect, or another process starts a server.
    """
    address = Address(path=Path(listener.getsockname()))
    with start_lock(address, wait=False) as held:
        if not held or select.select([listener], [], [], 0)[0]:
            return False
        assert address.path is not None
        address.path.unlink(missing_ok=True)
        return True


@contextmanager
def start_lock(address: Address, wait: bool = True) -> Iterator[bool]:
    """Hold a lock while a server is started or ends, so that two windows start one server.

    Without `wait`, yields False if another process holds it.
    """
    assert address.path is not None
    file = os.open(address.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            lock(file, wait)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)  # this releases the lock, too


# -- connecting --------------------------------------------------------------------------------


def connect(address: Address) -> socket.socket:
    """Connect to an address.

    OSError if nothing listens there; AddressError if the process at the other end of a socket is
    another user's, or accepts no more clients.
    """
    if address.path is None:
        made = socket.create_connection((address.host, address.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX)
    try:
        try:
            made.settimeout(CONNECT_TIMEOUT_S)
            made.connect(str(address.path))
            made.settimeout(None)
        except (BlockingIOError, TimeoutError) as error:
            why = "too many clients wait for the server there, which does not accept them"
            raise AddressError(f"{address}: {why}: end it") from error
        except OSError as error:
            if error.errno is None:  # Python's own: the path is too long for a socket
                raise AddressError(f"{address}: the path is too long for a socket") from error
            raise
        check_peer(made, str(address))
    except BaseException:
        made.close()
        raise
    return made


def check_peer(connection: socket.socket, name: str) -> None:
    """Raise AddressError if the process at the other end runs as another user, other than root.

    Does nothing where the system does not report the user.
    """
    user = _peer_user(connection)
    if user is not None and user not in (os.getuid(), 0):
        raise AddressError(f"{name}: belongs to user {user}: name a server of your own")


def check_running(connection: socket.socket, address: Address) -> None:
    """Raise NoAnswer if the process at the other end is stopped."""
    if (process := stopped_peer(connection)) is not None:
        raise NoAnswer(
            f"{address}: the server, process {process}, was stopped: let it go on with "
            f"`kill -CONT {process}`, or end it with `kill -KILL {process}`",
            is_stopped=True,
        )


def stopped_peer(connection: socket.socket) -> int | None:
    """Return the process at the other end if it is stopped, as by SIGSTOP.

    None if it is not, and where the system does not report it.
    """
    if not hasattr(socket, "SO_PEERCRED") or connection.family != socket.AF_UNIX:
        return None
    process = _peer_credentials(connection)[0]
    try:
        status = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:  # it has ended
        return None
    return process if status.rpartition(")")[2].split()[0] in STOPPED else None


def _peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Return process, user and group at the other end of a socket on Linux.

    The process of a server is the one that has called `listen` last.
    """
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, group = struct.unpack("3i", credentials)
    return process, user, group


def _peer_user(connection: socket.socket) -> int | None:
    if hasattr(socket, "SO_PEERCRED"):
        return _peer_credentials(connection)[1]
    if sys.platform == "darwin":  # struct xucred: version, user, groups
        credentials = connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES)
        return int(struct.unpack_from("II", credentials)[1])
    return None
