"""WeightsError, the error of this package, its one line, and the type of progress callbacks."""

from __future__ import annotations

import errno
from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # label, bytes done, bytes in all


OFFLINE = "if this machine is offline: `draftline models add PATH` takes a file from anywhere"
MAX_MESSAGE_CHARS = 1000
MAX_SHOWN_CHARS = 60  # characters of a value that a file holds


class WeightsError(RuntimeError):
    """A model that is not available. The message is one line with the problem and a remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(message: str) -> str:
    """Write a message on one line of bounded length.

    Names come from files that are not trusted, so anything unprintable (line ends, terminal
    escapes) is written as its code.
    """
    if len(message) > MAX_MESSAGE_CHARS:
        message = f"{message[: MAX_MESSAGE_CHARS // 2]}...{message[-MAX_MESSAGE_CHARS // 2 :]}"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)


def shown(value: object) -> str:
    """Write a value of a file as it appears in an error: its `repr`, cut short."""
    if isinstance(value, dict | list | tuple):
        return f"a list of {len(value)}" if not isinstance(value, dict) else "an object"
    text = repr(value[: MAX_SHOWN_CHARS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= MAX_SHOWN_CHARS + 2 else f"{text[:MAX_SHOWN_CHARS]}..."


def disk_error(error: OSError, what: str) -> WeightsError:
    """Turn an OSError of writing or reading into the one line that a user gets."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WeightsError(f"{what}: the disk is full; free some space or move DRAFTLINE_HOME")
    reason = error.strerror or str(error)
    return WeightsError(
        f"{what}: {error.filename or 'disk'}: {reason}; check its permissions, or move the cache "
        "by DRAFTLINE_HOME"
    )
