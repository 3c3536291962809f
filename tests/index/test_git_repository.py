"""Which files are indexed in repositories, worktrees and submodules that real git made."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from index.workspace import git_repository, ignore_rules
from index.workspace.git_repository import repository_at
from tests.index.test_file_filter import listed, make, why_skipped

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user without settings."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return home


def git(folder: Path, *arguments: str) -> str:
    settings = ["user.name=n", "user.email=a@b", "protocol.file.allow=always"]
    options = [part for setting in settings for part in ("-c", setting)]
    command = ["git", *options, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def new_repository(folder: Path, tree: dict[str, str]) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    make(folder, tree)
    git(folder, "add", "--force", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "start")
    return folder


def paths(folder: Path) -> list[str]:
    """What is indexed, without the files of git's."""
    return [path for path in listed(folder)[0] if ".git" not in path]


def visible(folder: Path) -> list[str]:
    """What git sees of the files."""
    options = ("--cached", "--others", "--exclude-standard", "-z")
    found = git(folder, "ls-files", *options).split("\0")[:-1]
    return sorted(path for path in found if ".git" not in path)


def test_a_linked_worktree_has_the_excludes_of_its_repository(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {"a.py": ""})
    git(main, "worktree", "add", "-q", "../other")
    make(main, {".git/info/exclude": "notes.py\n"})
    for folder in (main, tmp_path / "other"):
        make(folder, {"notes.py": "", "sub/notes.py": "", "sub/b.py": ""})
        assert paths(folder) == visible(folder) == ["a.py", "sub/b.py"]
        assert paths(folder / "sub") == ["b.py"]


def test_a_worktree_in_a_repository_is_not_indexed_twice(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {"a.py": "", "sub/b.py": ""})
    git(main, "worktree", "add", "-q", "trees/other")
    assert paths(main) == ["a.py", "sub/b.py"]
    assert listed(main)[1]["trees/other"] == "another worktree of the repository"
    assert why_skipped(main, "trees/other/a.py") == "another worktree of the repository"
    assert paths(main / "trees/other") == ["a.py", "sub/b.py"]


def test_worktrees_of_a_bare_repository_are_indexed(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {"a.py": ""})
    project = tmp_path / "project"
    project.mkdir()
    git(tmp_path, "clone", "-q", "--bare", str(main), str(project / ".bare"))
    (project / ".git").write_text("gitdir: ./.bare\n")
    git(project, "worktree", "add", "-q", "one")
    assert "one/a.py" in paths(project)
    make(project / "one", {"two/.git": (project / "one" / ".git").read_text(), "two/a.py": ""})
    assert "one/two/a.py" not in paths(project)


@pytest.mark.parametrize("rule", ["*.gen.py", "vendor/", "/vendor/lib", "lib/", "*"])
def test_what_a_submodule_tracks_is_not_hidden_by_the_repository_around_it(
    tmp_path: Path, rule: str
) -> None:
    inner = new_repository(
        tmp_path / "inner", {"a.gen.py": "", "b.py": "", "sub/c.log": "", ".gitignore": "*.log\n"}
    )
    outer = new_repository(tmp_path / "outer", {"o.py": "", "vendor/own.gen.py": ""})
    git(outer, "submodule", "add", "-q", str(inner), "vendor/lib")
    git(outer, "commit", "-q", "-m", "submodule")
    make(outer, {".gitignore": f"{rule}\n", ".git/modules/vendor/lib/info/exclude": "b.py\n"})
    in_submodule = [path for path in paths(outer) if path.startswith("vendor/lib/")]
    assert in_submodule == ["vendor/lib/a.gen.py"]
    assert paths(outer / "vendor/lib") == ["a.gen.py"]
    hidden = why_skipped(outer, "vendor/own.gen.py")
    assert hidden == (None if "lib" in rule else "ignored by .gitignore")
    shutil.rmtree(outer / "vendor/lib")
    make(outer, {"vendor/lib/a.gen.py": ""})  # no repository any more
    assert why_skipped(outer, "vendor/lib/a.gen.py") == "ignored by .gitignore"


def test_a_repository_in_another_has_rules_of_its_own(tmp_path: Path) -> None:
    outer = new_repository(tmp_path / "outer", {"o.py": ""})
    inner = new_repository(outer / "inner", {"a.py": "", "a.log": ""})
    make(outer, {".gitignore": "*.py\n", ".git/info/exclude": "*.md\n", "o.md": ""})
    make(inner, {".git/info/exclude": "*.log\n", "b.md": ""})
    new_repository(outer / "ignored.py", {"b.txt": ""})
    make(outer, {"no-repository/.git/config": "", "no-repository/a.py": ""})
    assert paths(outer) == ["inner/a.py", "inner/b.md"]


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\texcludesFile = ~/mine\n",
        '[Core] excludesfile = "~/mi\\\nne" # ours\n',
        '[core "sub"]\nexcludesFile = ~/no\n[core]\nbare\nexcludesFile = ~/mine;\n',
    ],
)
def test_the_excludes_of_the_user_count(tmp_path: Path, user: Path, setting: str) -> None:
    main = new_repository(tmp_path / "main", {"a.py": ""})
    make(main, {"b.own": "", "c.default": "", "keep.own": "", ".gitignore": "!keep.own\n"})
    make(user, {".config/git/ignore": "*.default\n"})
    assert paths(main) == visible(main) == ["a.py", "b.own", "keep.own"]
    (user / "mine").symlink_to("real")
    make(user, {".gitconfig": setting, "real": "*.own\n"})
    if "bare" in setting:  # which has no working tree for git
        make(user, {".gitconfig": setting.replace("bare\n", "")})
    assert paths(main) == visible(main) == ["a.py", "c.default", "keep.own"]
    git(main, "config", "core.excludesFile", "")
    assert paths(main) == visible(main) == ["a.py", "b.own", "c.default", "keep.own"]
    make(tmp_path, {"plain/a.own": "", "plain/b.default": ""})
    assert paths(tmp_path / "plain") == ["a.own", "b.default"]


