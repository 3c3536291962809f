"""The arguments of a call for a changed signature, where no model is needed to tell them."""

from __future__ import annotations

from contextlib import suppress

from engine.editing.rename import WALKERS
from engine.editing.scopes.names import Unsure
from engine.editing.scopes.outline import OutlineNames
from engine.editing.signatures import CallSite, Signature, call_fits, missing_parameters
from lsp_server.next_edit.source_text import SourceText

KEYWORD = "keyword_argument"  # the type of a node


def with_new_arguments(
    source: SourceText, span: tuple[int, int], calls: list[CallSite], old: Signature, new: Signature
) -> str:
    """Write all calls in a part of the text for the new signature; "" if one is not certain.

    Arguments are dropped, renamed and put in their new order with their parameters. A new parameter
    is given the variable of its name that is there.
    """
    pieces, at = [], span[0]
    for call in calls:
        if not span[0] <= call.name_at < span[1]:
            continue
        inside = source.text[call.open_at + 1 : call.close_at]
        arguments = None if "\n" in inside else _arguments(source, call, old, new)
        if call.name_at < at or arguments is None:
            return ""
        pieces += [source.text[at : call.open_at + 1], ", ".join(arguments)]
        at = call.close_at
    return "".join((*pieces, source.text[at : span[1]]))


def _arguments(
    source: SourceText, call: CallSite, old: Signature, new: Signature
) -> list[str] | None:
    """Return a call's arguments for the new signature; None if they are not certain."""
    if call_fits(new, call):
        return [item.text for item in call.arguments]
    if not call_fits(old, call) or old.variadic or new.variadic:
        return None
    if any(item.text.startswith(("*", "...")) for item in call.arguments):
        return None
    given: dict[str, tuple[str, bool]] = {}  # parameter -> its argument, and whether by keyword
    for number, item in enumerate(call.arguments):
        if item.node.type == KEYWORD:
            name, _, value = item.text.partition("=")
            given[name.strip()] = value.strip(), True
        else:
            given[old.parameters[number]] = item.text, False
    for was, now in _renamed(old, new):
        if was in given:
            given[now] = given.pop(was)
    if any(name not in (*new.parameters, *old.parameters) for name in given):
        return None
    made: list[str] = []
    by_keyword = False
    for number, name in enumerate(new.parameters):
        known = new.positional[number] if number < len(new.positional) else name
        if name not in given and known not in new.required:
            by_keyword = True
            continue
        if name not in given and not _is_known(source, name, call):
            return None
        value, was_keyword = given.get(name, (name, False))
        by_keyword = by_keyword or was_keyword or name in new.keyword_only
        if by_keyword and source.language != "python":
            return None
        made.append(f"{name}={value}" if by_keyword else value)
    return made


def _renamed(old: Signature, new: Signature) -> list[tuple[str, str]]:
    """Return the parameter that has another name at its place, as (old, new), if that is all."""
    removed, added = missing_parameters(old, new), missing_parameters(new, old)
    if len(removed) != 1 or len(added) != 1:
        return []
    same = old.parameters.index(removed[0]) == new.parameters.index(added[0])
    return [(removed[0], added[0])] if same else []


def _is_known(source: SourceText, name: str, call: CallSite) -> bool:
    """Return whether a function around the call, or the module above it, binds a name."""
    if (tree := source.tree) is None:
        return False
    names = WALKERS.get(tree.language, OutlineNames)(tree)
    with suppress(Unsure):
        names.read_words(dict.fromkeys(source.find_words(name), name))
        for use in names.uses:
            node = use.scope.node
            is_bound = use.name == name and use.kind
            if not is_bound or node is None or use.scope.kind in ("class", "comprehension"):
                continue
            start, stop = tree.span(node)
            if start <= call.name_at < stop and use.place.start < call.name_at:
                return True
    return False
