"""Plug-ins: what installed packages add to Draftline under a name, as Python's entry points.

Only the entry points of what was asked for are looked up, and only the one that was named is
imported. A plug-in that fails is a PluginError, one line that names its package; whoever lists
plug-ins reports it and goes on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
NAME = re.compile(r"[a-z0-9][a-z0-9+._-]*")  # of a plug-in: what can be typed as one word


class PluginError(ValueError):
    """A plug-in that cannot be used: one line that names its package and the remedy."""


@cache
def offers(group: str) -> dict[str, list[EntryPoint]]:
    """Find the entry points of a group, by name; packages may offer the same name."""
    from importlib.metadata import entry_points  # slow to import

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def load(group: str, name: str, use: Callable[[object], T]) -> T:
    """Import the plug-in of a name, and return what `use` makes of it.

    Raises PluginError for whatever goes wrong in that.
    """
    points, packages = offers(group)[name], _packages(group, name)
    if not NAME.fullmatch(name):
        why = f"{group} {name!r}: not a name: letters a to z, digits and +._- make one"
        raise PluginError(f"{packages}: {why}")
    if len(points) > 1:
        why = f"{group} {name!r} is offered more than once"
        raise PluginError(f"{packages}: {why}: uninstall one of the packages")
    try:
        return use(points[0].load())
    except (Exception, SystemExit) as error:  # it is other people's code: anything can happen
        file = getattr(sys.modules.get(points[0].module), "__file__", None)
        why = " ".join(f"{type(error).__name__}: {error}{f', in {file}' if file else ''}".split())
        raise PluginError(
            f"{packages}: {group} {name!r} cannot be used ({why}): update or uninstall the package"
        ) from error


def shadowed(group: str, name: str) -> PluginError:
    """Make the error of a plug-in under a name that Draftline itself uses."""
    why = f"{group} {name!r} is not used: Draftline has its own"
    return PluginError(f"{_packages(group, name)}: {why}: update or uninstall the package")


def _packages(group: str, name: str) -> str:
    """List the packages that offer a name."""
    points = offers(group)[name]
    return ", ".join(sorted({point.dist.name if point.dist else point.module for point in points}))
