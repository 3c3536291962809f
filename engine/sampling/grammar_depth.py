"""Measures the depth of grammars and JSON schemas of clients.

llguidance follows rules and references by recursion in native code: a chain of a thousand ends the
process without an exception. So what a client sends is measured before llguidance sees it. What is
counted is at least the depth: definitions that lead back to each other count once each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from typing import Any

from engine.records import RequestError
from engine.sampling.schema_references import target_of

MAX_DEPTH = 500  # objects and lists inside each other; rules and brackets of a grammar
MAX_WORK = 500_000  # values; a schema's depth is searched in as many, a third of a second
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
NAMES = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
RULE = re.compile(r"[\w\])}]\s*:")  # begins so; a colon in JSON follows a quote
BRACKET = re.compile(r"[(\[{]")
JSON_PART = "%json"
TOO_DEEP = f"its parts and references are over {MAX_DEPTH} levels deep"

Graph = dict[int, set[int]]
Counted = Callable[[int], None]  # counts values that are looked at. RequestError


def check_schema(schema: Any) -> None:
    """RequestError for a schema whose parts and references lead too deep for llguidance."""
    if depth_of(schema) > MAX_DEPTH:
        raise RequestError(f"the schema cannot be enforced: {TOO_DEEP}")


def check_rules(grammar: str) -> None:
    """Raise RequestError for a client's grammar that leads too deep for llguidance.

    The grammar is in Lark or in llguidance's JSON.
    """
    rules = sum(map(_rules, _lark_parts(grammar)))
    if rules > MAX_DEPTH:
        raise RequestError(
            f"the grammar cannot be used: it has {rules:,} rules and brackets, over {MAX_DEPTH}"
        )


def _lark_parts(grammar: str) -> Iterator[str]:
    """Yield the parts of a grammar that are in Lark. Its schemas are checked. RequestError."""
    if not grammar.lstrip().startswith("{"):
        yield grammar
        return
    whole, _ = _decoded(grammar)
    parts = whole.get("grammars")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            check_schema(part.get("json_schema"))
            yield str(part.get("lark_grammar") or "")


def _rules(text: str) -> int:
    """Count the rules and brackets that Lark has outside of its schemas, which are checked.

    RequestError.
    """
    first, *rest = text.split(JSON_PART)
    texts = [first]
    for part in rest:
        schema, rules = _decoded(part)
        check_schema(schema)
        texts.append(rules)
    return sum(len(pattern.findall(part)) for part in texts for pattern in (RULE, BRACKET))


def _decoded(text: str) -> tuple[Any, str]:
    """Decode the JSON that a text begins with; return it and the rest. RequestError."""
    text = text.lstrip()
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except RecursionError:
        raise RequestError(f"the grammar cannot be used: {TOO_DEEP}") from None
    except ValueError as error:
        raise RequestError(f"the grammar cannot be used: its JSON: {error}") from None
    return found, text[end:]


def depth_of(schema: Any) -> int:
    """Count how many objects and lists of a schema are inside each other, at least.

    The target of a reference is inside it. RequestError where that takes too long to find.
    """
    work = 0

    def counted(more: int) -> None:
        nonlocal work
        work += more
        if work > MAX_WORK:
            raise RequestError("the schema cannot be enforced: its references are too many")

    roots = [schema, *_named(schema, counted)]
    graph: Graph = {}
    levels: dict[int, int] = {}
    waiting = [schema]
    while waiting:
        head = waiting.pop()
        if id(head) in graph:
            continue
        levels[id(head)], references = _levels(head, counted)
        targets = []
        for reference in references:
            counted(len(roots))
            targets += _targets(roots, reference)
        graph[id(head)] = {id(target) for target in targets}
        waiting += targets
    return _longest(graph, levels)


def _named(schema: Any, counted: Counted) -> Iterator[dict[str, Any]]:
    """Yield the parts to which references may lead by a name of their own.

    Pointers may begin from them, too.
    """
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            if any(isinstance(part.get(key), str | bool) for key in NAMES):
                yield part
            part = [*part.values()]
        if isinstance(part, list):
            counted(1 + len(part))
            stack += part


def _targets(roots: list[Any], reference: str) -> list[Any]:
    """Return the parts that a reference may lead to.

    A pointer begins at the schema or at a part with a name, and a name is any part's that has one.
    """
    pointer = reference[reference.find("#") :] if "#" in reference else "#"
    if pointer != "#" and not pointer.startswith(("#/", "#%")):
        return roots
    found = [target_of(root, pointer) for root in roots]
    return [part for part in found if isinstance(part, dict | list)]


def _levels(part: Any, counted: Counted) -> tuple[int, set[str]]:
    """Count the objects and lists inside each other in a part; collect its references."""
    deepest, references = 0, set[str]()
    stack: list[tuple[Any, int]] = [(part, 1)]
    while stack:
        one, depth = stack.pop()
        if isinstance(one, dict):
            references |= {
                text for key, text in one.items() if key in REFERENCES and isinstance(text, str)
            }
            one = [*one.values()]
        if isinstance(one, list):
            counted(1 + len(one))
            deepest = max(deepest, depth)
            stack += [(inner, depth + 1) for inner in one]
    return deepest, references


def _longest(graph: Graph, levels: dict[int, int]) -> int:
    """Return the most levels along a path of a graph.

    Parts that lead to each other stand for one of all their levels.
    """
    group = _groups(graph)
    size: dict[int, int] = {}
    below: Graph = {}
    for node, targets in graph.items():
        own = group[node]
        size[own] = size.get(own, 0) + levels[node]
        below.setdefault(own, set()).update({group[target] for target in targets} - {own})
    most: dict[int, int] = {}
    for node in TopologicalSorter(below).static_order():
        most[node] = size[node] + max((most[later] for later in below[node]), default=0)
    return max(most.values())


def _groups(graph: Graph) -> dict[int, int]:
    """Return the strongly connected component of each node, by one of its nodes (Kosaraju)."""
    reverse: Graph = {node: set() for node in graph}
    for node, targets in graph.items():
        for target in targets:
            reverse[target].add(node)
    finished: list[int] = []
    seen: set[int] = set()
    stack = [(node, False) for node in graph]
    while stack:
        node, left = stack.pop()
        if left:
            finished.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(target, False) for target in graph[node]]
    group: dict[int, int] = {}
    for root in reversed(finished):
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node not in group:
                group[node] = root
                waiting += reverse[node]
    return group
