"""Secrets planted in a folder, under telling names and in ordinary files: none gets into the index,
however it gets there, and ordinary files do."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest

from index import Workspace
from index.workspace import file_filter, secret_names, secrets
from tests.support.encoders import Bytes
from tests.support.planted_secrets import Plant, planted_secrets

MIN_PLANTS = 150
ORDINARY_FILES = 500
MAX_WRONG = 0.01  # of ordinary files


def plant(root: Path, plants: list[Plant]) -> None:
    for one in plants:
        path = root / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.data)


def is_in_index(workspace: Workspace, secret: str) -> bool:
    """Whether a text occurs in the files of the index, or in its tokens."""
    if workspace.find(secret):
        return True
    text = list(secret.encode())
    return any(found.length >= len(text) - 1 for found in workspace.match(text[:-1], limit=64))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    root = tmp_path / "root"
    root.mkdir()
    (root / "ordinary.py").write_text("def add(left, right):\n    return left + right\n")
    with Workspace(root, Bytes(), tmp_path / "home") as opened:
        yield opened


def ordinary(workspace: Workspace) -> list[str]:
    return [str(workspace.roots[0] / "ordinary.py")]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))]
)
def test_no_planted_secret_is_indexed(workspace: Workspace, seed: int) -> None:
    root, plants = workspace.roots[0], planted_secrets(seed)
    assert len(plants) >= MIN_PLANTS
    plant(root, plants)
    workspace.build()
    assert workspace.paths == ordinary(workspace)
    assert [one.path for one in plants if is_in_index(workspace, one.secret)] == []
    assert is_in_index(workspace, "return left + right")
    reasons = " ".join(workspace.skipped.values())
    assert not any(one.secret in reasons for one in plants), "reasons quote no contents"


def test_secrets_are_not_saved(workspace: Workspace, tmp_path: Path) -> None:
    plants = planted_secrets(1)
    plant(workspace.roots[0], plants)
    workspace.build()
    workspace.compact()
    saved = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())

    def is_saved(text: str) -> bool:
        ids = np.frombuffer(text.encode(), np.uint8)
        return any(ids.astype(kind).tobytes() in saved for kind in (np.uint8, np.uint16, np.int32))

    assert is_saved("return left + right")
    assert [one.path for one in plants if is_saved(one.secret)] == []


def test_secrets_that_appear_later_are_not_indexed(workspace: Workspace) -> None:
    """The watch reads single files again: here they are named, as the watch does."""
    root, plants = workspace.roots[0], planted_secrets(2)
    workspace.build()
    plant(root, plants)
    for one in plants:
        workspace.refresh([root / one.path])
    assert workspace.paths == ordinary(workspace)
    (root / "ordinary.py").write_bytes(plants[-1].data)
    workspace.refresh([root / "ordinary.py"])
    assert workspace.paths == []


def test_secrets_in_open_buffers_are_not_indexed(workspace: Workspace) -> None:
    root, plants = workspace.roots[0], planted_secrets(3)
    workspace.build()
    for version, one in enumerate(plants, 1):
        workspace.update(root / one.path, one.data.decode(), version)
        assert workspace.paths == ordinary(workspace), one.path
    (root / "notes.txt").symlink_to(".env")
    (root / ".env").write_text("word\n")
    workspace.update(root / "notes.txt", "word\n", 1)
    assert workspace.paths == ordinary(workspace)


def test_a_file_that_is_renamed_to_a_secret_is_dropped(workspace: Workspace) -> None:
    root = workspace.roots[0]
    workspace.build()
    (root / "ordinary.py").rename(root / "prod.env")
    workspace.rename(root / "ordinary.py", root / "prod.env")
    assert workspace.paths == []


@pytest.mark.parametrize("secret_first", [True, False])
@pytest.mark.parametrize("inside", ["", "a/", "z/"])
def test_hard_links_to_secrets_are_not_indexed(
    workspace: Workspace, secret_first: bool, inside: str
) -> None:
    """Whichever name the walk meets first, also if one is in a folder that is not entered."""
    root = workspace.roots[0]
    for name, link in ((".env", "b.txt"), (".aws/config", "c.txt"), ("prod.tfvars", "zz.txt")):
        path, other = root / inside / name, root / link
        for one in (path, other):
            one.parent.mkdir(parents=True, exist_ok=True)
        first, second = (path, other) if secret_first else (other, path)
        first.write_text("word\n")
        os.link(first, second)
    workspace.build()
    assert workspace.paths == ordinary(workspace)
    workspace.update(root / "b.txt", "word\n", 1)
    assert workspace.paths == ordinary(workspace)


def test_a_hard_link_that_is_made_later_removes_the_file(workspace: Workspace) -> None:
    root = workspace.roots[0]
    (root / "notes.txt").write_text("word\n")
    workspace.build()
    assert str(root / "notes.txt") in workspace.paths
    os.link(root / "notes.txt", root / ".env")
    workspace.refresh([root / ".env"])
    assert workspace.paths == ordinary(workspace)
    assert workspace.skipped[str(root / "notes.txt")].startswith("may hold secrets: a hard link")


def test_links_to_secrets_are_not_indexed(workspace: Workspace, tmp_path: Path) -> None:
    root = workspace.roots[0]
    (tmp_path / "outside.env").write_text("word\n")
    (root / ".env").write_text("word\n")
    key = next(one for one in planted_secrets(4) if one.path.startswith("keys/0"))
    (root / "key.txt").write_bytes(key.data)
    for name, target in (("a", ".env"), ("b", "key.txt"), ("c", "../outside.env"), ("d", "a")):
        (root / name).symlink_to(target)
    workspace.build()
    assert workspace.paths == ordinary(workspace)


def test_hard_links_between_ordinary_files_are_indexed(workspace: Workspace) -> None:
    root = workspace.roots[0]
    os.link(root / "ordinary.py", root / "other.py")
    (root / ".env").write_text("word\n")
    workspace.build()
    assert len(workspace.paths) == 2


# -- exemptions --------------------------------------------------------------------------------


def test_exempt_files_are_indexed_as_soon_as_and_as_long_as_they_are_named(
    workspace: Workspace,
) -> None:
    root = workspace.roots[0]
    name, contents = "config/secrets.yml", "tests/fixtures/key.txt"
    key = next(one for one in planted_secrets(5) if one.path.startswith("keys/0"))
    plant(root, [Plant(name, b"word\n", ""), Plant(contents, key.data, "")])
    plant(root, [Plant(".docker/web.conf", b"x\n", ""), Plant("other/secrets.yml", b"word\n", "")])
    exemptions, rules = root / ".draftlineindex", "config/secrets.yml\ntests/fixtures/\n/.docker/\n"
    exempt = {str(root / path) for path in (name, contents, ".docker/web.conf", ".draftlineindex")}
    workspace.build()
    assert workspace.paths == ordinary(workspace)
    exemptions.write_text("# no secrets\n" + rules)
    workspace.refresh()
    assert set(workspace.paths) == exempt | set(ordinary(workspace))
    workspace.update(root / name, "new\n", 1)
    assert str(root / name) in workspace.paths
    workspace.update(root / name, None)
    workspace.refresh([root / name, root / contents])
    assert set(workspace.paths) == exempt | set(ordinary(workspace))
    exemptions.unlink()
    workspace.refresh()
    assert workspace.paths == ordinary(workspace)


def test_changed_rules_judge_saved_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an update of Draftline that knows more secrets."""
    plants = [one for one in planted_secrets(6) if one.path.startswith("values/")]
    plant(tmp_path / "root", plants)
    monkeypatch.setattr(file_filter, "TIMESTAMP_GRANULARITY_NS", -1)
    with (
        monkeypatch.context() as patch,
        Workspace(tmp_path / "root", Bytes(), tmp_path / "home") as old,
    ):
        patch.setattr(secrets, "VERSION", secrets.VERSION + 1)
        patch.setattr(secrets, "find_secret", lambda data: None)
        old.build()
        old.compact()
        assert len(old.paths) == len(plants)
    with Workspace(tmp_path / "root", Bytes(), tmp_path / "home") as new:
        new.build()
        assert new.paths == []


# -- ordinary files ----------------------------------------------------------------------------


def library_files(count: int) -> list[Path]:
    """Files of the installed packages, drawn with a fixed seed."""
    suffixes = (".py", ".pyi", ".h", ".js", ".css", ".md", ".txt", ".json", ".yml", ".toml")
    found = sorted(
        f"{folder}/{name}"
        for folder, _, names in os.walk(sysconfig.get_path("purelib"))
        for name in names
        if name.endswith(suffixes)
    )
    drawn = map(Path, Random(0).sample(found, len(found)))
    small = (path for path in drawn if 0 < path.stat().st_size <= file_filter.MAX_FILE_BYTES)
    return list(islice(small, count))


@pytest.mark.parametrize("count", [ORDINARY_FILES, pytest.param(5000, marks=pytest.mark.full)])
def test_ordinary_files_of_packages_are_indexed(count: int) -> None:
    files = library_files(count)
    wrong = [
        path
        for path in files
        if secret_names.is_secret(str(path)) or secrets.find_secret(path.read_bytes())
    ]
    assert len(files) == count and len(wrong) <= MAX_WRONG * count, wrong
