"""Instructions for code that nobody here has seen, by kind, as people write them.

A kind looks at a definition, or at a whole file, and returns an instruction about a name or a value
that is there; None where there is nothing to do. Python is read by its grammar, other languages by
patterns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from random import Random

Function = ast.FunctionDef | ast.AsyncFunctionDef
Kind = Callable[[ast.AST, Random], str | None]
Pattern = tuple[str, tuple[str, ...]]  # what must be there, and wordings with its groups

SMALL = (-1, 0, 1, 2)  # numbers that need no name
NEW_NAMES = {  # words of names, and what people rename them to
    "args": "arguments", "cfg": "config", "config": "settings", "count": "total", "ctx": "context",
    "data": "payload", "dir": "folder", "file": "source", "func": "callback", "idx": "index",
    "items": "entries", "key": "name", "kwargs": "options", "msg": "message", "name": "label",
    "options": "settings", "path": "location", "res": "result", "result": "outcome", "s": "text",
    "text": "content", "url": "address", "val": "value", "value": "amount",
}  # fmt: skip


def new_name(name: str) -> str:
    """Return another name, made of the same number of words where one of them is known."""
    words = name.split("_")
    known = [at for at, word in enumerate(words) if word in NEW_NAMES]
    if not known:
        return f"{name.rstrip('_')}_value"
    words[known[-1]] = NEW_NAMES[words[known[-1]]]
    return "_".join(words)


def functions(node: ast.AST) -> list[Function]:
    return [one for one in ast.walk(node) if isinstance(one, Function)]


def _parameters(function: Function) -> list[ast.arg]:
    spec = function.args
    return [one for one in (*spec.posonlyargs, *spec.args) if one.arg not in ("self", "cls")]


def _pick(found: list[tuple[str, ...]], chance: Random, *wordings: str) -> str | None:
    """Fill one of the wordings with one of the things found."""
    return chance.choice(wordings).format(*chance.choice(found)) if found else None


def _attributes(node: ast.AST) -> list[str]:
    """Find the attributes that `self` is given."""
    names = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    }
    return sorted(names)


def rename_attribute(node: ast.AST, chance: Random) -> str | None:
    found = [(name, new_name(name)) for name in _attributes(node)]
    return _pick(
        found, chance, "rename the attribute {0} to {1}", "Rename self.{0} to self.{1} everywhere"
    )


def rename_local(node: ast.AST, chance: Random) -> str | None:
    found = [
        (one.id, function.name, new_name(one.id))
        for function in functions(node)
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and len(one.id) > 1
    ]
    return _pick(found, chance, "rename the variable {0} in {1} to {2}", "in {1}: {0} -> {2}")


def add_parameter(node: ast.AST, chance: Random) -> str | None:
    raising = [
        (function.name,)
        for function in functions(node)
        if any(isinstance(one, ast.Raise) for one in ast.walk(function))
    ]
    printing = [(one.name,) for one in functions(node) if not one.name.startswith("__")]
    return _pick(
        raising,
        chance,
        "add a parameter strict=True to {0}; if it is false, return None where it raises now",
    ) or _pick(
        printing,
        chance,
        "Add a keyword argument `verbose=False` to {0} that prints the arguments when it's true",
        "give {0} a parameter `logger=None` and log a debug message at its start if one is given",
    )


def docstring(node: ast.AST, chance: Random) -> str | None:
    found = [
        (one.name,)
        for one in functions(node)
        if ast.get_docstring(one) is None and not one.name.startswith("__")
    ]
    return _pick(found, chance, "add a docstring to {0}", "document {0}: parameters and result")


def type_hints(node: ast.AST, chance: Random) -> str | None:
    found = [
        (one.name,)
        for one in functions(node)
        if one.returns is None and any(arg.annotation is None for arg in _parameters(one))
    ]
    return _pick(found, chance, "add type hints to {0}", "annotate the signature of {0}")


def missing_key(node: ast.AST, chance: Random) -> str | None:
    found = [
        (ast.unparse(one), ast.unparse(one.value), ast.unparse(one.slice))
        for one in ast.walk(node)
        if isinstance(one, ast.Subscript)
        and isinstance(one.ctx, ast.Load)
        and isinstance(one.slice, ast.Constant)
        and isinstance(one.slice.value, str)
        and isinstance(one.value, ast.Name)
    ]
    return _pick(
        found,
        chance,
        "handle the case that {1} has no {2}: use None then",
        "{0} can raise KeyError, raise a ValueError with a helpful message instead",
    )


def guard(node: ast.AST, chance: Random) -> str | None:
    found = [(one.name, arg.arg) for one in functions(node) for arg in _parameters(one)]
    return _pick(
        found,
        chance,
        "raise a ValueError if {1} is None in {0}",
        "{0}: return early when {1} is empty",
        "check at the start of {0} that {1} is given, with a clear error message",
    )


def _calls(node: ast.AST, name: str) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(isinstance(one, ast.Name) and one.id == name for one in calls)


def log(node: ast.AST, chance: Random) -> str | None:
    found = [(one.name,) for one in functions(node) if _calls(one, "print")]
    return _pick(found, chance, "use logging instead of print in {0}", "replace print by a logger")


def constant(node: ast.AST, chance: Random) -> str | None:
    found = [
        (ast.unparse(one), function.name)
        for function in functions(node)
        for statement in function.body
        for one in ast.walk(statement)
        if isinstance(one, ast.Constant)
        and type(one.value) in (int, float)
        and one.value not in SMALL
    ]
    return _pick(
        found,
        chance,
        "extract the magic number {0} in {1} into a constant",
        "give the {0} in {1} a name, as a constant above it",
    )


def change_default(node: ast.AST, chance: Random) -> str | None:
    found = []
    for function in functions(node):
        spec = function.args
        arguments = [*spec.posonlyargs, *spec.args]
        pairs = [*zip(reversed(arguments), reversed(spec.defaults), strict=False)]
        for arg, value in (*pairs, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)):
            old = value.value if isinstance(value, ast.Constant) else None
            if isinstance(old, bool):
                found.append((arg.arg, function.name, str(not old)))
            elif isinstance(old, int | float):
                found.append((arg.arg, function.name, str(2 * old or 10)))
    return _pick(
        found,
        chance,
        "change the default of {0} in {1} to {2}",
        "{0} should default to {2} in {1}",
    )


def early_return(node: ast.AST, chance: Random) -> str | None:
    nested = [
        (one.name, ast.unparse(last.test))
        for one in functions(node)
        if isinstance(last := one.body[-1], ast.If) and not last.orelse and len(last.body) > 1
    ]
    return _pick(
        nested,
        chance,
        "return early in {0} instead of nesting everything under the if",
        "invert the condition `{1}` in {0} and return early",
    )


def swap_branches(node: ast.AST, chance: Random) -> str | None:
    found = [
        (ast.unparse(one.test),)
        for one in ast.walk(node)
        if isinstance(one, ast.If) and one.orelse and not isinstance(one.orelse[0], ast.If)
    ]
    return _pick(found, chance, "invert `if {0}` and swap its branches")


def add_method(node: ast.AST, chance: Random) -> str | None:
    found = []
    for one in ast.walk(node):
        if isinstance(one, ast.ClassDef) and (names := _attributes(one)):
            methods = {method.name for method in functions(one)}
            if "__init__" in methods and "__repr__" not in methods:
                found.append((one.name, " and ".join(names[:2]), names[0], names[0].strip("_")))
    return _pick(
        found,
        chance,
        "add a __repr__ to {0} that shows {1}",
        "Add a method `has_{3}` to {0} that returns whether {2} is not None",
    )


def comprehension(node: ast.AST, chance: Random) -> str | None:
    found = [
        (function.name,)
        for function in functions(node)
        for one in ast.walk(function)
        if isinstance(one, ast.For)
        and len(one.body) == 1
        and re.search(r"\.append\(.*\)$", ast.unparse(one.body[0]).strip())
    ]
    return _pick(found, chance, "turn the loop in {0} into a list comprehension")


def reraise(node: ast.AST, chance: Random) -> str | None:
    found = [
        (function.name,)
        for function in functions(node)
        for one in ast.walk(function)
        if isinstance(one, ast.ExceptHandler) and (one.type is None or "Exception" in _text(one))
    ]
    return _pick(
        found, chance, "don't swallow the exception in {0}, log it with its traceback and re-raise"
    )


def _text(handler: ast.ExceptHandler) -> str:
    return ast.unparse(handler.type) if handler.type else ""


def f_strings(node: ast.AST, chance: Random) -> str | None:
    found = [
        (function.name,)
        for function in functions(node)
        if re.search(r"""['"]\.format\(|['"] % """, ast.unparse(function))
    ]
    return _pick(found, chance, "use f-strings in {0}")


