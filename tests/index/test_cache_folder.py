"""Folders of the cache: which are created, and which are refused in one line."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from index.cache_folder import check_cache_folder, keep_newest, make_cache_folder
from tests.support.segment_store import names


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_missing_folders_are_created_private(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "index" / "key"
    make_cache_folder(folder, levels=2)
    assert mode(folder) == mode(folder.parent) == 0o700
    make_cache_folder(folder, levels=2)
    check_cache_folder(folder, levels=2)


def test_existing_folders_keep_their_mode(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    folder.chmod(0o755)
    make_cache_folder(folder)
    assert mode(folder) == 0o755


def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_cache_folder(tmp_path / "missing")


def linked(folder: Path) -> None:
    folder.symlink_to(folder.parent.parent / "elsewhere")


def dangling(folder: Path) -> None:
    folder.symlink_to("nothing")


def writable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def of_another(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give folders away")
    folder.mkdir()
    os.chown(folder, 1234, 1234)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (linked, "symbolic link"),
        (dangling, "symbolic link"),
        (Path.touch, "not a folder"),
        (writable, "writable by every user"),
        (of_another, "owned by user 1234"),
    ],
)
def test_a_folder_that_others_may_control_is_refused(
    tmp_path: Path, make: Callable[[Path], None], says: str, level: int
) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / "home" / "index" / "key"
    bad = [folder, folder.parent][level]
    bad.parent.mkdir(parents=True)
    make(bad)
    before = bad.lstat()
    for check in (check_cache_folder, make_cache_folder):
        with pytest.raises(OSError, match=says) as refused:
            check(folder, 2)
        assert refused.value.filename == str(bad)
        assert ": " in refused.value.strerror and "\n" not in refused.value.strerror
    assert bad.lstat() == before and names(tmp_path / "elsewhere") == set()


def test_a_shared_folder_with_the_sticky_bit_may_hold_the_cache(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)  # as /tmp has it: nobody can replace another's entries
    make_cache_folder(tmp_path / "shared" / "library", 2)
    assert stat.S_IMODE((tmp_path / "shared" / "library").stat().st_mode) == 0o700


def test_folders_above_are_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").symlink_to("elsewhere")
    make_cache_folder(tmp_path / "home" / "index")
    assert names(tmp_path / "elsewhere") == {"index"}


@pytest.mark.parametrize("most", [0, 1, 3, 4, 9])
def test_the_newest_are_kept(tmp_path: Path, most: int) -> None:
    made = ["old", "folder", "link", "new"]
    (tmp_path / "old").write_text("1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("2")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").write_text("3")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "new").write_text("4")
    for age, name in enumerate(made):
        os.utime(tmp_path / name, ns=(age, age), follow_symlinks=False)
    keep_newest([tmp_path / name for name in (*made, "missing")], most)
    left = [name for name in made if os.path.lexists(tmp_path / name)]
    assert left == made[len(made) - min(most, len(made)) :]
    assert (tmp_path / "target" / "file").read_text() == "3"


def test_what_is_beside_a_file_goes_with_it(tmp_path: Path) -> None:
    for age, name in enumerate(("a", "b")):
        for end in ("", "-wal", "-other"):
            (tmp_path / f"{name}{end}").touch()
        os.utime(tmp_path / name, ns=(age, age))
    keep_newest([tmp_path / "a", tmp_path / "b"], 1, ("-wal", "-shm"))
    assert names(tmp_path) == {"a-other", "b", "b-other", "b-wal"}
