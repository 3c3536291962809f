"""The text of an answer that arrives in parts: up to a stop string, or inside a code fence."""

from __future__ import annotations

import re

OPENING = re.compile(r"(?:^|\n)(`{3,})[^`\n]*\n")


class Stops:
    """Text that is released until a stop string. What may be the start of one is held back."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.stop = tuple(text for text in stop if text)
        self.text = ""  # released so far
        self.matched: str | None = None
        self._held = ""

    def push(self, text: str) -> str:
        """Add text, and return the text that is now final."""
        if self.matched is not None:
            return ""
        whole = self._held + text
        found = [(whole.index(one) + len(one), -len(one), one) for one in self.stop if one in whole]
        if found:  # the first that is complete, of these the longest
            end, _, self.matched = min(found)
            at, self._held = end - len(self.matched), ""
            return self._release(whole[:at])
        held = max((_overlap(whole, one) for one in self.stop), default=0)
        self._held = whole[len(whole) - held :]
        return self._release(whole[: len(whole) - held])

    def finish(self, text: str = "") -> str:
        """Return the rest, at the end of the answer."""
        shown = self.push(text)
        held, self._held = self._held, ""
        return shown + self._release(held)

    def _release(self, text: str) -> str:
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """Measure the longest end of `text` that begins `stop` and is not all of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class Fence:
    """The code in an answer's first code block; the whole answer if it has none."""

    def __init__(self) -> None:
        self._inside: Stops | None = None
        self._before = ""

    @property
    def matched(self) -> str | None:
        """The end of the code, once it was read."""
        return self._inside.matched if self._inside else None

    def push(self, text: str) -> str:
        """Add text, and return the code that is now final."""
        if self._inside is None:
            self._before += text
            opening = OPENING.search(self._before)
            if opening is None:
                return ""
            self._inside = Stops((f"\n{opening[1]}",))
            text = self._before[opening.end() :]
        return self._inside.push(text)

    def finish(self) -> str:
        """Return the rest, at the end of the answer."""
        if self._inside is not None:
            return self._inside.finish()
        return self._before.strip("\n")
