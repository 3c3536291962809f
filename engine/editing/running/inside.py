"""Run one program on changed files, apart from everything else. A script, never imported.

sandbox.py starts it as `unshare ... python inside.py PLAN STATUS`, in namespaces of its own, where
it may mount. PLAN is a JSON file, STATUS the number of the descriptor that gets the result, also
JSON: {"exit": code}, or {"error": why the program was not started}. Folders that the program may
write are overlaid, so that what it writes lies in memory and is gone with it; all else is read-only
to it, and its network has nothing but itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

MS_NOSUID, MS_NODEV = 2, 4
MOUNT_SETATTR = 442  # the system call, on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, CLEAR_ALL = 24, 38, 47, 4
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Isolate this process, run the program, and report how it ended."""
    scratch, status = Path(sys.argv[1]).parent, int(sys.argv[2])
    os.set_inheritable(status, False)
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    try:
        start_loopback()
        overlay(scratch, plan["folders"], plan["disk_bytes"])
        for path, text in plan["files"].items():
            write(Path(path), text.encode())
        code = run(plan)
    except OSError as error:
        result: dict[str, Any] = {"error": f"{error.strerror or error}"}
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


def overlay(scratch: Path, folders: list[str], disk_bytes: int) -> None:
    """Make all mounts read-only, these folders writable copies, and hide /run with its sockets.

    A folder is read through a descriptor: a mount that was made before it may cover its path.
    """
    lower = [(folder, os.open(folder, os.O_PATH)) for folder in folders]
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    check(LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes)))
    mount("tmpfs", scratch, f"size={disk_bytes},mode=700")
    memory = os.open(scratch, os.O_PATH)
    for number, (folder, descriptor) in enumerate(lower):
        upper, work = (Path(f"/proc/self/fd/{memory}/{number}{end}") for end in ("", ".work"))
        upper.mkdir(Path(folder).stat().st_mode & 0o7777)
        work.mkdir()
        options = f"lowerdir=/proc/self/fd/{descriptor},upperdir={upper},workdir={work},userxattr"
        mount("overlay", Path(folder), options)
    if Path("/run").is_dir():
        mount("tmpfs", Path("/run"), "size=16m,mode=755")
    LIBC.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV, None)  # refused in containers


def mount(kind: str, target: Path, options: str) -> None:
    """Mount a file system. Raises OSError."""
    flags = MS_NOSUID | MS_NODEV
    check(LIBC.mount(kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode()))


def check(failed: int) -> None:
    """Raise the OSError of a call that returned other than 0."""
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write(file: Path, text: bytes) -> None:
    """Write a changed file, newer than any cache of the old one."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_bytes(text)
    now = max(file.stat().st_mtime_ns, before + 2_000_000_000)
    os.utime(file, ns=(now, now))


def run(plan: dict[str, Any]) -> int:
    """Run the program with limited memory, without privileges; return its code.

    This process is the first of its namespace: the others end with it.
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
    while True:
        ended, status = os.wait()  # the orphans of the program end here too
        if ended == child:
            return os.waitstatus_to_exitcode(status)


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
