"""Indexes copied to another place: what arrives is what was exported, or nothing."""

from __future__ import annotations

import io
import os
import pickle
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index import Workspace
from index.workspace import archive, array_file
from index.workspace.archive import BadArchive
from index.workspace.array_file import ArrayFile, Arrays
from index.workspace.segment_store import SegmentStore
from tests.support.encoders import Bytes, Composed
from tests.support.faults import change, check, make_tree, tiny_disk

SECRET = "the text that was deleted"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_tree(tmp_path / "root", random.Random(1))
    return tmp_path / "root"


def exported(root: Path, encoder: Any = None) -> Path:
    """An archive of this folder's index, after some changes."""
    file, chance = root.parent / "archive", random.Random(3)
    with Workspace(root, encoder or Bytes(), root.parent / "home") as workspace:
        workspace.build()
        (root / "gone.py").write_text(SECRET)
        workspace.refresh([root / "gone.py"])
        workspace.compact()
        (root / "gone.py").unlink()
        for _ in range(5):
            workspace.refresh([root / "gone.py", *change(root, chance)])
        workspace.update(root / "open.py", "an open buffer")
        workspace.export(file, "model a")
    return file


def copied(root: Path, name: str) -> Path:
    """The same files in another place, as a checkout there has them."""
    place = root.parent / name / "checkout"
    shutil.copytree(root, place, copy_function=shutil.copy)
    return place


@pytest.mark.parametrize("encoder", [Bytes(), Composed()], ids=["bytes", "composed"])
def test_an_index_is_copied_to_another_folder(root: Path, encoder: Any) -> None:
    file = exported(root, encoder)
    place, home = copied(root, "other"), root.parent / "elsewhere"
    (place / "new.py").write_text("value = 3\n")
    (place / "u").write_text("value = 4\n")
    with Workspace(place, encoder, home) as workspace:
        info = workspace.load_from(file, "model a")
        workspace.build()
        stats = workspace.stats()
        assert (stats.hits, stats.misses) == (0, 2), "only the files that differ are tokenized"
        check(workspace)
    assert info.roots == ["root"] and len(info.identity) == 32
    assert file.stat().st_mode & 0o777 == 0o600


def test_equal_archives_have_one_identity(root: Path) -> None:
    with Workspace(root, Bytes(), root.parent / "home") as workspace:
        workspace.build()
        first = workspace.export(root.parent / "a", "model a")
        second = workspace.export(root.parent / "b", "model a")
    with Workspace(root, Bytes(), root.parent / "home") as workspace:
        workspace.build()  # nothing has changed
        third = workspace.export(root.parent / "c", "model a")
    assert first == second == third
    assert archive.read(root.parent / "a", [root], Bytes(), "model a")[1] == first


def test_deleted_text_and_open_buffers_are_not_exported(root: Path) -> None:
    held = exported(root).read_bytes()
    kept = next(path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size)
    for text, there in ((SECRET, False), ("an open buffer", False), (kept.read_text(), True)):
        ids = np.array(list(text.encode()), np.int32).tobytes()
        assert (ids in held) == there


def test_several_folders_are_matched_by_name(root: Path) -> None:
    other = copied(root, "more")
    with Workspace([root, other], Bytes(), root.parent / "home") as workspace:
        workspace.build()
        workspace.export(root.parent / "file", "a")
    places = [root.parent / "new" / name for name in ("checkout", "root")]
    for place, source in zip(places, (other, root), strict=True):
        shutil.copytree(source, place)
    with Workspace(places, Bytes(), root.parent / "elsewhere") as workspace:
        workspace.load_from(root.parent / "file", "a")
        workspace.build()
        assert workspace.stats().misses == 0
        check(workspace)
    for wrong in ([root], [root, root.parent], [places[0], root.parent / "nowhere"]):
        with (
            Workspace(wrong, Bytes(), root.parent / "third") as workspace,
            pytest.raises(BadArchive, match="folders root, checkout, not of"),
        ):
            workspace.load_from(root.parent / "file", "a")


def test_another_tokenizer_is_refused_with_both_names(root: Path) -> None:
    file = exported(root)
    with (
        Workspace(root, Composed(), root.parent / "elsewhere") as workspace,
        pytest.raises(BadArchive) as refused,
    ):
        workspace.load_from(file, "model b")
    assert "model a" in str(refused.value) and "model b" in str(refused.value)


def test_a_file_is_not_overwritten(root: Path) -> None:
    (root.parent / "archive").write_text("mine")
    with pytest.raises(FileExistsError, match="choose another name"):
        exported(root)
    assert (root.parent / "archive").read_text() == "mine"


