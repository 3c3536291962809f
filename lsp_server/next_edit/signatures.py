"""Heads of functions and calls of them: which parameters, and does a call fit?

By counting, and by Python's keywords; no types. A call that unpacks something is taken to fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from lsp_server.next_edit.source_text import Part, Source

TYPE_FIRST = frozenset({".c", ".h", ".cc", ".cpp", ".hpp", ".java", ".cs"})
WORD = r"((?:[^\W\d]|\$)[\w$]*)"
KEYED = re.compile(
    rf"\b(?:def|function\*?|func|fn|fun)\s+(?:\([^()]*\)\s*)?{WORD}\s*"
    r"(?:<[^<>()]*>|\[[^\[\]()]*\])?\s*(?=\()"
)
ARROW = re.compile(rf"\b(?:const|let|var)\s+{WORD}\s*(?::[^=\n]+)?=\s*(?:async\s*)?(?=\()")
BRACED = re.compile(rf"^[ \t]*(?:[\w$:<>\[\],.*&~?]+[ \t]+)*[*&]*{WORD}\s*(?=\()", re.MULTILINE)
BODY = re.compile(r"(?:\s*\b(?:const|noexcept|override)\b)*\s*(?:throws\s[\w., ]+|:[^;{}=\n]+)?\{")
NO_HEAD = re.compile(r"\s*(?:\}\s*)?(?:if|for|while|switch|catch|else|return|new|await|throw|do)\b")
DEFAULT = re.compile(r"(?<![=!<>])=(?![=>])")
KEYWORD = re.compile(rf"{WORD}\s*=(?!=)")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a function, from its name on. A method's own object is no parameter here."""

    name: str
    text: str  # "name(a, b)" as written, on one line
    at: int  # of the name
    opened: int
    closed: int
    names: tuple[str, ...]  # by position
    required: frozenset[str]
    keywords: frozenset[str] = frozenset()  # by name only
    rest: bool = False
    any_keyword: bool = False


def heads(source: Source, start: int, stop: int) -> list[Head]:
    """The heads of functions that begin in `text[start:stop]`, complete ones, in order."""
    found = {}
    for pattern in (KEYED, ARROW) if source.python else (KEYED, ARROW, BRACED):
        for match in pattern.finditer(source.text, start, stop):
            at, opened = match.start(1), match.end()
            inside = source.parts(opened)
            if inside is None or at in found or source.is_quiet(at):
                continue
            parts, closed = inside
            if pattern is BRACED and (
                NO_HEAD.match(match[0]) or not BODY.match(source.text, closed + 1)
            ):
                continue
            if pattern is ARROW and "=>" not in source.text[closed : source.line(closed)[1]]:
                continue
            found[at] = _head(source, match[1], at, opened, closed, parts)
    return [found[at] for at in sorted(found)]


def _head(source: Source, name: str, at: int, opened: int, closed: int, parts: list[Part]) -> Head:
    names: list[str] = []
    keywords, required = set(), set()
    rest = any_keyword = False
    for text in _parameters([part.text for part in parts]):
        if source.python and text.startswith("**"):
            any_keyword = True
        elif source.python and text.startswith("*"):
            rest = rest or text != "*"
            names.append("*")  # those that follow go by name only
        elif "..." in text:
            rest = True
        elif text not in ("/", "void"):
            one = _name(source, text, len(names))
            names.append(one)
            if not (DEFAULT.search(text) or re.match(r"[\w$]+\?", text)):
                required.add(one)
    if "*" in names:
        keywords = set(names[names.index("*") + 1 :])
        names = names[: names.index("*")]
    written = f"{name}({', '.join(part.text for part in parts)})"
    written = " ".join(written.split())
    return Head(
        name, written, at, opened, closed, tuple(names), frozenset(required), frozenset(keywords),
        rest, any_keyword,
    )  # fmt: skip


def _parameters(parts: list[str]) -> list[str]:
    """A comma between "<" and ">" parts no parameters; a method's own object is none."""
    found: list[str] = []
    for text in parts:
        bare = found[-1].replace("=>", "").replace("->", "") if found else ""
        if bare.count("<") > bare.count(">"):
            found[-1] += f", {text}"
        else:
            found.append(text)
    own = re.compile(r"(?:&\s*)?(?:'\w+\s+)?(?:mut\s+)?(?:self|cls)(?:\s*:.*)?")
    return found[1:] if found and own.fullmatch(found[0]) else found


def _name(source: Source, text: str, position: int) -> str:
    """A parameter's name where keywords need it, else any name of its own."""
    found = re.match(WORD, text) if source.python else None
    return found[1] if found else str(position)


def is_head(source: Source, at: int) -> bool:
    """Whether the name there is a function's or class's own, not a use of it."""
    start, stop = source.line(at)
    if re.search(r"\b(?:def|function\*?|func|fn|fun|class)\s+(?:\([^()]*\)\s*)?$",
                 source.text[start:at]):  # fmt: skip
        return True
    return any(head.at == at for head in heads(source, start, stop))


def arguments(source: Source, at: int, name: str) -> tuple[list[Part], int, int] | None:
    """(arguments, open bracket, closing one) of the call whose name is there; None: no call."""
    opened = re.compile(r"\s*\(").match(source.text, at + len(name))
    if not opened:
        return None
    inside = source.parts(opened.end() - 1)
    return (inside[0], opened.end() - 1, inside[1]) if inside else None


def fits(source: Source, head: Head, given: list[Part]) -> bool:
    """Whether a call with these arguments suits the head."""
    texts = [part.text for part in given]
    if any(text.startswith(("*", "...")) or text.endswith("...") for text in texts):
        return True
    keyed = [KEYWORD.match(text) for text in texts] if source.python else []
    named = {match[1] for match in keyed if match}
    count = len(texts) - len(named)
    if count > len(head.names) and not head.rest:
        return False
    known = {*head.names[count:], *head.keywords}
    if not (named <= known or head.any_keyword):
        return False
    return head.required <= {*head.names[:count], *named}


def gone_parameters(uri: str, head: str, other: str) -> list[str]:
    """The names of the parameters that one head, such as "f(a, b)", has and another has not."""
    ours, theirs = (
        [_parameter(uri, part.text) for part in inside[0]] if inside else []
        for inside in (Source(uri, text).parts(text.index("(")) for text in (head, other))
    )
    return [name for name in ours if name and name not in theirs]


def _parameter(uri: str, text: str) -> str:
    found = re.findall(WORD, re.split(r"[=:]", text, maxsplit=1)[0])
    typed_first = PurePosixPath(uri).suffix.lower() in TYPE_FIRST
    return found[-1 if typed_first else 0] if found else ""
