"""Files from which git, an editor or a shell runs commands without being asked to.

Whoever makes a program write such a file makes it run a command later. What is git's is never
written: its folders, and its configuration and hooks wherever they are. An agent's tools, whose
edits nobody reads first, leave those of editors, shells and agents alone as well.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GIT_SECONDS = 10.0  # seconds for an answer of git, which takes milliseconds
# How file systems of other systems write `.git`, too: HFS+ skips these characters, and NTFS the
# dots, blanks and stream at the end, and has a short name.
SKIPPED_CHARACTERS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
GIT_NAME = re.compile(r"(\.git|git~1)[. ]*(:.*)?", re.IGNORECASE | re.DOTALL)
INCLUDES = re.compile(r"include(if\..*)?\.path", re.DOTALL)  # settings that name a file
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR")  # variables that name a repository

# fmt: off
STARTUP_FOLDERS = frozenset({
    # version control
    ".githooks", ".hg", ".husky", ".jj",
    # editors
    ".devcontainer", ".emacs.d", ".fleet", ".helix", ".idea", ".nlsp-settings", ".run", ".theia",
    ".vim", ".vs", ".vscode", ".zed",
    # agents
    ".amazonq", ".claude", ".cline", ".codex", ".continue", ".cursor", ".gemini", ".junie", ".kiro",
    ".opencode", ".qwen", ".roo", ".trae", ".windsurf",
    # shells
    ".mise",
})
STARTUP_FILES = frozenset({
    # version control
    ".gitconfig", ".hgrc", ".overcommit.yml", ".pre-commit-config.yaml",
    # editors
    ".devcontainer.json", ".dir-locals-2.el", ".dir-locals.el", ".emacs", ".exrc", ".gvimrc",
    ".lazy.lua", ".local.vimrc", ".lvimrc", ".neoconf.json", ".nvim.lua", ".nvimrc", ".vimrc",
    ".vimrc.local",
    # agents
    ".aider.conf.yml", ".crush.json", ".mcp.json", "crush.json", "opencode.json", "opencode.jsonc",
    # shells and terminals
    ".autoenv.zsh", ".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc",
    ".cshrc", ".direnvrc", ".envrc", ".inputrc", ".kshrc", ".login", ".logout", ".mkshrc",
    ".profile", ".screenrc", ".tcshrc", ".tmux.conf", ".xinitrc", ".xprofile", ".xsession",
    ".xsessionrc", ".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc",
    # interpreters, debuggers and package managers
    ".gdbinit", ".irbrc", ".lldbinit", ".npmrc", ".pdbrc", ".pryrc", ".rprofile", ".yarnrc",
    ".yarnrc.yml",
})
STARTUP_PATHS = re.compile(  # names that vary, and files whose folder counts
    r"(.*/)?("
    r"[^/]+\.(code-workspace|sublime-project)"
    r"|\.?lefthook(-local)?\.(json|toml|ya?ml)"
    r"|\.?mise(\.[^/]+)?\.toml|mise/config(\.[^/]+)?\.toml|\.config/mise/.*"
    r")", re.DOTALL
)
HOOKS = frozenset({  # githooks(5)
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "p4-changelist", "p4-post-changelist",
    "p4-pre-submit", "p4-prepare-changelist", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update",
    "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
    "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout",
    "reference-transaction", "sendemail-validate", "update",
})
# fmt: on


class GitFiles:
    """The files from which git runs commands.

    Each repository names them when it is first looked at.
    """

    def __init__(self, repositories: Iterable[Path] = ()) -> None:
        """Take the repositories to look at; nothing is asked of git yet.

        `repositories`: others than those around a file whose settings may name it.
        """
        self._others = [*repositories]
        self._known: dict[Path, _Commands] = {}

    def why_not(self, path: Path) -> str:
        """Say why a file must not be written, or be read by an agent, as git runs commands from it.

        Returns "" if git does not. Where git is not installed, only what is in its folders is
        known.
        """
        target = Path(os.path.realpath(path))
        if any(_is_git_name(part) for part in (*path.absolute().parts, *target.parts)):
            return "in git's own folder: change it with git"
        if _is_in_git_folder(target):
            return "in a folder that git takes for a repository: change it with git"
        for repository in dict.fromkeys((*_repositories(target), *self._others)):
            if repository not in self._known:
                self._known[repository] = _Commands.of(repository)
            if why := self._known[repository].why_not(target):
                return why
        return ""


@dataclass(frozen=True)
class _Commands:
    """The files from which git runs commands in a repository, or outside of any."""

    configuration: frozenset[Path]
    hooks_folder: Path | None  # None if all below the one for hooks is no hook
    hooks: frozenset[Path]
    identities: frozenset[tuple[int, int]]  # device and inode of each of these files

    @classmethod
    def of(cls, repository: Path) -> _Commands:
        """Ask git for these files in a folder."""
        configuration, (folder, hooks) = _configuration(repository), _hooks(repository)
        identities = frozenset(_identities(configuration | hooks))
        return cls(configuration, folder, hooks, identities)

    def why_not(self, file: Path) -> str:
        """Say why a file without links must be left alone; "" if it need not be."""
        if file in self.configuration:
            return "git reads its configuration from it: change it with git"
        folder = self.hooks_folder
        if file in self.hooks or (folder is not None and file.is_relative_to(folder)):
            return "git runs it as a hook: change it yourself"
        if not self.identities.isdisjoint(_identities([file])):
            return "a hard link to a file of git's: change it with git"
        return ""


def why_not_git(path: Path) -> str:
    """Say why a file must not be written, as `GitFiles.why_not` does."""
    return GitFiles().why_not(path)


def repositories_in(folder: Path) -> list[Path]:
    """Find the folders directly in a folder that have a repository."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [Path(path) for path in found if os.path.lexists(f"{path}/.git")]


