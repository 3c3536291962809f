"""Detection of new code that leaves its block before the code that follows in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

LEAVES = frozenset(
    f"{what}_{kind}"
    for what in ("return", "raise", "throw", "break", "continue")
    for kind in ("statement", "expression")
)
BLOCKS = frozenset((
    "block", "statement_block", "compound_statement", "statement_list", "module", "program",
    "source_file", "constructor_body", "switch_case", "switch_default", "case_statement",
    "switch_block_statement_group", "expression_case", "default_case", "communication_case",
))  # fmt: skip
# What may follow: no code, or code that is reached in another way.
HARMLESS = frozenset((
    "comment", "line_comment", "block_comment", "function_declaration", "labeled_statement",
    "generator_function_declaration", "empty_statement", "attribute_item",
))  # fmt: skip


def hides_code_below(tree: Tree, start: int, stop: int) -> bool:
    """Return whether a statement between two code points leaves its block before other code.

    The other code is a statement of the same block that begins at `stop` or after it.
    """
    todo = [tree.root]
    while todo:
        node = todo.pop()
        first, last = tree.span(node)
        if first >= stop or last <= start:
            continue
        if node.type in LEAVES and start <= first and _is_followed(tree, node, stop):
            return True
        todo += node.children
    return False


def _is_followed(tree: Tree, node: Node, stop: int) -> bool:
    """Return whether a statement of the same block begins at a code point or after it."""
    while node.parent is not None and node.parent.type == "expression_statement":
        node = node.parent
    if node.parent is None or node.parent.type not in BLOCKS:
        return False
    after = node.next_named_sibling
    while after is not None:
        hidden = after.type not in HARMLESS and not after.type.endswith("_item")
        if hidden and tree.offset(after.start_byte) >= stop:
            return True
        after = after.next_named_sibling
    return False
