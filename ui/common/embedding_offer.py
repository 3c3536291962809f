"""The offer of the optional embedding model.

It is made once at a terminal, and on the page until it is dismissed there.
"""

from __future__ import annotations

from contextlib import suppress

from engine.weights import home
from index.cache_folder import make_cache_folder

COMMAND = "pip install 'draftline[embed]'"
SIZE = "32 MB"
TERMINAL, PAGE = "embedding-offered", "embedding-dismissed"  # files of the cache folder


def is_open(place: str) -> bool:
    """Check whether the offer may still be made at TERMINAL or on PAGE."""
    return not (home() / place).exists()


def close(place: str) -> None:
    """Make no further offer there. Where that cannot be stored, it is made again."""
    with suppress(OSError):
        make_cache_folder(home())
        (home() / place).touch()