PYTHON: dict[str, Kind] = {
    "rename an attribute": rename_attribute,
    "rename a variable": rename_local,
    "add a parameter": add_parameter,
    "docstring": docstring,
    "type hints": type_hints,
    "missing value": missing_key,
    "guard": guard,
    "log": log,
    "constant": constant,
    "change a default": change_default,
    "early return": early_return,
    "swap branches": swap_branches,
    "add a method": add_method,
    "comprehension": comprehension,
    "error handling": reraise,
    "f-strings": f_strings,
}
_HEAD = r"^(?:export )?(?:default )?(?:async )?function\*? (\w+)\("
SCRIPT: dict[str, Pattern] = {  # JavaScript and TypeScript
    "docstring": (r"(?m)(?<!\*/\n)" + _HEAD, ("add a JSDoc comment to {0}",)),
    "guard": (
        r"(?m)" + _HEAD + r"(\w+)",
        ("throw a TypeError if {1} is undefined in {0}", "return early from {0} if {1} is empty"),
    ),
    "add a parameter": (
        r"(?m)" + _HEAD,
        ("add a last parameter `verbose = false` to {0} that logs its name when it is set",),
    ),
    "rename a variable": (
        r"\b(?:const|let|var) (\w{2,})\b",
        ("rename the variable {0} to {0}Value",),
    ),
    "log": (r"console\.(log|warn)\(", ("use console.debug instead of console.{0}",)),
    "constant": (
        r"[ (]((?!10?\b)[1-9]\d+)\b",
        ("extract the magic number {0} into a constant",),
    ),
    "rewrite var": (r"\bvar (\w+) = ", ("use const or let instead of var",)),
    "arrow functions": (r"\bfunction ?\((\w*)", ("use arrow functions for the callbacks",)),
}


