"""Says which files of some folders may have changed on disk, in batches.

It only says where to look again: it reads no file and knows little of which ones count. What the
system does not tell, a regular look at everything finds. Links are never followed.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import stat
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from index.workspace.debounce import Batches, Changed
from index.workspace.file_filter import JUNK_FOLDERS, JUNK_MARKS, SECRET_FOLDERS

if sys.platform == "linux":
    from watchdog.observers import inotify_c as kernel

    INOTIFY = hasattr(kernel.InotifyEvent, "is_queue_overflow")  # watchdog 7.1; see _Tree
else:
    INOTIFY = False

logger = logging.getLogger(__name__)

Place = tuple[str, int, int]  # a folder's real path, device and inode

RULES = {".git", ".git/info", ".git/info/exclude"}  # of the root: what git ignores hangs on them
READS = {"opened", "closed_no_write"}  # events that change nothing; our own reading makes them

MOUNTS = Path("/proc/self/mountinfo")  # of Linux
# File systems that others change without this kernel's knowledge.
REMOTE = re.compile(
    r"(nfs\d?|cifs|smb.*|9p|fuse\..*|virtiofs|vboxsf|vmhgfs|prl_fs|drvfs|afs|ceph|lustre|gpfs)$"
)
REMEDIES = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.EMFILE: "raise fs.inotify.max_user_instances, or the limit of open files",
    errno.EACCES: "make it readable",
}


class Watch:
    """Calls `changed` with the absolute real paths of files and folders under `roots` to look at
    again, folders with all they hold. Always from one thread, never while it still runs. A batch
    comes after `quiet` seconds without changes, or `most` seconds after its first one; a batch of
    None, to look at everything, also comes every `scan_every` seconds, and every `poll_every`
    seconds where a root's changes are not told. An exception of `changed` is logged, and followed
    by None. Roots may be missing, come, go and be replaced."""

    def __init__(
        self,
        roots: Sequence[Path],
        changed: Changed,
        *,
        quiet: float = 0.05,
        most: float = 0.25,
        scan_every: float = 30.0,
        poll_every: float = 2.0,
    ) -> None:
        self._scan_every, self._poll_every = scan_every, poll_every
        self._batches = Batches(changed, self._attend, quiet, most, scan_every, poll_every)
        self._places: dict[Path, Place | None] = {root.absolute(): None for root in roots}
        self._observer: BaseObserver | None = None
        self._reader: kernel.InotifyFD | None = None
        self._started = False
        self._lock = threading.Lock()  # guards all that follows
        self._lost = False  # the roots must be set up again
        self._retry_at = math.inf  # when to try again what could not be watched
        self._polling: dict[Path, str] = {}
        self._polled: dict[Path, str] = {}  # before it is set up again, while it is
        self._warned: set[tuple[Path, str]] = set()

    @property
    def polling(self) -> dict[Path, str]:
        """The roots whose changes are not all told, so that they are polled, and why."""
        with self._lock:
            return self._polled | self._polling

    def start(self) -> None:
        """Every later change is told; read the files after this. Does nothing where started."""
        if not self._started:
            self._started = True
            self._set_up()
            self._batches.start()

    def stop(self) -> None:
        """Returns when a running `changed` has; none follows. What was not told yet is dropped."""
        self._batches.stop()
        self._tear_down()
        self._started = False

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def hear(self, root: str, path: str, is_folder: bool) -> None:
        """Something happened to a path of a root; both real. From any thread."""
        inside = path[len(_inside(root)) :].replace(os.sep, "/")
        folders, _, name = inside.rpartition("/")
        if not inside:
            self.lose(f"{root}: deleted, moved or unmounted")
        elif inside in RULES:
            self._batches.note(None)
        elif _left_out(inside if is_folder else folders):
            return
        elif name == ".gitignore":
            self._batches.note(None)
        elif name in JUNK_MARKS and folders:  # it decides about all of its folder
            self._batches.note(path.removesuffix(os.sep + name))
        else:
            self._batches.note(path)

    def lose(self, why: str) -> None:
        """Changes were missed or will be: set up again, then look at everything."""
        with self._lock:
            known, self._lost = self._lost, True
        if not known:
            logger.warning("%s; watching again and looking at everything", why)
        self._batches.note(None)

    def fall_short(self, root: Path, error: OSError) -> None:
        """The root, or a folder in it, cannot be watched."""
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            self._places[root] = None  # gone meanwhile: what is there is found when attended to
            return
        with self._lock:
            self._retry_at = time.monotonic() + self._scan_every
        remedy = REMEDIES.get(error.errno or 0, "see the system's log")
        self._poll(root, error.strerror or str(error), remedy)

    def _poll(self, root: Path, why: str, remedy: str) -> None:
        with self._lock:
            self._polling[root] = why
            self._batches.every = min(self._poll_every, self._scan_every)
            known = (root, why) in self._warned
            self._warned.add((root, why))
        if not known:
            line = "%s: polled every %g seconds, not all changes are told: %s; %s"
            logger.warning(line, root, self._poll_every, why, remedy)

    def _attend(self) -> None:
        """Cheap: are the roots where they were, and watched? If not, set up again."""
        moved = [root for root, place in self._places.items() if _place(root) != place]
        if moved:
            self.lose(f"{moved[0]}: came, went or was replaced")
        emitters = self._observer.emitters if self._observer else set()
        threads = [self._reader, self._observer, *emitters]
        if not all(thread.is_alive() for thread in threads if thread):
            self.lose("a thread of watchdog ended")
        with self._lock:
            again = time.monotonic() >= self._retry_at
            lost, self._lost = self._lost or again, False
        if lost:
            self._polled = self.polling  # so until it is known anew
            self._set_up()
            self._polled = {}
            self._batches.note(None)

    def _set_up(self) -> None:
        """Watch the roots that are there, from scratch."""
        self._tear_down()
        with self._lock:
            self._polling, self._retry_at = {}, math.inf
            self._batches.every = self._scan_every
        self._places = {root: _place(root) for root in self._places}
        mounts = os.fsdecode(MOUNTS.read_bytes()) if MOUNTS.exists() else ""
        try:
            if INOTIFY:
                self._reader = kernel.InotifyFD()
                self._reader.start()
            else:
                self._observer = Observer()
                self._observer.start()
        except OSError as error:
            for root in self._places:
                self.fall_short(root, error)
            return
        for root, place in self._places.items():
            if place is None:
                continue
            real = place[0]
            if remote := _remote(real, mounts):
                why = f"{remote} does not tell what others change"
                self._poll(root, why, "or use a local disk")
            try:
                if self._reader:
                    _Tree(self, self._reader, root, real).add(real)
                elif self._observer:
                    self._observer.schedule(_Handler(self, real), real, recursive=True)
            except OSError as error:
                self.fall_short(root, error)

    def _tear_down(self) -> None:
        threads = self._observer, self._reader
        self._observer = self._reader = None
        for thread in filter(None, threads):
            thread.stop()
            thread.join()


class _Handler(FileSystemEventHandler):
    """A root watched as watchdog does it, where `_Tree` cannot."""

    def __init__(self, watch: Watch, root: str) -> None:
        self._watch, self._root = watch, root

    def on_any_event(self, event: FileSystemEvent) -> None:
        kind, is_folder = event.event_type, event.is_directory
        if kind in READS or (kind == "modified" and is_folder):  # its content says more
            return
        for path in (event.src_path, event.dest_path):
            if path:
                self._watch.hear(self._root, os.fsdecode(path), is_folder)


if INOTIFY:

    class _Tree:
        """A root watched by inotify, one watch a folder; a callback of watchdog's InotifyFD.

        Not watchdog's own tree (7.1): after `mv b ..; mv a b` its stop() raises KeyError and leaves
        threads, it hides which folders could not be watched, holds everything back for half a
        second when something is moved out, and watches junk.
        """

        MASK = kernel.Mask(
            kernel.WATCHDOG_ALL_EVENTS  # links are not followed
            & ~(kernel.InotifyConstants.IN_OPEN | kernel.InotifyConstants.IN_CLOSE_NOWRITE)
            | kernel.InotifyConstants.IN_MOVE_SELF
            | kernel.InotifyConstants.IN_ONLYDIR
        )

        def __init__(self, watch: Watch, reader: kernel.InotifyFD, root: Path, real: str) -> None:
            self._watch, self._reader, self._root, self._real = watch, reader, root, real
            self._folders: dict[kernel.WatchDescriptor, str] = {}
            self._unreadable: set[str] = set()
            self._lock = threading.Lock()
            self._id = kernel.CallbackId(id(self))
            # It says so of a folder that is met at its new path before its move is heard of.
            warnings.filterwarnings("ignore", "Callback with id .* exists", RuntimeWarning)

        def on_event(self, event: kernel.InotifyEvent) -> None:
            with self._lock:
                folder = self._folders.get(event.wd)
            if folder is None or (not event.name and (folder != self._real or event.is_attrib)):
                return  # of a folder itself, which the one around it tells
            path = _inside(folder) + os.fsdecode(event.name) if event.name else folder
            if event.name and event.is_directory:
                if event.is_moved_from:
                    self._forget(path)
                elif event.is_create or event.is_moved_to or path in self._unreadable:
                    self.add(path)
            self._watch.hear(self._real, path, event.is_directory)  # last: now it is watched

        def on_watch_deleted(self, wd: kernel.WatchDescriptor) -> None:
            with self._lock:
                self._folders.pop(wd, None)

        def on_queue_overflow(self) -> None:
            self._watch.lose(f"{self._real}: more changes at once than the kernel's queue holds")

        def add(self, folder: str) -> None:
            """Watch a folder and those in it. OSError: the root could not be watched."""
            todo = [folder]
            while todo:
                folder = todo.pop()
                inside = folder[len(_inside(self._real)) :]
                if _left_out(inside) and inside not in RULES:
                    continue
                try:
                    self._add_one(folder)
                    with os.scandir(folder) as entries:
                        todo += [one.path for one in entries if one.is_dir(follow_symlinks=False)]
                except OSError as error:
                    if folder == self._real:
                        raise
                    if error.errno in {errno.ENOSPC, errno.EMFILE, errno.ENOMEM}:
                        self._watch.fall_short(self._root, error)
                        return

        def _add_one(self, folder: str) -> None:
            with self._lock:
                wd = self._reader.add_callback(os.fsencode(folder), self.MASK, self, self._id)
                if wd == -1:  # how it says that a folder is unreadable
                    self._unreadable.add(folder)  # its next change of mode is looked at
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
                self._unreadable.discard(folder)
                self._folders[wd] = folder

        def _forget(self, folder: str) -> None:
            """A folder was moved away: its watches would tell its old path."""
            start = _inside(folder)
            with self._lock:
                gone = [wd for wd, path in self._folders.items() if _inside(path).startswith(start)]
                self._reader.remove_callbacks([(wd, self._id) for wd in gone])
                for wd in gone:
                    del self._folders[wd]


def _inside(folder: str) -> str:
    """How paths inside a folder begin."""
    return folder if folder.endswith(os.sep) else folder + os.sep


def _place(root: Path) -> Place | None:
    """Where a folder is; None where there is none."""
    real = Path(os.path.realpath(root))
    try:
        status = real.stat()
    except OSError:
        return None
    return (str(real), status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _left_out(inside: str) -> bool:
    """Whether a folder never counts, by the names on the way to it."""
    return any(
        name in JUNK_FOLDERS or name.lower() in SECRET_FOLDERS or name.endswith(".egg-info")
        for name in inside.split("/")
    )


def _remote(root: str, mounts: str) -> str | None:
    """The kind of the remote file system that a real path is on, or that is mounted inside it."""
    start, around, kinds = _inside(root), "", [""]
    for line in mounts.strip("\n").split("\n") if mounts else []:  # the last one is on top
        before, _, after = line.partition(" - ")
        folder = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), before.split(" ")[4])
        kind = after.split(" ")[0]
        if start.startswith(_inside(folder)) and len(folder) >= len(around):
            around, kinds[0] = folder, kind
        elif folder.startswith(start) and not _left_out(folder[len(start) :]):
            kinds.append(kind)
    return next((kind for kind in kinds if REMOTE.match(kind)), None)