def test_a_full_disk_leaves_nothing(root: Path) -> None:
    file = exported(root)
    with (
        tiny_disk(root.parent / "small", "16k"),
        Workspace(root, Bytes(), root.parent / "home") as workspace,
    ):
        workspace.build()
        with pytest.raises(OSError, match="No space left"):
            workspace.export(root.parent / "small" / "file", "a")
        assert list((root.parent / "small").iterdir()) == []
    with tiny_disk(root.parent / "tiny", "16k"):
        other = Workspace(root, Bytes(), root.parent / "tiny")
        with pytest.raises(OSError, match="No space left"):
            other.load_from(file, "a")
        assert not list((root.parent / "tiny").rglob("*.part"))


def test_an_index_in_use_is_neither_replaced_nor_exported(root: Path) -> None:
    file = exported(root)
    with Workspace(root, Bytes(), root.parent / "home") as workspace:
        workspace.build()
        (root / "u").write_text("value = 9\n")
        workspace.refresh([root / "u"])
        workspace.compact()
        with pytest.raises(PermissionError, match="another process"):
            Workspace(root, Bytes(), root.parent / "home").load_from(file, "a")
        with Workspace(root, Bytes(), root.parent / "home") as other:
            other.build()
            with pytest.raises(PermissionError, match="another process"):
                other.export(root.parent / "second", "a")
    assert not (root.parent / "second").exists()


# -- bad archives ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose index is saved, and exported beside it."""
    root = tmp_path_factory.mktemp("made") / "root"
    make_tree(root, random.Random(1))
    exported(root)
    return root


def refused(root: Path, file: Path) -> str:
    """Why a file is refused, in one line; the index stays as it was."""
    home = root.parent / "home"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.suffix != ".sqlite"
              and path.is_file()}  # fmt: skip
    with pytest.raises((BadArchive, OSError)) as error:
        Workspace(root, Bytes(), home).load_from(file, "a")
    assert {path: path.read_bytes() for path in before} == before
    why = str(error.value)
    assert "\n" not in why and str(file) in why
    return why


