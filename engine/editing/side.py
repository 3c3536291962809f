"""The two sides that checks of an edit compare, and the failures that they find."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from engine.editing.code_parts import (
    Body,
    Definition,
    Kind,
    Span,
    Token,
    bodies,
    definitions,
    imported_names,
    tokens,
)
from engine.editing.instruction import Addition, words
from engine.editing.scopes.names import Unsure
from engine.editing.scopes.python_renames import PythonRenames
from engine.editing.script_parts import is_component, parse_scripts
from engine.editing.signatures import Signature, find_signatures

CODE: tuple[Kind, ...] = ("code", "string", "import", "annotation")  # kinds of tokens
MAX_QUOTED_CHARS = 40
MAX_NAMED = 3  # names or quotations in one message


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that an edit fails: `warning` for the user, `hint` for the model; one line each."""

    kind: str
    warning: str
    hint: str


class Side:
    """The edited part, a span, of the old or the new text of a file.

    Without a grammar it has no tokens and no definitions, so that checks of them pass.
    """

    def __init__(self, path: str, text: str, span: Span) -> None:
        self.suffix = PurePath(path).suffix.lower()
        self.text, self.span = text, span
        self.part = text[slice(*span)]
        self.outside = text[: span[0]] + "\n" + text[span[1] :]
        self.tree = parse_scripts(path, text)
        self.is_all_code = not is_component(path)  # else its tree is of scripts alone

    @cached_property
    def tokens(self) -> list[Token]:
        return tokens(self.tree, self.span) if self.tree else []

    @cached_property
    def definitions(self) -> list[Definition]:
        """The definitions of the part."""
        return definitions(self.tree, self.span) if self.tree else []

    @cached_property
    def bodies(self) -> dict[str, Body]:
        """The code of the part's definitions by name, without definitions that share a name."""
        return bodies(self.tree, self.span) if self.tree else {}

    @cached_property
    def imported(self) -> dict[str, str]:
        """The names that the part imports -> what they stand for."""
        return imported_names(self.tree, self.span) if self.tree else {}

    @cached_property
    def names_of_python(self) -> PythonRenames | None:
        """What the names of a Python file refer to; None where that is not understood."""
        if not self.tree or self.tree.language != "python" or self.tree.errors:
            return None
        names = PythonRenames(self.tree)
        try:
            names.read()
        except Unsure:
            return None
        return None if names.unsure else names

    @cached_property
    def signatures(self) -> dict[tuple[str, str], Signature]:
        """The signatures of the file by class and name, without those that share these."""
        found: dict[tuple[str, str], list[Signature]] = {}
        for each in find_signatures(self.tree, 0, len(self.text)) if self.tree else ():
            found.setdefault((each.owner[0] if each.owner else "", each.name), []).append(each)
        return {key: every[0] for key, every in found.items() if len(every) == 1}

    @cached_property
    def names(self) -> set[str]:
        """The words of the part's code; without a grammar for all of it, all of its words."""
        is_code = self.tree and self.is_all_code
        return words(" ".join(self.of_kind(*CODE)) if is_code else self.part)

    def of_kind(self, *kinds: Kind) -> list[str]:
        """Return the texts of the part's tokens of some kinds."""
        return [token.text for token in self.tokens if token.kind in kinds]


def kinds_of(addition: Addition) -> tuple[Kind, ...]:
    """Return the kinds of tokens that may differ where only this is asked for."""
    if addition == "annotation":
        return ("annotation", "import")
    return ("comment", "docstring")


def quoted(text: str) -> str:
    """Quote a text for a message: in one line, cut where it is long."""
    line = " ".join(text.split())
    return f"“{line if len(line) <= MAX_QUOTED_CHARS else line[:MAX_QUOTED_CHARS] + '…'}”"


def listed(names: list[str]) -> str:
    """List names for a message."""
    shown = ", ".join(f"`{name}`" for name in names[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown} and {len(names) - MAX_NAMED} more"
