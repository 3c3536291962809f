"""Nothing from which git runs commands is written, whatever its path looks like."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.command_files import HOOKS, why_not_git, why_not_startup
from engine.editing.text_file import FileError, replace_text


@pytest.fixture(autouse=True)
def own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Git's configuration of a user, without that of this machine."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(home / "user.conf"))
        patch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
        yield home / "user.conf"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "code.py").write_text("x = 1\n")
    return folder


def git(folder: Path, *command: str) -> None:
    subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)


def refused(path: Path, says: str) -> None:
    """It stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else "old"
    path.write_text(text)
    with pytest.raises(FileError, match=says) as error:
        replace_text(path, "new", text)
    assert path.read_text() == text
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


def written(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("old")
    replace_text(path, "new", "old")
    assert path.read_text() == "new"


# -- git's folders -----------------------------------------------------------------------------


def spelled(upper: list[bool], skipped: str, at: int, end: str) -> str:
    name = "".join(c.upper() if up else c for c, up in zip(".git", upper, strict=True))
    return name[:at] + skipped + name[at:] + end


AS_GIT = st.one_of(
    st.builds(
        spelled,
        st.lists(st.booleans(), min_size=4, max_size=4),
        st.sampled_from(["", "\u200c", "\ufeff", "\u202e\u200d"]),
        st.integers(0, 4),
        st.sampled_from(["", ".", " ", ". .", "::$INDEX_ALLOCATION"]),
    ),
    st.sampled_from(["git~1", "GIT~1"]),
)
FOLDERS = st.lists(st.sampled_from(["a", "b.git", "git", ".gitx", "..git", ".github"]), max_size=3)


@given(FOLDERS, AS_GIT, FOLDERS)
def test_every_way_to_write_its_name_is_known(
    before: list[str], name: str, after: list[str]
) -> None:
    assert "git's own folder" in why_not_git(Path("/nowhere", *before, name, *after, "config"))
    assert "git's own folder" in why_not_git(Path("/nowhere", *before, name))  # of a worktree
    assert why_not_git(Path("/nowhere", *before, *after, "config")) == ""


def test_its_folder_is_left_alone(repository: Path) -> None:
    refused(repository / ".git" / "config", "git's own folder")
    refused(repository / ".git" / "hooks" / "pre-commit", "git's own folder")
    refused(repository / ".git" / "modules" / "part" / "config", "git's own folder")
    written(repository / "code.py")
    for name in (".gitignore", ".gitattributes", ".gitmodules", ".github/workflows/ci.yml"):
        written(repository / name)


def test_links_lead_nowhere_else(repository: Path, tmp_path: Path) -> None:
    (repository / "link").symlink_to(".git/config")
    (repository / "folder").symlink_to(".git")
    refused(repository / "link", "git's own folder")
    refused(repository / "folder" / "config", "git's own folder")
    store = tmp_path / "store"
    (repository / ".git").rename(store)
    (repository / ".git").symlink_to(store)
    refused(repository / ".git" / "config", "git's own folder")
    refused(store / "config", "takes for a repository")


def test_a_repository_without_files_and_a_worktrees_part(tmp_path: Path, repository: Path) -> None:
    bare = tmp_path / "bare"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    refused(bare / "config", "takes for a repository")
    refused(bare / "hooks" / "update", "takes for a repository")
    git(
        repository,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "a",
        "--allow-empty",
    )
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    refused(tmp_path / "tree" / ".git", "git's own folder")
    written(tmp_path / "tree" / "code.py")
    git(repository, "worktree", "add", "-q", str(bare / "inner"))  # as some keep them
    written(bare / "inner" / "code.py")
    refused(bare / "config", "takes for a repository")


# -- hooks and configuration -------------------------------------------------------------------


@pytest.mark.parametrize("named", ["tools/hooks", "{repository}/tools/hooks", "tools/link"])
def test_the_folder_of_hooks(repository: Path, named: str) -> None:
    (repository / "tools" / "hooks").mkdir(parents=True)
    (repository / "tools" / "link").symlink_to("hooks")
    git(repository, "config", "core.hooksPath", named.format(repository=repository))
    refused(repository / "tools" / "hooks" / "pre-commit", "as a hook")
    refused(repository / "tools" / "hooks" / "parts" / "check.sh", "as a hook")
    written(repository / "tools" / "check.sh")


def test_hooks_of_the_users_own_configuration(
    repository: Path, tmp_path: Path, own_configuration: Path
) -> None:
    own_configuration.write_text(f"[core]\n\thooksPath = {tmp_path / 'mine'}\n")
    refused(tmp_path / "mine" / "pre-commit", "as a hook")  # in no repository
    refused(own_configuration, "reads its configuration")
    written(repository / "hooks" / "pre-commit")


def test_hooks_by_links(repository: Path) -> None:
    """As people keep hooks under version control without a setting."""
    script = repository / "scripts" / "before.sh"
    written(script)
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to("../../scripts/before.sh")
    refused(script, "as a hook")
    for file in [*hook.parent.iterdir()]:
        file.unlink()
    hook.parent.rmdir()
    hook.parent.symlink_to("../scripts")
    refused(repository / "scripts" / "other.sh", "as a hook")
    written(repository / "code.py")


def test_hooks_beside_the_code(repository: Path) -> None:
    """Only what is in that very folder may be a hook."""
    git(repository, "config", "core.hooksPath", ".")
    refused(repository / "pre-commit", "as a hook")
    written(repository / "package" / "code.py")


def test_hooks_of_a_repository_around(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(repository, "config", "core.hooksPath", "inner/hooks")
    refused(inner / "hooks" / "pre-commit", "as a hook")


def test_included_configuration(repository: Path) -> None:
    git(repository, "config", "include.path", "../shared.conf")
    (repository / "shared.conf").write_text("[core]\n\tbare = false\n")
    refused(repository / "shared.conf", "reads its configuration")


@pytest.mark.parametrize("setting", ["include.path", "includeIf.gitdir:/elsewhere/.path"])
@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[core]\n\tbare = false\n"])
def test_configuration_that_does_not_count_yet(
    repository: Path, setting: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another folder, or without a setting."""
    git(repository, "config", setting, "../shared.conf")
    (repository / "shared.conf").write_text(text)
    refused(repository / "shared.conf", "reads its configuration")
    git(repository, "config", setting, "~/shared.conf")
    written(repository / "shared.conf")
    monkeypatch.setenv("HOME", str(repository))
    refused(repository / "shared.conf", "reads its configuration")


def test_hard_links(repository: Path) -> None:
    """Writing replaces one name only, but an agent would read the file."""
    (repository / "copy").hardlink_to(repository / ".git" / "config")
    refused(repository / "copy", "a hard link")
    (repository / "one").write_text("a\n")
    (repository / "two").hardlink_to(repository / "one")
    written(repository / "two")


def test_without_git_its_folders_are_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    refused(repository / ".git" / "config", "git's own folder")
    written(repository / "code.py")


def test_the_repository_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which git itself refuses to work for this one."""
    git(repository, "config", "core.hooksPath", "hooks")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "status")
    refused(repository / "hooks" / "pre-commit", "as a hook")


def test_a_variable_that_names_another_repository_changes_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "config", "core.hooksPath", "hooks")
    monkeypatch.setenv("GIT_DIR", str(repository / "nowhere"))
    refused(repository / "hooks" / "pre-commit", "as a hook")


# -- what else runs commands -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        ".vscode/tasks.json", ".VSCode/settings.json", ".idea/workspace.xml", ".husky/pre-commit",
        ".devcontainer/devcontainer.json", ".claude/settings.json", ".envrc", "a/.bashrc",
        ".mcp.json", ".pre-commit-config.yaml", ".hg/hgrc", ".nvim.lua", ".dir-locals-2.el",
        "any name.code-workspace", ".helix/languages.toml", ".local.vimrc", ".lazy.lua",
        ".vs/tasks.vs.json", ".run/a.run.xml", ".roo/mcp.json", ".kiro/hooks/a", "opencode.json",
        ".aider.conf.yml", "mise.toml", ".mise.local.toml", ".config/mise/conf.d/a.toml",
        "mise/config.toml", "lefthook.yml", ".lefthook-local.toml", ".Rprofile", ".irbrc",
        ".tmux.conf", ".cshrc", ".login", ".inputrc", ".npmrc", ".yarnrc.yml", ".direnvrc",
    ],
)  # fmt: skip
def test_files_that_programs_run(name: str) -> None:
    for path in (Path(name), Path("package", name)):
        assert "programs run commands" in why_not_startup(path)


@given(FOLDERS, st.sampled_from([*HOOKS, "Pre-Commit", "update.exe"]))
def test_names_of_hooks(folders: list[str], name: str) -> None:
    assert "as a hook" in why_not_startup(Path(*folders, name))
    assert why_not_startup(Path(*folders, f"{name}.py")) == ""
    assert why_not_startup(Path(*folders, name, "code.py")) == ""


def test_the_names_are_those_that_git_knows() -> None:
    """As far as git brings samples of them."""
    template = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
    samples = Path(template.stdout.strip(), "../../share/git-core/templates/hooks").glob("*.sample")
    assert {sample.name.removesuffix(".sample") for sample in samples} <= HOOKS


@pytest.mark.parametrize(
    "name",
    [
        "vscode/a.py", ".github/a.yml", "Makefile", "a.vscode", "envrc", "promise.toml",
        "mise/a.py", ".tool-versions", "code-workspace", "lefthook.py",
    ],
)  # fmt: skip
def test_files_of_the_project(name: str) -> None:
    assert why_not_startup(Path(name)) == ""
