"""WeightsError, the error of this package, and the type of progress callbacks."""

from __future__ import annotations

import errno
from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # label, bytes done, bytes in all


class WeightsError(RuntimeError):
    """A model that is not available. The message is one line with the problem and a remedy."""


def disk_error(error: OSError, what: str) -> WeightsError:
    """An OSError of writing or reading as the one line a user gets."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WeightsError(f"{what}: the disk is full; free some space or move DRAFTLINE_HOME")
    reason = error.strerror or str(error)
    return WeightsError(
        f"{what}: {error.filename or 'disk'}: {reason}; check its permissions, or move the cache "
        "by DRAFTLINE_HOME"
    )
