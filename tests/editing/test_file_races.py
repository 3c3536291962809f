"""What others save while a file is replaced is noticed or kept, and of several that replace it none
loses what another has written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.editing import file_lock, text_file
from engine.editing.file_lock import locked
from engine.editing.text_file import FileChanged, FileError, read_text, replace_text
from index import os_calls

OLD, OURS, THEIRS = "old\n", "ours\n", "theirs\n"
Save = Callable[[Path], None]

needs_exchange = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux exchanges paths and tells who writes"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.txt"
    path.write_text(OLD)
    return path


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that cannot exchange paths."""
    monkeypatch.setattr(text_file, "exchange", lambda one, other: False)


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


# -- what an editor saves ----------------------------------------------------------------------


def in_place(path: Path) -> None:
    path.write_text(THEIRS)


def by_rename(path: Path) -> None:
    """A new file of another length takes its place."""
    new = path.with_name("their new file")
    new.write_text(THEIRS)
    new.rename(path)


def same_length(path: Path) -> None:
    """Neither the length nor the time of the change tells of it."""
    status = path.stat()
    with path.open("r+") as file:
        file.write(THEIRS[: len(OLD)])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


SAVES = [in_place, by_rename, same_length]
CALLS = ("locked", "_attributes", "write_atomically", "exchange")  # of `text_file`, in this order


def when(monkeypatch: pytest.MonkeyPatch, call: str, act: Callable[[], None], after: bool) -> None:
    """Act before or after the first of these calls, or within it if it is a context manager."""
    real, called = getattr(text_file, call), []

    def run(*args: object) -> object:
        first = not called
        called.append(True)
        if first and not after:
            act()
        result = real(*args)
        if first and after:
            act()
        return result

    monkeypatch.setattr(text_file, call, run)


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_what_an_editor_saves_at_any_moment_is_there_afterwards(
    file: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: bool, save: Save
) -> None:
    """Before the exchange it is refused; after that the editor has the last word."""
    saved = []

    def act() -> None:
        save(file)
        saved.append(file.read_bytes())

    when(monkeypatch, call, act, after)
    if (call, after) == ("exchange", True) and sys.platform == "linux":
        replace_text(file, OURS, OLD)
    else:
        with pytest.raises(FileChanged, match="changed on disk since it was read"):
            replace_text(file, OURS, OLD)
    assert [file.read_bytes()] == saved and names(file.parent) == [file.name]


@pytest.mark.usefixtures("no_exchange")
@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("call", CALLS[:-1])
def test_without_exchanges_it_is_noticed_until_just_before_the_replacement(
    file: Path, monkeypatch: pytest.MonkeyPatch, call: str, save: Save
) -> None:
    when(monkeypatch, call, lambda: save(file), True)
    with pytest.raises(FileChanged):
        replace_text(file, OURS, OLD)
    assert file.read_text() != OURS and names(file.parent) == [file.name]


