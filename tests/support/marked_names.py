"""Texts in which what a rename changes is marked: `x@`; the rest of the text stays as it is."""

from __future__ import annotations

from engine.editing.dialogue import by_rule
from engine.records import Request


def edit(text: str, instruction: str, path: str) -> str | None:
    """The text after an edit by rule; None if it is left to the model."""
    made = by_rule(Request("edit", text, path, instruction=instruction))
    return made.text if made else None


def assert_marked_are_renamed(marked: str, path: str) -> None:
    """The first marked name is selected; the rule renames all that are marked, and nothing else.
    Where the bare instruction is not clear, one with the kind of the name is."""
    text, start = marked.replace("@", ""), marked.index("x@")
    for kind in ("", "variable ", "parameter ", "type ", "function "):
        instruction = f"Rename the {kind}x to zz"
        made = by_rule(
            Request("edit", text, path, selection=(start, start + 1), instruction=instruction)
        )
        if made:
            assert made.text == marked.replace("x@", "zz")
            return
    raise AssertionError("left to the model")
