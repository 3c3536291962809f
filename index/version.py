"""The version of this Draftline, by git's tags, and the commit that it was built from."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

NOT_INSTALLED = "0"  # the version of a source tree


def own_version() -> str:
    """Return the version of this installation; NOT_INSTALLED of a source tree."""
    try:
        return version("draftline")
    except PackageNotFoundError:
        return NOT_INSTALLED


def own_commit() -> str:
    """Return the commit that this was built from, abbreviated; "" if it was built without git."""
    try:
        from index._build import COMMIT
    except ModuleNotFoundError:  # run from a source tree
        return ""
    return COMMIT


def version_and_commit() -> str:
    """Both for people: `0.1.0 (commit 0123456789ab)`."""
    commit = own_commit()
    return f"{own_version()} (commit {commit})" if commit else own_version()