def kinds(language: str) -> list[str]:
    """Return the kinds of instructions that there are for a language."""
    return [*(PYTHON if language == "python" else SCRIPT)]


def instruction(kind: str, language: str, selected: str, chance: Random) -> str | None:
    """Write an instruction of a kind for some lines; None where they have nothing of the kind."""
    if language == "python":
        tree = ast.parse(f"if 1:\n{selected}" if selected[:1] in " \t" else selected)
        return PYTHON[kind](tree, chance)
    pattern, wordings = SCRIPT[kind]
    found = [match.groups() for match in re.finditer(pattern, selected)]
    return _pick(found, chance, *wordings)


# -- what to select, and where to complete ------------------------------------------------------

SELECTED = range(20, 201)  # lines of a selection


def selections(language: str, text: str) -> list[tuple[int, int]]:
    """Find the whole definitions of 20 to 200 lines, and the file if it has so many, as offsets."""
    lines = _lines(text)
    found = _definitions(text) if language == "python" else _blocks(lines)
    spans = [(first, last) for first, last in found if last - first in SELECTED]
    if len(lines) in SELECTED:
        spans.append((0, len(lines)))
    return [(len("".join(lines[:one])), len("".join(lines[:end]))) for one, end in spans]


def _lines(text: str) -> list[str]:
    """Split a text as grammars count its lines."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _definitions(text: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield first - 1, node.end_lineno or node.lineno


def _blocks(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield top-level blocks, from a line that ends in an opening bracket to one that closes it."""
    first = None
    for number, line in enumerate(lines):
        if line[:1].isalpha() and line.rstrip().endswith("{"):
            first = number
        elif first is not None and re.match(r"\};?\s*$", line):
            while first and re.match(r"/\*\*|//| \*", lines[first - 1]):  # its comment
                first -= 1
            yield first, number + 1
            first = None


def places(language: str, text: str) -> list[tuple[int, int]]:
    """Find where a user may type: offsets in lines of code, and of the ends of these lines.

    A line is cut at its first character or behind a word, a bracket or an operator.
    """
    prose = _prose(text) if language == "python" else set()
    found, start = [], 0
    for number, line in enumerate(_lines(text), 1):
        code, indent = line.rstrip(), len(line) - len(line.lstrip())
        comment = code.lstrip().startswith("#" if language == "python" else ("//", "*", "/*"))
        if indent and number not in prose and not comment:
            cuts = [indent, *(one.end() for one in re.finditer(r"\w+[.(]|[=(,] ?|\w+ ", code))]
            found += [(start + cut, start + len(code)) for cut in cuts if indent <= cut < len(code)]
        start += len(line)
    return found


def _prose(text: str) -> set[int]:
    """Return the lines of Python's strings of several lines, docstrings included."""
    return {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Expr)
        and (isinstance(node, ast.JoinedStr) or _is_string(node))
        and node.end_lineno
        for line in range(node.lineno, node.end_lineno + 1)
        if node.end_lineno > node.lineno or isinstance(node, ast.Expr)
    }


def _is_string(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else node
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def block_end(text: str, at: int) -> int:
    """Return the offset where the block of the line at `at` ends."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start : text.find("\n", at)]
    indent = len(line) - len(line.lstrip())
    shallower = re.compile(rf"\n[ \t]{{0,{indent - 1}}}\S").search(text, at)
    return len(text[: shallower.start() if shallower else len(text)].rstrip())