def why_not_startup(path: Path) -> str:
    """Say why an agent's tool must not write a file.

    Editors, shells or agents run commands from it, or git may by its name; "" if not. `path`:
    relative to the folder where the agent works, and without links, as some agents keep whole
    projects in a folder such as `.claude`.
    """
    *folders, name = (part.lower() for part in path.parts)
    if (
        name in STARTUP_FILES
        or not STARTUP_FOLDERS.isdisjoint(folders)
        or STARTUP_PATHS.fullmatch("/".join([*folders, name]))
    ):
        return "programs run commands from it: change it yourself"
    if name.removesuffix(".exe") in HOOKS:  # a setting of any repository may name its folder
        return "git may run it as a hook: change it yourself"
    return ""


def _is_git_name(name: str) -> bool:
    return GIT_NAME.fullmatch(SKIPPED_CHARACTERS.sub("", name)) is not None


def _is_in_git_folder(file: Path) -> bool:
    """Return whether git takes a folder around a file for a repository without files.

    The search ends at the top of a worktree, which may be in such a folder.
    """
    for folder in file.parents:
        if os.path.lexists(folder / ".git"):
            return False
        if _is_git_folder(folder):
            return True
    return False


def _is_git_folder(folder: Path) -> bool:
    """Return whether git takes a folder for a bare repository, or for a worktree's git folder."""
    if not (folder / "HEAD").is_file():
        return False
    whole = (folder / "objects").is_dir() and (folder / "refs").is_dir()
    return whole or (folder / "commondir").is_file()


def _repositories(file: Path) -> list[Path]:
    """Find the folders around a file that have a repository.

    If there is none, the nearest folder stands for it, where the user's own configuration counts.
    """
    found = [folder for folder in file.parents if os.path.lexists(folder / ".git")]
    return found or [file.parent]


def _configuration(repository: Path) -> frozenset[Path]:
    """Find the files of git's configuration in a repository, and those that they include.

    Files without a setting count, and so do those included in other folders only, but not what
    these include in turn.
    """
    listed = _git(repository, "config", "--list", "--show-origin", "-z").split("\0")
    files = []
    for origin, setting in zip(listed[::2], listed[1::2], strict=False):
        if origin.startswith("file:"):
            file = repository / origin.removeprefix("file:")
            files.append(file)
            name, _, value = setting.partition("\n")
            if INCLUDES.fullmatch(name) and value:
                files.append(file.parent / os.path.expanduser(value))  # noqa: PTH111, of any user
    return frozenset(Path(os.path.realpath(file)) for file in files)


def _hooks(repository: Path) -> tuple[Path | None, frozenset[Path]]:
    """Return the folder of which all is hooks, or None, and the files of hooks.

    The files are what the entries of the folder for hooks are or lead to.
    """
    named = _git(repository, "rev-parse", "--git-path", "hooks") or _git(
        repository, "config", "--type=path", "core.hooksPath"
    )
    if not named:
        return None, frozenset()
    folder = Path(os.path.realpath(repository / named.removesuffix("\n")))
    try:
        hooks = frozenset(Path(os.path.realpath(entry)) for entry in folder.iterdir())
    except OSError:  # there is no such folder
        hooks = frozenset()
    # If the repository is in that folder, only the folder's own files are hooks.
    return None if repository.is_relative_to(folder) else folder, hooks


def _identities(files: Iterable[Path]) -> set[tuple[int, int]]:
    """Return the device and inode of those of these files that have several names."""
    found = set()
    for file in files:
        with suppress(OSError):  # it is gone
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                found.add((status.st_dev, status.st_ino))
    return found


def _git(folder: Path, *command: str) -> str:
    """Run git in a folder and return what it prints; "" if it fails or is not installed."""
    # Other users' repositories too, whose owners run git there: nothing of them is run here.
    whole = ["git", "-c", "safe.directory=*", "-C", str(folder), *command]
    environment = {name: text for name, text in os.environ.items() if name not in ELSEWHERE}
    try:
        ended = subprocess.run(
            whole,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(ended.stdout) if ended.returncode == 0 else ""
