"""Watches folders and reports, in debounced batches, which files may have changed on disk.

It reads no file contents. Changes that the system does not report are found by regular full scans.
Symbolic links are never followed.
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

from index.workspace import secret_names
from index.workspace.debounce import Debouncer, OnChange
from index.workspace.file_filter import EXEMPTIONS, JUNK_FOLDERS, JUNK_MARKS

if sys.platform == "linux":
    from watchdog.observers import inotify_c as kernel

    USE_INOTIFY = hasattr(
        kernel.InotifyEvent, "is_queue_overflow"
    )  # watchdog 7.1; see _InotifyRoot
else:
    USE_INOTIFY = False

logger = logging.getLogger(__name__)

FolderIdentity = tuple[str, int, int]  # a folder's real path, device and inode

# Files that decide, by what they are or hold, which others are indexed; the group is their folder.
RULE_FILE = re.compile(r"(?:(.*)/)?\.git(?:/info(?:/exclude)?|ignore|modules)?", re.DOTALL)
READ_EVENTS = {"opened", "closed_no_write"}  # events that change nothing, such as our own reads

MOUNTS = Path("/proc/self/mountinfo")  # Linux's list of mounts
# File systems that other machines change without this kernel's knowledge.
REMOTE_FILE_SYSTEM = re.compile(
    r"(nfs\d?|cifs|smb.*|9p|fuse\..*|virtiofs|vboxsf|vmhgfs|prl_fs|drvfs|afs|ceph|lustre|gpfs)$"
)
REMEDIES = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.EMFILE: "raise fs.inotify.max_user_instances, or the limit of open files",
    errno.EACCES: "make it readable",
}


class Watch:
    """Calls `on_change` with absolute real paths under `roots` to read again, folders recursively.

    Calls come from one thread, one at a time: `quiet_s` after the last change, or `max_delay_s`
    after the first one. None, which asks for a full scan, is reported every `rescan_s`, and every
    `poll_s` if not all changes under a root can be observed, as long as `use` is called: a full
    scan that was due meanwhile follows the next call. An exception of `on_change` is logged and
    followed by a full scan. Roots may be missing, and may appear, vanish and be replaced.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        on_change: OnChange,
        *,
        quiet_s: float = 0.05,
        max_delay_s: float = 0.25,
        rescan_s: float = 30.0,
        poll_s: float = 2.0,
    ) -> None:
        self._rescan_s, self._poll_s = rescan_s, poll_s
        self._debouncer = Debouncer(
            on_change, self._heartbeat, quiet_s, max_delay_s, rescan_s, poll_s
        )
        self._identities: dict[Path, FolderIdentity | None] = {
            root.absolute(): None for root in roots
        }
        self._observer: BaseObserver | None = None
        self._reader: kernel.InotifyFD | None = None
        self._started = False
        self._lock = threading.Lock()  # guards all that follows
        self._must_set_up = False  # some watches are broken
        self._retry_at = math.inf  # when to try again to watch what could not be
        self._polling: dict[Path, str] = {}
        self._was_polling: dict[Path, str] = {}  # `_polling` before, during a set-up
        self._warned: set[tuple[Path, str]] = set()

    @property
    def polling(self) -> dict[Path, str]:
        """The roots that are polled because not all changes can be observed, and why."""
        with self._lock:
            return self._was_polling | self._polling

    def start(self) -> None:
        """Report every change from now on; read the files after this. Idempotent."""
        if not self._started:
            self._started = True
            self._set_up()
            self._debouncer.start()

    def use(self) -> None:
        """Note that somebody relies on what was reported; cheap. Any thread."""
        self._debouncer.use()

    def stop(self) -> None:
        """Drop what was not reported yet. Blocks until a running `on_change` has returned."""
        self._debouncer.stop()
        self._tear_down()
        self._started = False

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def report(self, root: str, path: str, is_folder: bool) -> None:
        """Something happened to a path under a root; both are real paths. Any thread."""
        inside = path[len(_prefix(root)) :].replace(os.sep, "/")
        folders, _, name = inside.rpartition("/")
        if not inside:
            self.lost_events(f"{root}: deleted, moved or unmounted")
        elif _is_rule_file(inside):
            self._debouncer.note(None)
        elif _is_excluded(inside if is_folder else folders):
            return
        elif name in JUNK_MARKS and folders:  # it excludes its whole folder
            self._debouncer.note(path.removesuffix(os.sep + name))
        else:
            self._debouncer.note(path)

    def lost_events(self, why: str) -> None:
        """Set the watches up again, then scan everything: changes were missed or will be."""
        with self._lock:
            known, self._must_set_up = self._must_set_up, True
        if not known:
            logger.warning("%s; restarting the watcher and rescanning", why)
        self._debouncer.note(None)

    def cannot_watch(self, root: Path, error: OSError) -> None:
        """Poll a root, since it or a folder in it cannot be watched."""
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            self._identities[root] = None  # deleted: the next heartbeat notices
            return
        with self._lock:
            self._retry_at = time.monotonic() + self._rescan_s
        remedy = REMEDIES.get(error.errno or 0, "see the system log")
        self._poll(root, error.strerror or str(error), remedy)

    def _poll(self, root: Path, why: str, remedy: str) -> None:
        with self._lock:
            self._polling[root] = why
            self._debouncer.rescan_s = min(self._poll_s, self._rescan_s)
            known = (root, why) in self._warned
            self._warned.add((root, why))
        if not known:
            line = "%s: polling every %g seconds because changes may be missed: %s; %s"
            logger.warning(line, root, self._poll_s, why, remedy)

    def _heartbeat(self) -> None:
        """Set up again if a root moved or its watch broke. Cheap."""
        moved = [root for root, identity in self._identities.items() if _identity(root) != identity]
        if moved:
            self.lost_events(f"{moved[0]}: appeared, vanished or was replaced")
        emitters = self._observer.emitters if self._observer else set()
        threads = [self._reader, self._observer, *emitters]
        if not all(thread.is_alive() for thread in threads if thread):
            self.lost_events("a watchdog thread ended")
        with self._lock:
            again = time.monotonic() >= self._retry_at
            lost, self._must_set_up = self._must_set_up or again, False
        if lost:
            self._was_polling = self.polling  # until the set-up is done
            self._set_up()
            self._was_polling = {}
            self._debouncer.note(None)

    def _set_up(self) -> None:
        """Watch the existing roots, from scratch."""
        self._tear_down()
        with self._lock:
            self._polling, self._retry_at = {}, math.inf
            self._debouncer.rescan_s = self._rescan_s
        self._identities = {root: _identity(root) for root in self._identities}
        mounts = os.fsdecode(MOUNTS.read_bytes()) if MOUNTS.exists() else ""
        try:
            if USE_INOTIFY:
                self._reader = kernel.InotifyFD()
                self._reader.start()
            else:
                self._observer = Observer()
                self._observer.start()
        except OSError as error:
            for root in self._identities:
                self.cannot_watch(root, error)
            return
        for root, identity in self._identities.items():
            if identity is None:
                continue
            real = identity[0]
            if remote := _remote_file_system(real, mounts):
                why = f"{remote} does not report changes by other machines"
                self._poll(root, why, "or use a local disk")
            try:
                if self._reader:
                    _InotifyRoot(self, self._reader, root, real).add(real)
                elif self._observer:
                    self._observer.schedule(_WatchdogRoot(self, real), real, recursive=True)
            except OSError as error:
                self.cannot_watch(root, error)

    def _tear_down(self) -> None:
        threads = self._observer, self._reader
        self._observer = self._reader = None
        for thread in filter(None, threads):
            thread.stop()
            thread.join()


