"""Scripts of components: the `<script>` elements of Vue's and Svelte's files, read as code."""

from __future__ import annotations

import re
from pathlib import PurePath

from engine.editing.syntax import Tree, parse

COMPONENTS = (".vue", ".svelte")
SCRIPT = re.compile(
    r"<script\b(?P<attributes>(?:[^<>\"']++|\"[^\"]{0,300}+\"|'[^']{0,300}+'){0,100}+)>"
    r"(?P<code>.*?)(?:</script\b|\Z)",
    re.I | re.S,
)
LANGUAGE = re.compile(r"\blang\s*=\s*[\"']?(\w+)", re.I)
NOT_CODE = re.compile(r"\btype\s*=\s*[\"']?(?!module\b|(?:text|application)/(?:java|type)script\b)")
MAX_SCRIPTS = 20  # scripts of a file that is read
SUFFIXES = {"ts": ".ts", "typescript": ".ts", "tsx": ".tsx", "js": ".js", "jsx": ".jsx"}


def is_component(path: str) -> bool:
    """Return whether a file is of markup with scripts."""
    return PurePath(path).suffix.lower() in COMPONENTS


def parse_scripts(path: str, text: str) -> Tree | None:
    """Parse a file; of a component its scripts, each at its place.

    Returns None as `parse` does, and for a component without scripts, or with several languages.
    """
    if not is_component(path):
        return parse(path, text)
    found = [each for each in SCRIPT.finditer(text) if not NOT_CODE.search(each["attributes"])]
    if not 0 < len(found) <= MAX_SCRIPTS:
        return None
    named = [LANGUAGE.search(each["attributes"]) for each in found]
    languages = {each[1].lower() for each in named if each} or {"js"}
    suffix = SUFFIXES.get(languages.pop()) if len(languages) == 1 else None
    return parse(f"a{suffix}", text, [each.span("code") for each in found]) if suffix else None
