"""The size of a model's download, to ask before it: nothing is fetched without consent."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import DEFAULT_MODEL, MODEL_VARIABLE, SMALL_MODEL, USUAL_MODEL
from engine.weights.cache import free_bytes
from engine.weights.catalogue.builtins import BUILTINS, LARGER, NEXT_EDITS
from engine.weights.model_list import Machine, larger, rows
from engine.weights.resolve import find, gguf, home, installed, path_of

GB = 1e9


@dataclass(frozen=True, slots=True)
class Download:
    """A model that is not on this machine yet."""

    model: str
    size: int  # bytes to fetch, and then on disk; 0: only the hub knows
    free: int  # bytes on the disk of the cache
    licence: str = ""
    speed: float = 0  # tokens a second without drafts, predicted; 0: not known

    @property
    def about(self) -> str:
        """The size, the licence and the speed that is expected, for a person."""
        size = f"{self.size / GB:.1f} GB" if self.size else "a size that only the hub knows"
        speed = f"about {self.speed:.0f} tokens/s" if self.speed else ""
        return ", ".join(filter(None, (size, self.licence, speed)))

    @property
    def described(self) -> str:
        """What `about` says and the free space, for a person."""
        return f"{self.about}; {self.room}"

    @property
    def room(self) -> str:
        """The free space, for a person."""
        return f"{self.free / GB:.0f} GB are free"


def download_of(name: str) -> Download | None:
    """Describe the download that a model needs; None if it is here.

    WeightsError for a name that no model can have.
    """
    if find(name) is not None or gguf(name) is not None or path_of(name) is not None:
        return None
    known = BUILTINS.get(name) or NEXT_EDITS.get(name) or LARGER.get(name)
    free = free_where_the_cache_is()
    return Download(name, known.size, free, known.licence) if known else Download(name, 0, free)


def usual_model() -> str:
    """Choose the model of whoever names none.

    It is the default one, or if that is not here, a larger one that was fetched in its place, or
    another of the usual ones.
    """
    default, *others = _usual_names()
    fetched = [model.name for model in installed() if model.name in LARGER] if others else []
    here = (name for name in (default, *fetched, *others) if download_of(name) is None)
    return next(here, DEFAULT_MODEL)


def downloads(name: str | None = None) -> list[Download]:
    """List what can be fetched for a model: nothing if it is here.

    Without a name, list the usual models, the default one first, and last the largest that this
    machine runs fast enough.
    """
    if name:
        return [found] if (found := download_of(name)) else []
    if download_of(usual_model()) is None:
        return []
    names, machine = _usual_names(), Machine.this(measured=True)
    free = free_where_the_cache_is()
    if len(names) > 1:  # the environment names none
        better = [row for row in larger(machine) if row.download_bytes <= free]
        names += [row.name for row in better[-1:]]
    speeds = {row.name: row.speed for row in [*rows(machine), *larger(machine)]}
    offers = [offer for one in names if (offer := download_of(one))]
    return [replace(offer, speed=speeds.get(offer.model, 0)) for offer in offers]


def _usual_names() -> list[str]:
    """List the default model, and the others that a person may prefer to it."""
    if os.environ.get(MODEL_VARIABLE):  # it names the one that is wanted
        return [DEFAULT_MODEL]
    return [*dict.fromkeys((DEFAULT_MODEL, USUAL_MODEL, SMALL_MODEL))]


def free_where_the_cache_is() -> int:
    """Return the free bytes on the disk of the cache folder, which may not exist yet."""
    folder: Path = home()
    while not folder.exists():
        folder = folder.parent
    return free_bytes(folder)