def test_case_counts_as_the_repository_says(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {})
    make(
        main, {".gitignore": "*.LOG\n/Sub/x\n", "a.log": "", "b.LOG": "", "sub/X": "", "sub/y": ""}
    )
    for value in ("false", "true", "false"):
        git(main, "config", "core.ignoreCase", value)
        assert paths(main) == visible(main)
    assert "a.log" in paths(main)


def test_settings_of_one_worktree_count(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {})
    git(main, "worktree", "add", "-q", "../other")
    git(main, "config", "extensions.worktreeConfig", "true")
    git(tmp_path / "other", "config", "--worktree", "core.excludesFile", "own")
    make(tmp_path / "other", {"own": "*.log\n", "a.log": ""})
    assert paths(tmp_path / "other") == visible(tmp_path / "other") == ["own"]
    make(main, {"own": "*.log\n", "a.log": ""})
    assert paths(main) == visible(main) == ["a.log", "own"]


@pytest.mark.parametrize(
    "link", ["", "gitdir:", "gitdir: ", "gitdir: /missing", "gitdir: \0", "gitdir: a\0b", "x" * 999]
)
def test_a_damaged_link_to_a_repository_changes_no_rules(tmp_path: Path, link: str) -> None:
    main = new_repository(tmp_path / "main", {".gitignore": "*.log\n", "sub/a.py": ""})
    make(main, {"sub/.git": link, "sub/b.log": ""})
    assert paths(main) == ["sub/a.py"]
    assert "a.py" in paths(main / "sub")


def test_special_files_of_git_are_not_opened(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {"a.py": ""})
    for name in ("config", "info/exclude", "commondir"):
        (main / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(main / ".git" / name)
    os.mkfifo(main / ".gitmodules")
    os.mkfifo(main / ".gitignore")
    assert paths(main) == ["a.py"]


def test_a_file_of_rules_that_is_too_large_is_named(tmp_path: Path) -> None:
    """And nothing that it may name is indexed."""
    main = new_repository(tmp_path / "main", {"a.py": "", "sub/b.py": ""})
    large = "#" * git_repository.MAX_BYTES
    make(main, {"sub/.gitignore": large})
    assert paths(main) == ["a.py", "sub/b.py"]
    make(main, {"sub/.gitignore": large + "#", "sub/deep/c.py": ""})
    reason = "over 1 MiB; make it smaller"
    expected = f"{ignore_rules.UNUSABLE}: {main}/sub/.gitignore: {reason}"
    assert paths(main) == ["a.py"]
    assert listed(main)[1]["sub"] == why_skipped(main, "sub/deep/c.py") == expected
    for name in (
        ".gitignore",
        ".gitmodules",
        ".git/config",
        ".git/info/exclude",
        ".draftlineindex",
    ):
        other = new_repository(tmp_path / name.replace("/", "-"), {"a.py": ""})
        make(other, {name: large + "#"})
        expected = f"{ignore_rules.UNUSABLE}: {other}/{name}: {reason}"
        assert listed(other) == ([], {".": expected})
        assert why_skipped(other, "a.py") == expected


def test_too_many_patterns_are_named(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {"a.py": "", "sub/sub/b.py": ""})
    make(main, {".gitignore": "*x?\n" * 4000, "sub/.gitignore": "*y?\n" * 3000})
    assert paths(main) == ["a.py", "sub/sub/b.py"]
    make(main, {"sub/sub/.gitignore": "*z?\n" * 3000})
    assert listed(main)[1]["sub/sub"].endswith("/sub/sub has too many patterns; use fewer")
    make(main, {".gitignore": "*x?\n" * 9000})
    reason = "too many wildcards, or lines with and without ! by turns; simplify it"
    assert listed(main)[1]["."] == f"{ignore_rules.UNUSABLE}: {main}/.gitignore: {reason}"


def test_settings_are_read_as_git_reads_them(tmp_path: Path) -> None:
    main = new_repository(tmp_path / "main", {})
    text = (
        '[submodule "a b"]\n\tpath = "x y"/z ; no\n[submodule.c]\npath=\\"q\n'
        '[submodule "d"] path = e\\\n f\n'
    )
    make(main, {".gitmodules": text})
    command = ("config", "-f", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
    expected = {entry.partition("\n")[2] for entry in git(main, *command).split("\0")[:-1]}
    repository = repository_at(str(main))
    assert repository is not None
    assert repository.submodules == {os.path.normpath(main / path) for path in expected}
    assert len(expected) == 3
