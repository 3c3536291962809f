"""Check an edited sample: it does what the instruction says, and nothing else.

Code is compared as tokens, so that line breaks and kinds of quotes do not count. Comments may come
anywhere, and go only from what may differ. Where a program decides (Python), it runs after the
edited file. Elsewhere fragments of code do: `…` in a fragment stands for any code up to the end of
the block it is in, and `$x` for any one word, the same each time.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from bench.assist.score import errors, passes, without_blocks
from bench.assist.tokens import (
    COMMENT,
    INDENT,
    LINE,
    SCANNERS,
    language_of,
    tokens,
)

ANY, NAME = "…", "NAME_"  # of fragments: any code, and what `$` becomes
Fragment = str | list[str]  # several: one of them


@dataclass(frozen=True)
class EditCheck:
    """What decides whether an edit of a file is right."""

    path: str
    before: str  # the whole file
    within: tuple[str, ...]  # parts of first lines of the blocks that may differ
    needs: tuple[Fragment, ...] = ()  # each must be in the new file
    lacks: tuple[str, ...] = ()  # none may be in it
    only_adds: bool = False  # all code of the old file is still there, in its order
    program: str = ""  # Python that raises if the file before it is wrong

    def accepts(self, after: str) -> bool:
        """Return whether the file's new text is right."""
        if errors(self.path, after) > errors(self.path, self.before):
            return False
        if self._outside(after) != self._outside(self.before):
            return False
        if self._comments(without_blocks(self.before, self.within)) - self._comments(after):
            return False
        if any(self.has(after, fragment) for fragment in self.lacks):
            return False
        if self.only_adds and not _is_part(self._words(self.before), self._words(after)):
            return False
        return all(
            any(self.has(after, one) for one in ([each] if isinstance(each, str) else each))
            for each in self.needs
        ) and (not self.program or passes(f"{after}\n{self.program}"))

    def has(self, text: str, fragment: str) -> bool:
        """Return whether code is in a text."""
        pattern = r"(?<!\S)"
        named = set[str]()
        for one in self._words(re.sub(r"\$(\w+)", rf"{NAME}\1", fragment)):
            if one == ANY:
                pattern += r"(?:[^}]*? )?"
            elif one.startswith(NAME):
                pattern += f"(?P={one}) " if one in named else rf"(?P<{one}>\w+) "
                named.add(one)
            else:
                pattern += re.escape(one).replace(ANY, ".*?") + " "
        return re.search(pattern, " ".join(self._words(text)) + " ") is not None

    def _words(self, text: str) -> list[str]:
        found = tokens(language_of(self.path), self._without_comments(text))
        return [one.text for one in found if one.kind not in (LINE, INDENT)]

    def _outside(self, text: str) -> list[str]:
        """Return the tokens outside the blocks that may differ."""
        rest = without_blocks(self._without_comments(text), self.within)
        return [one.text for one in tokens(language_of(self.path), rest)]

    def _comments(self, text: str) -> Counter[str]:
        found = SCANNERS[language_of(self.path)].finditer(f"\n{text}\n")
        return Counter(" ".join(one[0].split()) for one in found if one.lastgroup == COMMENT)

    def _without_comments(self, text: str) -> str:
        scanner = SCANNERS[language_of(self.path)]
        return scanner.sub(lambda found: "" if found.lastgroup == COMMENT else found[0], text)


def _is_part(few: list[str], many: list[str]) -> bool:
    """Return whether words are among others, in their order."""
    rest = iter(many)
    return all(word in rest for word in few)
