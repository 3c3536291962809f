"""Run one program on changed files, apart from everything else. A script, never imported.

sandbox.py starts it as `unshare ... python inside.py PLAN STATUS`, in namespaces of its own, where
it may mount. PLAN is a JSON file, STATUS the number of the descriptor that gets the result, also
JSON: {"exit": code}, or {"error": why the program was not started}. Folders that the program may
write are overlaid, so that what it writes lies in memory and is gone with it; all else is read-only
to it, and its network has nothing but itself.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import re
import select
import socket
import struct
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC = 1, 2, 4, 4096, 16384
MOUNT_SETATTR = 442  # the system call, on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, CLEAR_ALL = 24, 38, 47, 4
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
LINKS["ptmx"] = "pts/ptmx"
LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = itertools.count()  # of the folders that hold changes


def main() -> None:
    """Isolate this process, run the program, and report how it ended."""
    scratch, status = Path(sys.argv[1]).parent, int(sys.argv[2])
    os.set_inheritable(status, False)
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[1]).unlink()  # it has the texts: nothing of them stays if all is killed
    try:
        start_loopback()
        overlay(scratch, plan["folders"], plan["files"], plan["disk_bytes"])
        for path, text in plan["files"].items():
            write(Path(path), text.encode())
        code = run(plan, status)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        result: dict[str, Any] = {"error": f"{error.strerror or error}{where}"}
    else:
        result = {"exit": code}
    os.write(status, json.dumps(result).encode())


def start_loopback() -> None:
    """Bring up the loopback interface, the only one, so that tests of servers run."""
    import fcntl  # Windows has none, and starts no such script

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def overlay(scratch: Path, folders: list[str], changed: Collection[str], disk_bytes: int) -> None:
    """Make all mounts read-only, these folders writable copies, and hide /run with its sockets.

    A folder is read through a descriptor: a mount that was made before it may cover its path.
    """
    lower = [(opened(folder), folder) for folder in folders]
    devices = [(opened(f"/dev/{name}"), name) for name in DEVICES if exists(name)]
    mounts = mount_points()
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    check(LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes)))
    mount("tmpfs", scratch, f"size={disk_bytes},mode=700")
    memory = Path(opened(str(scratch)))
    for source, folder in lower:
        make_writable(source, folder, memory, mounts, changed)
    if Path("/run").is_dir():
        mount("tmpfs", Path("/run"), "size=16m,mode=755")
    if os.getuid() == 0:  # whom no permission keeps from the others
        mount("tmpfs", Path("/dev"), "size=64m,mode=755", MS_NOSUID)
        for source, name in devices:
            Path("/dev", name).touch()
            bind(source, Path("/dev", name))
        for name, target in LINKS.items():
            Path("/dev", name).symlink_to(target)
        Path("/dev/shm").mkdir(0o1777)
        Path("/dev/pts").mkdir()
        mount("devpts", Path("/dev/pts"), "newinstance,ptmxmode=0666,mode=620", MS_NOSUID)
    flags = MS_NOSUID | MS_NODEV | MS_RDONLY
    LIBC.mount(b"proc", b"/proc", b"proc", flags, None)  # refused in containers


def exists(device: str) -> bool:
    return Path("/dev", device).exists()


def make_writable(
    source: str, folder: str, memory: Path, mounts: list[str], changed: Collection[str]
) -> None:
    """Cover a folder by a copy of it, `source`, whose changes lie in `memory`.

    The kernel overlays none that has a mount in it, since that may hide files: such a folder is
    made anew of its entries, of which mounts and the files that are not `changed` are read-only.
    Raises OSError.
    """
    upper = memory / str(next(NUMBERS))
    upper.mkdir()
    upper.chmod(Path(source).stat().st_mode & 0o7777)
    if not any(point.startswith(f"{folder}/") for point in mounts):
        work = memory / f"{upper.name}.work"
        work.mkdir()
        options = f"lowerdir={source},upperdir={upper},workdir={work},userxattr"
        return mount("overlay", Path(folder), options)
    bind(str(upper), Path(folder))
    for entry in entries(source):
        target = Path(folder, entry.name)
        with suppress(FileNotFoundError):  # gone meanwhile
            if entry.is_symlink():
                target.symlink_to(Path(entry).readlink())
            elif entry.is_file():
                target.touch(entry.stat().st_mode & 0o7777)
                if str(target) not in changed:
                    bind(entry.path, target)
            elif entry.is_dir():
                target.mkdir()
                if str(target) in mounts:
                    bind(entry.path, target, MS_BIND | MS_REC)
                else:
                    make_writable(entry.path, str(target), memory, mounts, changed)
    return None


def entries(folder: str) -> list[os.DirEntry[str]]:
    """List what a folder has; nothing for one that the program may not list either."""
    try:
        return [*os.scandir(folder)]
    except PermissionError:
        return []


def mount_points() -> list[str]:
    """List where something is mounted."""
    lines = Path("/proc/self/mountinfo").read_bytes().split(b"\n")
    points = (line.split(b" ")[4] for line in lines if line)
    return [os.fsdecode(re.sub(rb"\\([0-7]{3})", octal, point)) for point in points]


def octal(digits: re.Match[bytes]) -> bytes:
    return bytes([int(digits[1], 8)])


def opened(path: str) -> str:
    """Open a path, and return one that leads there whatever is mounted over it."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH)}"


