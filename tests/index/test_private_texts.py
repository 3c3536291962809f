"""Texts that are not indexed although somebody has them open, and files that are not opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from index.workspace import file_filter
from index.workspace.workspace import Workspace
from tests.support.encoders import Bytes


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Neither links nor pipes, which nobody may ever write, nor devices, which may not end."""
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "link.py").symlink_to("a.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert file_filter.read(tmp_path / "a.py") == "a = 1\n"
    for path in (
        *(str(tmp_path / name) for name in ("link.py", "pipe.py", ".", "none", "a\0b")),
        "/dev/zero",
        "/dev/null",
    ):
        with pytest.raises(file_filter.Skipped):
            file_filter.read(path)


@pytest.mark.parametrize("name", ["a\0b", "a\0b/c", "\ud800", "\ud800/c"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    """They are judged as any other."""
    with Workspace(tmp_path, Bytes()) as workspace:
        workspace.build()
        assert workspace.why_private(f"{tmp_path}/{name}", "a = 1\n") is None
        assert workspace.why_private(f"{tmp_path}/{name}.env", "") == file_filter.SECRET
        assert file_filter.why_secret(f"{tmp_path}/{name}.env", "") == file_filter.SECRET


def test_links_in_the_folder_are_searched(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("unmistakable = 1\n")
    (tmp_path / "link.py").symlink_to("a.py")
    with Workspace(tmp_path, Bytes()) as workspace:
        workspace.build()
        found = {Path(span.path).name for span in workspace.find("unmistakable")}
    assert found == {"a.py", "link.py"}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.py", "a = 1\n", None),
        ("new/b.py", "a = 1\n", None),
        ("ignored.py", "a = 1\n", "ignored by .gitignore"),
        ("ignored/b.py", "a = 1\n", "ignored by .gitignore"),
        ("node_modules/b.js", "a = 1\n", "a node_modules folder"),
        (".git/COMMIT_EDITMSG", "words\n", "a .git folder"),
        (".env", "", "may hold secrets"),
        (".aws/config", "", "may hold secrets"),
        ("exempt.env", "", None),
    ],
)
def test_open_texts(tmp_path: Path, name: str, text: str, why: str | None) -> None:
    """An open text is indexed unless its file would not be, which need not exist."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("ignored*\n")
    (tmp_path / ".draftlineindex").write_text("exempt.env\n")
    path = str(tmp_path / name)
    with Workspace(tmp_path, Bytes()) as workspace:
        workspace.build()
        assert workspace.why_private(path, text) == why
        workspace.update(path, text + "more\n", 1)
        assert workspace.has(path) == (why is None)
        workspace.update(path, None)
        assert not workspace.has(path)
    with Workspace(tmp_path, Bytes(), gitignore=False) as workspace:
        workspace.build()
        is_secret = why == "may hold secrets"
        assert workspace.why_private(path, text) == (why if is_secret else None)