class _WatchdogRoot(FileSystemEventHandler):
    """A root watched by watchdog's own observer, for systems without `_InotifyRoot`."""

    def __init__(self, watch: Watch, root: str) -> None:
        self._watch, self._root = watch, root

    def on_any_event(self, event: FileSystemEvent) -> None:
        kind, is_folder = event.event_type, event.is_directory
        if kind in READ_EVENTS or (
            kind == "modified" and is_folder
        ):  # the events inside it say more
            return
        for path in (event.src_path, event.dest_path):
            if path:
                self._watch.report(self._root, os.fsdecode(path), is_folder)


if USE_INOTIFY:

    class _InotifyRoot:
        """A root watched by inotify, with one watch per folder; a callback of watchdog's InotifyFD.

        It replaces watchdog's own tree (7.1), which after `mv b ..; mv a b` raises KeyError in
        stop() and leaks threads, hides which folders could not be watched, delays everything by
        half a second when something is moved out, and watches junk folders.
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
            # Raised for a folder that is found at its new path before its move is reported.
            warnings.filterwarnings("ignore", "Callback with id .* exists", RuntimeWarning)

        def on_event(self, event: kernel.InotifyEvent) -> None:
            with self._lock:
                folder = self._folders.get(event.wd)
            if folder is None or (not event.name and (folder != self._real or event.is_attrib)):
                return  # about a watched folder itself: its parent reports that
            path = _prefix(folder) + os.fsdecode(event.name) if event.name else folder
            if event.name and event.is_directory:
                if event.is_moved_from:
                    self._forget(path)
                elif event.is_create or event.is_moved_to or path in self._unreadable:
                    self.add(path)
            self._watch.report(self._real, path, event.is_directory)  # last: by now it is watched

        def on_watch_deleted(self, wd: kernel.WatchDescriptor) -> None:
            with self._lock:
                self._folders.pop(wd, None)

        def on_queue_overflow(self) -> None:
            self._watch.lost_events(f"{self._real}: the inotify queue overflowed")

        def add(self, folder: str) -> None:
            """Watch a folder and those in it. OSError if the root cannot be watched."""
            todo = [folder]
            while todo:
                folder = todo.pop()
                inside = folder[len(_prefix(self._real)) :]
                if _is_excluded(inside) and not _is_rule_file(inside):
                    continue
                try:
                    self._add_one(folder)
                    with os.scandir(folder) as entries:
                        todo += [at.path for at in entries if at.is_dir(follow_symlinks=False)]
                except OSError as error:
                    if folder == self._real:
                        raise
                    if error.errno in {errno.ENOSPC, errno.EMFILE, errno.ENOMEM}:
                        self._watch.cannot_watch(self._root, error)
                        return

        def _add_one(self, folder: str) -> None:
            with self._lock:
                wd = self._reader.add_callback(os.fsencode(folder), self.MASK, self, self._id)
                if wd == -1:  # the folder is unreadable
                    self._unreadable.add(folder)  # try again when its mode changes
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
                self._unreadable.discard(folder)
                self._folders[wd] = folder

        def _forget(self, folder: str) -> None:
            """Forget a folder that was moved away: its watches would report its old path."""
            start = _prefix(folder)
            with self._lock:
                gone = [wd for wd, path in self._folders.items() if _prefix(path).startswith(start)]
                self._reader.remove_callbacks([(wd, self._id) for wd in gone])
                for wd in gone:
                    del self._folders[wd]


def _prefix(folder: str) -> str:
    """Return the prefix of paths inside a folder."""
    return folder if folder.endswith(os.sep) else folder + os.sep


def _identity(root: Path) -> FolderIdentity | None:
    """Return the identity of a folder, or None if there is none."""
    real = Path(os.path.realpath(root))
    try:
        status = real.stat()
    except OSError:
        return None
    return (str(real), status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _is_rule_file(inside: str) -> bool:
    """Return whether a path below a root is that of a file of rules, or of a folder with one."""
    found = RULE_FILE.fullmatch(inside)
    return inside == EXEMPTIONS or (found is not None and not _is_excluded(found[1] or ""))


def _is_excluded(inside: str) -> bool:
    """Return whether a folder is excluded by a name on its path."""
    return any(
        name in JUNK_FOLDERS or name.lower() in secret_names.FOLDERS or name.endswith(".egg-info")
        for name in inside.split("/")
    )


def _remote_file_system(root: str, mounts: str) -> str | None:
    """Return the type of the remote file system that holds a real path, or is mounted below it."""
    start, around, kinds = _prefix(root), "", [""]
    for line in mounts.strip("\n").split("\n") if mounts else []:  # the last mount is on top
        before, _, after = line.partition(" - ")
        folder = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), before.split(" ")[4])
        kind = after.split(" ")[0]
        if start.startswith(_prefix(folder)) and len(folder) >= len(around):
            around, kinds[0] = folder, kind
        elif folder.startswith(start) and not _is_excluded(folder[len(start) :]):
            kinds.append(kind)
    return next((kind for kind in kinds if REMOTE_FILE_SYSTEM.match(kind)), None)