def bind(source: str, target: Path, flags: int = MS_BIND) -> None:
    """Show what is at one path at another one, which exists. Raises OSError."""
    check(LIBC.mount(os.fsencode(source), os.fsencode(target), None, flags, None), target)


def mount(kind: str, target: Path, options: str, flags: int = MS_NOSUID | MS_NODEV) -> None:
    """Mount a file system. Raises OSError."""
    name, place = kind.encode(), os.fsencode(target)
    check(LIBC.mount(name, place, name, flags, options.encode()), target)


def check(failed: int, what: Path | None = None) -> None:
    """Raise the OSError of a call that returned other than 0."""
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what and str(what))


def write(file: Path, text: bytes) -> None:
    """Write a changed file, newer than any cache of the old one."""
    before = file.stat() if file.exists() else None
    try:
        file.write_bytes(text)
    except OSError as error:
        if error.errno != errno.EOVERFLOW or before is None:
            raise
        try:
            file.unlink()  # its group has no number here, so it cannot be copied with it
            file.write_bytes(text)
        except OSError as again:
            why = "its folder is of a group that is not your first one"
            raise OSError(again.errno, why, str(file)) from again
        file.chmod(before.st_mode & 0o7777)
    now = max(file.stat().st_mtime_ns, before.st_mtime_ns + 2_000_000_000 if before else 0)
    os.utime(file, ns=(now, now))


def run(plan: dict[str, Any], status: int) -> int:
    """Run the program with limited memory, without privileges; return its code.

    This process is the first of its namespace: the others end with it. It ends if nobody reads the
    status any more.
    """
    child = os.fork()
    if child == 0:
        try:
            limit(plan)
            os.chdir(plan["folder"])
            os.execvp(plan["words"][0], plan["words"])
        except OSError as error:
            print(f"{plan['words'][0]}: {error.strerror}", flush=True)
        os._exit(127)
    threading.Thread(target=end_with_reader, args=(status,), daemon=True).start()
    while True:
        ended, status = os.wait()  # the orphans of the program end here too
        if ended == child:
            return os.waitstatus_to_exitcode(status)


def end_with_reader(status: int) -> None:
    """End this process, and so the namespace, when the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(status, 0)  # errors are always reported
    poll.poll()
    os._exit(1)


def limit(plan: dict[str, Any]) -> None:
    """Limit what the program uses, and drop every capability for good."""
    import resource

    for what, most in (
        (resource.RLIMIT_DATA, plan["memory_bytes"]),
        (resource.RLIMIT_FSIZE, plan["disk_bytes"]),
        (resource.RLIMIT_NPROC, plan["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        bounded = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bounded, bounded))
    capability = 0
    while LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    LIBC.prctl(PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


if __name__ == "__main__":
    main()