def test_damaged_archives_are_refused(root: Path) -> None:
    good, chance = exported(root).read_bytes(), random.Random(1)
    file = root.parent / "damaged"
    for size in (0, 1, 30, len(good) // 2, len(good) - 1):
        file.write_bytes(good[:size])
        refused(root, file)
    file.write_bytes(good + b"more")
    refused(root, file)
    for _ in range(40):
        data = bytearray(good)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        try:
            with Workspace(root, Bytes(), root.parent / "third") as workspace:
                workspace.load_from(file, "a")
        except BadArchive as error:
            assert "\n" not in str(error)
        else:  # a bit of the padding between arrays
            padding = {at for at in range(len(good)) if data[at] != good[at]}
            assert all(good[at] == 0 for at in padding)


def other_formats(file: Path) -> None:
    kind = file.suffix
    if kind == ".tar":
        with tarfile.open(file, "w") as made:
            made.addfile(tarfile.TarInfo("../../escaped"), io.BytesIO())
    elif kind == ".zip":
        with zipfile.ZipFile(file, "w") as made_zip:
            made_zip.writestr("../../escaped", "x")
    elif kind == ".pickle":
        file.write_bytes(pickle.dumps({"archive": 1}))
    elif kind == ".folder":
        file.mkdir()
    elif kind == ".pipe":
        os.mkfifo(file)
    elif kind == ".link":
        file.symlink_to("/etc/passwd")
    elif kind == ".text":
        file.write_text("hello")


@pytest.mark.parametrize(
    "kind", [".tar", ".zip", ".pickle", ".folder", ".pipe", ".link", ".text", ".missing"]
)
def test_other_files_are_refused(made: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"other{kind}"
    other_formats(file)
    refused(made, file)


def paths(*names: str) -> Callable[[Arrays], Arrays]:
    """Replaces the first paths of an archive's table."""

    def changed(arrays: Arrays) -> Arrays:
        known = archive.unpack_strings(arrays, "path")
        return arrays | archive.pack_strings("path", [*names, *known[len(names) :]])

    return changed


def item(name: str, at: int, value: int) -> Callable[[Arrays], Arrays]:
    """Replaces one item of an array."""

    def changed(arrays: Arrays) -> Arrays:
        array = arrays[name].copy()
        array[at] = value
        return arrays | {name: array}

    return changed


HOSTILE: dict[str, tuple[Callable[[Arrays], Arrays], str]] = {
    "parent": (paths("../../.bashrc"), "leads out"),
    "absolute": (paths("/etc/passwd"), "leads out"),
    "inner parent": (paths("a/../../b"), "leads out"),
    "dots": (paths("a/./b"), "leads out"),
    "nul": (paths("a\0b"), "leads out"),
    "empty path": (paths(""), "leads out"),
    "the root itself": (paths("."), "leads out"),
    "two of one name": (paths("same", "same"), "inconsistent"),
    "root": (item("root", 0, 7), "incomplete"),
    "root before": (item("root", 0, -1), "leads out"),
    "segment": (item("segment", 0, 99), "contradict"),
    "segment before": (item("segment", 0, -1), "in no segment"),
    "number": (item("number", 0, 9999), "contradict"),
    "number twice": (item("number", 0, 1), "contradict"),
    "newest of all time": (item("changed", 0, 2**63 - 1), "no order"),
    "no such token": (item("part0_text", 1, 300), "a token above"),
    "token": (item("part0_text", 1, -5), "contradict"),
    "rank": (item("part0_ranks", 1, 2**31), "contradict"),
    "order": (item("part0_order", 0, 2**31), "contradict"),
    "key": (item("part0_keys", 0, 0), "contradict"),
    "followed": (item("part0_followed", 0, 0), "contradict"),
    "start": (item("part0_starts", 0, 3), "contradict"),
    "start after the end": (item("part0_starts", -1, 2**31), "contradict"),
    "unknown array": (lambda arrays: arrays | {"evil": np.zeros(1)}, "unknown array"),
    "part 7": (lambda arrays: arrays | {"part7_text": np.zeros(1, np.int32)}, "missing"),
    "no text": (
        lambda arrays: {key: one for key, one in arrays.items() if key != "part0_text"},
        "contradict",
    ),
    "no keys": (
        lambda arrays: {key: one for key, one in arrays.items() if key != "part0_keys"},
        "contradict|incomplete",
    ),
    "no table": (
        lambda arrays: {key: one for key, one in arrays.items() if key != "digest"},
        "incomplete",
    ),
    "floats": (lambda arrays: arrays | {"segment": arrays["segment"] + 0.5}, "other types"),
    "ends": (lambda arrays: arrays | {"path_ends": arrays["path_ends"][:-1]}, "incomplete"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives_are_refused(made: Path, tmp_path: Path, kind: str) -> None:
    """With right digests."""
    change_of, why = HOSTILE[kind]
    good = ArrayFile(made.parent / "archive")
    arrays = change_of(dict(good.arrays))
    about = good.about | {"digests": {name: archive._digest(one) for name, one in arrays.items()}}
    array_file.write(tmp_path / "hostile", good.fingerprint, about, arrays)
    said = refused(made, tmp_path / "hostile")
    assert any(one in said for one in why.split("|")), said


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"archive": 2},
        {"archive": 1, "tokenizer": "a", "roots": ["root"], "digests": {}},
        {"archive": 1, "tokenizer": "a", "roots": [1], "digests": {}},
        {"archive": 1, "tokenizer": ["a"], "roots": ["root"], "digests": {}},
    ],
)
def test_other_headers_are_refused(made: Path, tmp_path: Path, about: dict[str, Any]) -> None:
    good = ArrayFile(made.parent / "archive")
    array_file.write(tmp_path / "other", good.fingerprint, about, dict(good.arrays))
    assert "copy or export it again" in refused(made, tmp_path / "other")


def test_names_in_messages_cannot_drive_a_terminal(made: Path, tmp_path: Path) -> None:
    good = ArrayFile(made.parent / "archive")
    about = good.about | {"tokenizer": "\x1b[2J\nevil" + "x" * 9999}
    array_file.write(tmp_path / "other", "\x1b[2J another", about, dict(good.arrays))
    said = refused(made, tmp_path / "other")
    assert "\x1b" not in said and len(said) < 1000


def test_several_processes_read_one_index(root: Path) -> None:
    """Its arrays are mapped from the same files, and none can write to them."""
    exported(root)
    (table,) = (root.parent / "home" / "index").rglob("table")
    stores = [SegmentStore(table.parent, ArrayFile(table).fingerprint) for _ in range(2)]
    first, second = (store.load() for store in stores)
    assert first and second
    for one, other in zip(first.parts, second.parts, strict=True):
        for name, array in one.arrays.items():
            assert not array.flags.writeable
            assert np.array_equal(array, other.arrays[name])
