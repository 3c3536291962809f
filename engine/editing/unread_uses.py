"""Uses of a name in files that are not read as code.

These are components, notebooks, templates, settings, and examples in documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from engine.editing.syntax import language_of

OTHER_LANGUAGES = frozenset({"c", "cpp", "go", "java", "rust"})  # languages without renames
PROSE = frozenset({".md", ".markdown", ".rst", ".adoc", ".txt"})  # only code in these is a use
ONLY_OF = {  # ending -> the one family of languages whose code is in such files
    **dict.fromkeys((".vue", ".svelte", ".astro", ".mdx"), "javascript"),
    **dict.fromkeys((".pyx", ".pxd", ".pxi"), "python"),
}
FENCE = re.compile(r"[\s>*+-]*(`{3,}|~{3,})")
EXAMPLE = re.compile(r"\s*(?:>>>|\.\.\.)|\t| {4}")  # a doctest, or an indented block


def written(name: str) -> str:
    """Return the pattern of a whole name in any text, also after an escape: JSON's "\\n"."""
    return rf"(?:(?<![\w$])|(?<=\\[nrt])){re.escape(name)}(?![\w$])"


def may_use(path: str, text: str, name: str, family: str) -> bool:
    """Return whether a file that is not read as code may use a name of a family of languages."""
    suffix = PurePath(path).suffix.lower()
    if language_of(path) in OTHER_LANGUAGES or ONLY_OF.get(suffix, family) != family:
        return False
    code = _examples(text) if suffix in PROSE else [text]
    return any(re.search(written(name), each) for each in code)


def _examples(text: str) -> Iterator[str]:
    """Yield the lines of a documentation's examples."""
    fence = ""
    for line in text.splitlines():
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        elif fence or EXAMPLE.match(line):
            yield line
