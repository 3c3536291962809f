"""The folders in which an agent may work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from engine.editing.command_files import GitFiles, repositories_in


class PathRefused(ValueError):
    """A path that no tool may use; the message is one line with the remedy."""


@dataclass(frozen=True)
class Roots:
    """Folders without links. A path must be in one of them, links followed."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, folders: Iterable[Path]) -> Roots:
        """Make the roots of folders that may be links, or not there."""
        return cls(tuple(dict.fromkeys(Path(os.path.realpath(folder)) for folder in folders)))

    def within(self, limits: Roots) -> Roots:
        """Intersect two sets of roots: keep a folder of one that is in a folder of the other."""
        both = [root for root in self.folders if limits.holds(root)]
        return Roots((*both, *(folder for folder in limits.folders if self.holds(folder))))

    def holds(self, path: Path) -> bool:
        """Check whether a path without links is in one of the folders."""
        return any(path.is_relative_to(folder) for folder in self.folders)

    def git_files(self) -> GitFiles:
        """Make the check for files from which git runs commands.

        It knows those around a file, and those of repositories directly in the roots.
        """
        return GitFiles(
            repository for folder in self.folders for repository in repositories_in(folder)
        )

    def resolve(self, path: str, git_files: GitFiles | None = None) -> Path:
        """Find the file that a client means: absolute, or relative to the first root.

        PathRefused if it is elsewhere, or is a link that leads elsewhere, if git runs commands from
        it, or if it is hidden in the home folder, unless a root is that deep. `git_files`: those of
        the roots, if several files are resolved.
        """
        if not self.folders:
            raise PathRefused(f"{path}: the client named no folder of this machine to work in")
        named = self.folders[0] / path
        target = Path(os.path.realpath(named))
        if not self.holds(target):
            where = ", ".join(map(str, self.folders))
            raise PathRefused(f"{path}: not in {where}: name a file in there")
        if why := (git_files or self.git_files()).why_not(named):
            raise PathRefused(f"{path}: {why}")
        if self._is_hidden_at_home(target):
            raise PathRefused(f"{path}: hidden in the home folder: change it yourself")
        return target

    def _is_hidden_at_home(self, target: Path) -> bool:
        home = home_folder()
        if home is None or not target.is_relative_to(home) or target == home:
            return False
        entry = home / target.relative_to(home).parts[0]
        roots = [root for root in self.folders if target.is_relative_to(root)]
        return entry.name.startswith(".") and not any(root.is_relative_to(entry) for root in roots)

    def relative(self, file: Path) -> Path:
        """Make a file of the roots relative to the root that it is in."""
        folder = next(root for root in self.folders if file.is_relative_to(root))
        return file.relative_to(folder)


def home_folder() -> Path | None:
    """Find the user's home folder, without links. None for a user who has none."""
    try:
        return Path(os.path.realpath(Path.home()))
    except RuntimeError:
        return None


def folders_of(uris: Sequence[str]) -> list[Path]:
    """Convert `file:` URIs of this machine to folders, and leave out other URIs.

    PathRefused if no folder can have such a name.
    """
    found = []
    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            folder = url2pathname(parts.path)
            if "\0" in folder:
                why = "has a NUL: name a folder of this machine as a root"
                raise PathRefused(f"the client's root {uri}: {why}")
            found.append(Path(folder))
    return found
