"""Files from which git, an editor or a shell runs commands without being asked to.

Whoever makes a program write such a file makes it run a command later. What is git's is never
written: its folders, and its configuration and hooks wherever they are. An agent's tools, whose
edits nobody reads first, leave those of editors, shells and agents alone as well.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

GIT_SECONDS = 10.0  # for an answer of git, which takes milliseconds
# How file systems of other systems write `.git`, too: HFS+ skips these characters, and NTFS the
# dots, blanks and stream at the end, and has a short name.
SKIPPED_CHARACTERS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
GIT_NAME = re.compile(r"(\.git|git~1)[. ]*(:.*)?", re.IGNORECASE | re.DOTALL)
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


def why_not_git(path: Path) -> str:
    """Why a file must not be written, or be read by an agent, as git runs commands from it; "" if
    git does not. Where git is not installed, only what is in its folders is known."""
    target = Path(os.path.realpath(path))
    if any(_is_git_name(part) for part in (*path.absolute().parts, *target.parts)):
        return "in git's own folder: change it with git"
    if _is_in_git_folder(target):
        return "in a folder that git takes for a repository: change it with git"
    for repository in _repositories(target):
        if target in _configuration(repository):
            return "git reads its configuration from it: change it with git"
        if _is_hook(target, repository):
            return "git runs it as a hook: change it yourself"
    return ""


def why_not_startup(path: Path) -> str:
    """Why an agent's tool must not write a file, as editors, shells or agents run commands from it,
    or git may by its name; "" if not. `path`: relative to the folder where the agent works, and
    without links, as some agents keep whole projects in a folder such as `.claude`."""
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
    """Whether git takes a folder around a file for a repository without files. Not beyond the top
    of a worktree, which may be in such a folder."""
    for folder in file.parents:
        if os.path.lexists(folder / ".git"):
            return False
        if _is_git_folder(folder):
            return True
    return False


def _is_git_folder(folder: Path) -> bool:
    """Whether git takes a folder for a repository without files, or for a worktree's part of it."""
    if not (folder / "HEAD").is_file():
        return False
    whole = (folder / "objects").is_dir() and (folder / "refs").is_dir()
    return whole or (folder / "commondir").is_file()


def _repositories(file: Path) -> list[Path]:
    """The folders around a file that have a repository; the nearest folder if there is none, for
    which the user's own configuration counts."""
    found = [folder for folder in file.parents if os.path.lexists(folder / ".git")]
    return found or [file.parent]


def _configuration(repository: Path) -> set[Path]:
    """The files of git's configuration there, those that others include as well."""
    listed = _git(repository, "config", "--list", "--show-origin", "--name-only", "-z").split("\0")
    files = [origin.removeprefix("file:") for origin in listed if origin.startswith("file:")]
    return {Path(os.path.realpath(repository / file)) for file in files}


def _is_hook(file: Path, repository: Path) -> bool:
    """Whether a file is in the folder of hooks, or one of them is a link to it."""
    named = _git(repository, "rev-parse", "--git-path", "hooks") or _git(
        repository, "config", "--type=path", "core.hooksPath"
    )
    if not named:
        return False
    folder = Path(os.path.realpath(repository / named.removesuffix("\n")))
    if file.is_relative_to(folder) and not repository.is_relative_to(folder):
        return True
    try:  # if the repository is in that folder, only its own files are hooks
        return any(Path(os.path.realpath(each)) == file for each in folder.iterdir())
    except OSError:  # there is no such folder
        return False


def _git(folder: Path, *command: str) -> str:
    """What git prints in a folder; "" if it fails or is not installed."""
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
