"""Names that an import can bring: those that the other file has.

Where only one thing can be meant, it is offered without the model; and no answer of the model is
offered that imports what the other file does not have. Reads files: not for the event loop.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.editing.code_parts import undefined_names
from engine.editing.edits import BOM
from engine.editing.rename import WALKERS
from engine.editing.scopes.exports import ADDS_NAMES, Exports, Read, exports, lacks_module
from engine.editing.scopes.names import Unsure
from engine.editing.scopes.python_modules import STAR
from engine.editing.syntax import language_of, parse
from index.workspace import file_filter
from lsp_server.completion.indentation import line_after, line_before

MAX_NAMES = 100  # names that are listed
MAX_BROUGHT = 4  # names that are offered together
MAX_HEAD_CHARS = 2000  # characters of an import before the cursor
PYTHON_HEAD = re.compile(
    r"(?:^|[\n;])[ \t]*from[ \t]+(?P<module>[.\w]+)[ \t]+import"
    r"(?:[ \t]+(?P<plain>[\w \t,]*)|[ \t]*\((?P<listed>[\w\s,#.]*))$"
)
SCRIPT_HEAD = re.compile(
    r"\b(?:import|export|const|let|var)\s*(?:type\s+)?(?:[\w$]+\s*,\s*)?"
    r"\{(?P<listed>[\w$\s,:]*)$"
)
SCRIPT_TAIL = re.compile(
    r"(?P<listed>[\w$\s,:]*)\}\s*(?:from\s*|=\s*require\(\s*)(['\"])(?P<module>[^'\"\n]+)\2"
)
PYTHON_IMPORT = re.compile(
    r"^[ \t]*from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*"
    r"(?:\((?P<listed>[\w\s,#.]*)|(?P<plain>[\w \t,]+))",
    re.MULTILINE,
)
SCRIPT_IMPORT = re.compile(
    r"\b(?:import|export|const|let|var)\s*(?:type\s+)?(?:[\w$]+\s*,\s*)?\{(?P<listed>[\w$\s,:]*)\}"
    r"\s*(?:from\s*|=\s*require\(\s*)(['\"])(?P<module>[^'\"\n]+)\2"
)
COMMENT = re.compile(r"#.*")
SCRIPTS = frozenset({"javascript", "typescript", "tsx"})


@dataclass(frozen=True, slots=True)
class ImportPlace:
    """A cursor in an import's list of names."""

    start: int  # of the statement
    stop: int
    module: str  # as it is written
    listed: frozenset[str]  # names that the statement has
    typed: str  # the beginning of the name at the cursor


def import_place(path: str, text: str, offset: int) -> ImportPlace | None:
    """Find the import's list of names that the cursor is in; None if it is in none."""
    language, low = language_of(path), max(0, offset - MAX_HEAD_CHARS)
    before, after = text[low:offset], text[offset : offset + MAX_HEAD_CHARS]
    if re.match(r"[\w$]", after):
        return None  # the cursor is inside a name
    if language == "python" and (head := PYTHON_HEAD.search(before)):
        listed, module = head["listed"] or head["plain"] or "", head["module"]
        rest = re.match(r"[\w\s,#.]*" if head["listed"] is not None else r"[\w \t,]*", after)
        tail, stop = rest[0] if rest else "", offset + (rest.end() if rest else 0)
    elif language in SCRIPTS and (head := SCRIPT_HEAD.search(before)):
        found = SCRIPT_TAIL.match(after)
        if found is None:
            return None
        listed, module, tail, stop = head["listed"], found["module"], found["listed"], found.end()
        stop += offset
    else:
        return None
    *others, last = COMMENT.sub("", listed).split(",")
    typed = re.fullmatch(r"\s*(?:type\s+)?([\w$]*)", last)
    if typed is None:
        return None
    known = frozenset([*_names(",".join(others)), *_names(tail)])
    return ImportPlace(low + head.start(), stop, module, known, typed[1])


def importable(place: ImportPlace, found: Exports) -> list[str]:
    """Return the names that may stand at the cursor, those that the module defines first."""
    names = [each for each in found.names if each.startswith(place.typed)]
    is_private = place.typed.startswith("_")
    return [
        each
        for each in names
        if each not in place.listed and (is_private or not each.startswith("_"))
    ][:MAX_NAMES]


