"""The folders in which an agent may work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


class OutsideRoots(ValueError):
    """A path that is in none of the roots; the message is one line with the remedy."""


@dataclass(frozen=True)
class Roots:
    """Folders without links. A path must be in one of them, links followed."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, folders: Iterable[Path]) -> Roots:
        """The roots of folders that may be links, or not there."""
        return cls(tuple(dict.fromkeys(Path(os.path.realpath(folder)) for folder in folders)))

    def within(self, limits: Roots) -> Roots:
        """What is in both: a folder of one that is in a folder of the other."""
        both = [one for one in self.folders if limits.holds(one)]
        return Roots((*both, *(one for one in limits.folders if self.holds(one))))

    def holds(self, path: Path) -> bool:
        """Whether a path without links is in one of the folders."""
        return any(path.is_relative_to(folder) for folder in self.folders)

    def resolve(self, path: str) -> Path:
        """The file that a client means: absolute, or relative to the first root. OutsideRoots if
        it is elsewhere, or is a link that leads elsewhere."""
        if not self.folders:
            raise OutsideRoots(f"{path}: the client named no folder of this machine to work in")
        named = self.folders[0] / path
        target = Path(os.path.realpath(named))
        if not self.holds(target):
            where = ", ".join(map(str, self.folders))
            raise OutsideRoots(f"{path}: not in {where}: name a file in there")
        return target

    def relative(self, file: Path) -> Path:
        """A file of the roots, relative to the one that it is in."""
        folder = next(one for one in self.folders if file.is_relative_to(one))
        return file.relative_to(folder)


def folders_of(uris: Sequence[str]) -> list[Path]:
    """The folders of `file:` URIs of this machine; others are left out."""
    found = []
    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            found.append(Path(url2pathname(parts.path)))
    return found
