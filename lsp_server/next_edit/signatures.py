"""Function signatures, and whether a call fits one.

Arguments are matched by count and by Python's keywords, not by type. A call that unpacks an
argument is assumed to fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from lsp_server.next_edit.source_text import Item, SourceText

TYPE_FIRST_SUFFIXES = frozenset({".c", ".h", ".cc", ".cpp", ".hpp", ".java", ".cs"})
IDENTIFIER = r"((?:[^\W\d]|\$)[\w$]*)"
KEYWORD_HEAD = re.compile(
    rf"\b(?:def|function\*?|func|fn|fun)\s+(?:\([^()]*\)\s*)?{IDENTIFIER}\s*"
    r"(?:<[^<>()]*>|\[[^\[\]()]*\])?\s*(?=\()"
)
ARROW_HEAD = re.compile(
    rf"\b(?:const|let|var)\s+{IDENTIFIER}\s*(?::[^=\n]+)?=\s*(?:async\s*)?(?=\()"
)
BRACE_HEAD = re.compile(
    rf"^[ \t]*(?:[\w$:<>\[\],.*&~?]+[ \t]+)*[*&]*{IDENTIFIER}\s*(?=\()", re.MULTILINE
)
BODY_AFTER_HEAD = re.compile(
    r"(?:\s*\b(?:const|noexcept|override)\b)*\s*(?:throws\s[\w., ]+|:[^;{}=\n]+)?\{"
)
STATEMENT_HEAD = re.compile(
    r"\s*(?:\}\s*)?(?:if|for|while|switch|catch|else|return|new|await|throw|do)\b"
)
HAS_DEFAULT = re.compile(r"(?<![=!<>])=(?![=>])")
KEYWORD_ARGUMENT = re.compile(rf"{IDENTIFIER}\s*=(?!=)")


@dataclass(frozen=True, slots=True)
class Signature:
    """The head of a function, from its name on.

    `self` and its like are not parameters here.
    """

    name: str
    text: str  # "name(a, b)" as written, on one line
    name_at: int  # code points
    open_at: int  # where the brackets open
    close_at: int
    positional: tuple[str, ...]
    required: frozenset[str]
    keyword_only: frozenset[str] = frozenset()
    variadic: bool = False
    variadic_keywords: bool = False


class CallSite(NamedTuple):
    """A call in a source text."""

    arguments: list[Item]
    open_at: int  # code points, where the brackets open
    close_at: int


def find_signatures(source: SourceText, start: int, stop: int) -> list[Signature]:
    """Find the complete signatures that begin in `text[start:stop]`, in order."""
    found = {}
    patterns = [KEYWORD_HEAD, ARROW_HEAD] + ([] if source.is_python else [BRACE_HEAD])
    for pattern in patterns:
        for match in pattern.finditer(source.text, start, stop):
            at, opened = match.start(1), match.end()
            inside = source.bracket_items(opened)
            if inside is None or at in found or source.in_string_or_comment(at):
                continue
            items, closed = inside
            if pattern is BRACE_HEAD and (
                STATEMENT_HEAD.match(match[0]) or not BODY_AFTER_HEAD.match(source.text, closed + 1)
            ):
                continue
            rest_of_line = source.text[closed : source.line_span(closed)[1]]
            if pattern is ARROW_HEAD and "=>" not in rest_of_line:
                continue
            found[at] = _signature(source, match[1], at, opened, closed, items)
    return [found[at] for at in sorted(found)]


def _signature(
    source: SourceText, name: str, at: int, opened: int, closed: int, items: list[Item]
) -> Signature:
    names: list[str] = []
    keyword_only, required = set(), set()
    variadic = variadic_keywords = False
    for text in _parameters([item.text for item in items]):
        if source.is_python and text.startswith("**"):
            variadic_keywords = True
        elif source.is_python and text.startswith("*"):
            variadic = variadic or text != "*"
            names.append("*")  # what follows is keyword-only
        elif "..." in text:
            variadic = True
        elif text not in ("/", "void"):
            one = _name(source, text, len(names))
            names.append(one)
            if not (HAS_DEFAULT.search(text) or re.match(r"[\w$]+\?", text)):
                required.add(one)
    if "*" in names:
        keyword_only = set(names[names.index("*") + 1 :])
        names = names[: names.index("*")]
    written = " ".join(f"{name}({', '.join(item.text for item in items)})".split())
    return Signature(
        name, written, at, opened, closed, tuple(names), frozenset(required),
        frozenset(keyword_only), variadic, variadic_keywords,
    )  # fmt: skip


def _parameters(items: list[str]) -> list[str]:
    """Find the parameters among comma-separated items.

    Commas inside "<...>" do not separate, and a leading `self` or `cls` is dropped.
    """
    found: list[str] = []
    for text in items:
        bare = found[-1].replace("=>", "").replace("->", "") if found else ""
        if bare.count("<") > bare.count(">"):
            found[-1] += f", {text}"
        else:
            found.append(text)
    own = re.compile(r"(?:&\s*)?(?:'\w+\s+)?(?:mut\s+)?(?:self|cls)(?:\s*:.*)?")
    return found[1:] if found and own.fullmatch(found[0]) else found


def _name(source: SourceText, text: str, position: int) -> str:
    """Return a Python parameter's name.

    In other languages it is the position, as calls have no keywords there.
    """
    found = re.match(IDENTIFIER, text) if source.is_python else None
    return found[1] if found else str(position)


def is_definition(source: SourceText, at: int) -> bool:
    """Return whether the name at `at` is being defined as a function or class, rather than used."""
    start, stop = source.line_span(at)
    if re.search(r"\b(?:def|function\*?|func|fn|fun|class)\s+(?:\([^()]*\)\s*)?$",
                 source.text[start:at]):  # fmt: skip
        return True
    return any(signature.name_at == at for signature in find_signatures(source, start, stop))


def find_call(source: SourceText, at: int, name: str) -> CallSite | None:
    """Find the call whose name is at `at`; None if that is not a call."""
    opened = re.compile(r"\s*\(").match(source.text, at + len(name))
    if not opened:
        return None
    inside = source.bracket_items(opened.end() - 1)
    return CallSite(inside[0], opened.end() - 1, inside[1]) if inside else None


def call_fits(source: SourceText, signature: Signature, arguments: list[Item]) -> bool:
    """Return whether a call with these arguments fits the signature."""
    texts = [item.text for item in arguments]
    if any(text.startswith(("*", "...")) or text.endswith("...") for text in texts):
        return True
    keyed = [KEYWORD_ARGUMENT.match(text) for text in texts] if source.is_python else []
    named = {match[1] for match in keyed if match}
    count = len(texts) - len(named)
    if count > len(signature.positional) and not signature.variadic:
        return False
    known = {*signature.positional[count:], *signature.keyword_only}
    if not (named <= known or signature.variadic_keywords):
        return False
    return signature.required <= {*signature.positional[:count], *named}


def missing_parameters(uri: str, signature: str, other: str) -> list[str]:
    """Find the parameters that one signature, such as "f(a, b)", has and another does not."""
    ours, theirs = (
        [_parameter(uri, item.text) for item in inside[0]] if inside else []
        for inside in (
            SourceText(uri, text).bracket_items(text.index("(")) for text in (signature, other)
        )
    )
    return [name for name in ours if name and name not in theirs]


def _parameter(uri: str, text: str) -> str:
    found = re.findall(IDENTIFIER, re.split(r"[=:]", text, maxsplit=1)[0])
    typed_first = PurePosixPath(uri).suffix.lower() in TYPE_FIRST_SUFFIXES
    return found[-1 if typed_first else 0] if found else ""