def certain(place: ImportPlace, names: list[str], path: str, text: str) -> str:
    """Return what is certainly meant at the cursor, without what is typed of it; "" if unclear.

    Those are the names that the file uses and does not define, or else the only one.
    """
    if place.typed in names:
        return ""
    used = _used(place, names, path, text)
    if place.typed:
        used = used if len(used) == 1 else names
        return used[0].removeprefix(place.typed) if len(used) == 1 else ""
    used = used or (names if len(names) == 1 else [])
    return ", ".join(used) if len(used) <= MAX_BROUGHT else ""


def missing(path: str, before: str, answer: str, after: str, read: Read) -> str:
    """Say which name or module an answer imports that does not exist; "" if there is none."""
    text = before + answer + after
    written = import_place(path, before + after, len(before))
    first = re.split(r"[)}\n]", answer)[0] if written else ""
    for name in _names(f"{written.typed if written else ''}{first}"):
        if written and name in written.listed:
            return f"{name} is imported already"
    place = import_place(path, text, len(before))
    start = place.start if place else len(before) - len(line_before(before))
    end = len(before + answer)
    stop = max(place.stop if place else 0, end + len(line_after(after)))
    language = language_of(path)
    if language != "python" and language not in SCRIPTS:
        return ""
    pattern = PYTHON_IMPORT if language == "python" else SCRIPT_IMPORT
    for found in pattern.finditer(text[start:stop]):
        module = found["module"]
        if start + found.end() <= len(before) or start + found.start() >= end:
            continue
        if lacks_module(path, module, read):
            return f"there is no {module}"
        known = exports(path, module, read)
        groups = found.groupdict()
        listed = groups["listed"] or groups.get("plain") or ""
        for name in _names(COMMENT.sub("", listed)) if known.is_complete else ():
            if name not in known.names and name != "default":
                return f"{module} has no {name}"
    return ""


def reader(opened: dict[str, str], folders: Sequence[Path]) -> Read:
    """Return what reads files: those that are open as they are there, others in some folders."""
    inside = [folder.resolve() for folder in folders]

    def read(path: str) -> str | None:
        if path in opened:
            return opened[path]
        with suppress(file_filter.Skipped, OSError):
            found = Path(path).resolve()
            if any(found.is_relative_to(folder) for folder in inside):
                return file_filter.read(path).removeprefix(BOM)
        return None

    return read


def _names(listed: str) -> Iterator[str]:
    """Yield the names of a list, without what they are called here."""
    for each in listed.split(","):
        words = re.findall(r"[\w$]+", each.strip().removeprefix("type "))
        if words:
            yield words[0]


def _used(place: ImportPlace, names: list[str], path: str, text: str) -> list[str]:
    """Return those of some names that a text uses without defining them, the import aside."""
    blank = re.sub(r"[^\r\n]", " ", text[place.start : place.stop])
    text = text[: place.start] + blank + text[place.stop :]
    tree = parse(path, text)
    wanted = {name for name in names if not hasattr(builtins, name)}
    words = {at.start(): at[0] for at in re.finditer(r"(?<![\w$.])[\w$]+", text) if at[0] in wanted}
    if tree is None or not words:
        return []
    walker = WALKERS[tree.language](tree)
    with suppress(Unsure):
        walker.read_words(words)
        unbound = {use.name for use, binding in walker.resolved if binding is None}
        return [name for name in names if name in unbound and name in words.values()]
    return []


def undefined(path: str, before: str, answer: str, after: str) -> str:
    """Say which function, class or constant an answer uses in Python that nothing defines.

    "" if there is none. `before` and `after` are the whole file. A name that is anywhere in it
    counts as defined, and so do modules of the standard library, whose import may follow.
    """
    text, start = before + answer + after, len(before)
    if language_of(path) != "python" or ADDS_NAMES.search(text) or STAR.search(text):
        return ""
    if (tree := parse(path, text)) is None:
        return ""
    known = {*re.findall(r"\w+", before), *re.findall(r"\w+", after), *sys.stdlib_module_names, "_"}
    for name in undefined_names(tree, (start, start + len(answer)), known):
        if name.lstrip("_")[:1].isupper() or re.search(rf"\b{name}\s*\(", answer):
            return f"nothing defines {name}"
    return ""