@needs_exchange
@pytest.mark.parametrize("closes", [False, True])
def test_an_editor_that_has_opened_the_file_and_not_yet_written(
    file: Path, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    """It opened the old file before the exchange, and writes into it afterwards or never."""
    with file.open("r+") as editor:

        def write() -> None:
            editor.write(THEIRS)
            editor.truncate()
            editor.close()

        if closes:
            when(monkeypatch, "has_writer", write, True)
        else:
            monkeypatch.setattr(text_file, "WRITER_SECONDS", 0.0)
        with pytest.raises(FileError, match="changed on disk" if closes else "another program"):
            replace_text(file, OURS, OLD)
    assert file.read_text() == (THEIRS if closes else OLD) and names(file.parent) == [file.name]


@needs_exchange
def test_a_save_while_another_save_is_put_back_wins(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first save was replaced by ours, ours by the second save: that is the last one."""
    when(monkeypatch, "exchange", lambda: by_rename(file), False)

    def save_again() -> None:
        new = file.with_name("newest")
        new.write_text("newest\n")
        new.rename(file)

    when(monkeypatch, "_put_back", save_again, False)
    with pytest.raises(FileChanged):
        replace_text(file, OURS, OLD)
    assert file.read_text() == "newest\n" and names(file.parent) == [file.name]


@pytest.mark.parametrize("by", ["link", "folder", "pipe", "nothing"])
def test_another_thing_in_the_place_of_the_file_stays(
    file: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    other = file.with_name("other")
    other.write_text(OLD)

    def put() -> None:
        file.unlink()
        if by == "link":
            file.symlink_to(other)
        elif by == "folder":
            file.mkdir()
        elif by == "pipe":
            os.mkfifo(file)

    when(monkeypatch, "exchange", put, False)
    with pytest.raises(FileChanged):
        replace_text(file, OURS, OLD)
    kinds = {"link": Path.is_symlink, "folder": Path.is_dir, "pipe": Path.is_fifo}
    assert kinds[by](file) if by in kinds else not file.exists()
    assert other.read_text() == OLD and len(names(file.parent)) == 1 + (by in kinds)


# -- several that replace it -------------------------------------------------------------------


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("call", ["_attributes", "write_atomically", "exchange"])
def test_of_two_one_waits_and_is_told_of_the_change(
    file: Path, monkeypatch: pytest.MonkeyPatch, call: str, exchanges: bool
) -> None:
    """The second comes while the first is at any step, has compared the text before, and waits."""
    if not exchanges:
        monkeypatch.setattr(text_file, "exchange", lambda one, other: False)
    waits, results = threading.Event(), []
    pause = file_lock.time.sleep

    def sleep(seconds: float) -> None:
        waits.set()
        pause(seconds)

    monkeypatch.setattr(file_lock.time, "sleep", sleep)

    def second() -> None:
        try:
            replace_text(file, "second\n", OLD)
        except FileError as error:
            results.append(type(error))
        finally:
            waits.set()

    thread = threading.Thread(target=second)

    def begin() -> None:
        thread.start()
        waits.wait()

    when(monkeypatch, call, begin, False)
    replace_text(file, OURS, OLD)
    thread.join()
    assert results == [FileChanged] and file.read_text() == OURS


ADD = """
import sys
from pathlib import Path
from engine.editing.text_file import FileError, read_text, replace_text
file, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    while True:
        text = read_text(file)
        try:
            replace_text(file, f"{text}{name} {number}\\n", text)
            break
        except FileError:
            pass
"""


def test_every_change_that_a_process_reports_is_in_the_file(file: Path) -> None:
    """Each process adds its lines, one write a line, and tries again if another was faster."""
    count, command = 10, [sys.executable, "-c", ADD, str(file)]
    processes = [subprocess.Popen([*command, name, str(count)]) for name in "abcdefgh"]
    assert [process.wait() for process in processes] == [0] * len(processes)
    wanted = [OLD.strip(), *(f"{name} {number}" for name in "abcdefgh" for number in range(count))]
    assert sorted(read_text(file).splitlines()) == sorted(wanted)
    assert names(file.parent) == [file.name]


# -- the lock ----------------------------------------------------------------------------------


@pytest.fixture
def holder(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of the file."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom engine.editing.file_lock import locked\n"
        "with locked(Path(sys.argv[1])):\n    print(flush=True)\n    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_a_lock_that_is_kept_is_an_error(
    file: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "WAIT_SECONDS", 0.0)
    (file.parent / "link").symlink_to(file)
    for path in (file, file.parent / "link"):
        with pytest.raises(FileError, match="keeps it locked: try again"):
            replace_text(path, OURS, OLD)
    assert file.read_text() == OLD


def test_the_lock_of_a_killed_process_is_free(file: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    replace_text(file, OURS, OLD)
    assert file.read_text() == OURS and names(file.parent) == [file.name]


@pytest.mark.usefixtures("no_exchange")
@pytest.mark.parametrize("code", [9, 37])  # EBADF: NFS, unless it is open for writing; ENOLCK
def test_a_file_system_without_locks(
    file: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """They cannot exchange paths either."""

    def no_lock(descriptor: int, wait: bool = True) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(file_lock, "lock", no_lock)
    replace_text(file, OURS, OLD)
    assert file.read_text() == OURS


def test_windows_locks_one_file_of_the_cache(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("DRAFTLINE_HOME", str(home))
    monkeypatch.setattr(file_lock, "IS_WINDOWS", True)
    monkeypatch.setattr(file_lock, "WAIT_SECONDS", 0.0)
    replace_text(file, OURS, OLD)
    assert file.read_text() == OURS and names(home) == [file_lock.WINDOWS_LOCK]
    with locked(file), pytest.raises(BlockingIOError), locked(tmp_path / "another"):
        pass


@needs_exchange
def test_paths_that_cannot_be_exchanged(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        os_calls.exchange(file, file.with_name("missing"))
    assert not os_calls.exchange(file, file.parent)  # a folder into itself
