"""What each name of a Python text refers to, by Python's own `symtable` and `ast`."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from typing import Any

Found = dict[int, tuple[str, Any]]  # code point -> (name, what it refers to; None: nothing here)
COMPREHENSIONS = {
    ast.ListComp: "listcomp",
    ast.SetComp: "setcomp",
    ast.DictComp: "dictcomp",
    ast.GeneratorExp: "genexpr",
}


class PythonOracle(ast.NodeVisitor):
    """Every `Name` and parameter of a text, outside strings. `ast` has no positions of other names,
    as of functions and imports. `symtable` takes a function "top" for the module."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.stack = [symtable.symtable(text, "text", "exec")]
        self.used: set[int] = set()
        self.found: Found = {}
        self.visit(ast.parse(text))

    def at(self, node: Any) -> int:
        line = self.lines[node.lineno - 1]
        before = line.encode()[: node.col_offset].decode()
        return self.starts[node.lineno - 1] + len(before)

    def refers_to(self, name: str) -> Any:
        table = self.stack[-1]
        symbol = table.lookup(name)
        if symbol.is_free():
            for outer in reversed(self.stack[:-1]):
                if outer.get_type() == "function" and name in outer.get_identifiers():
                    inner = outer.lookup(name)
                    if inner.is_local():
                        return outer.get_id(), name
            raise AssertionError(name)
        if symbol.is_local() and not symbol.is_global():
            return table.get_id(), name
        if symbol.is_local() and table.get_type() == "module":
            return table.get_id(), name
        return (self.stack[0].get_id(), name) if name in self.module_names() else None

    def module_names(self) -> set[str]:
        if not hasattr(self, "_names"):
            self._names = set(global_names(self.stack[0], True))
        return self._names

    def note(self, node: Any, name: str) -> None:
        if name in self.stack[-1].get_identifiers():  # not: annotations that are never evaluated
            self.found[self.at(node)] = (name, self.refers_to(name))

    def inside(self, name: str, lineno: int) -> symtable.SymbolTable:
        for child in self.stack[-1].get_children():
            same = child.get_name() == name and child.get_lineno() == lineno
            if same and child.get_id() not in self.used:
                self.used.add(child.get_id())
                return child
        raise AssertionError((name, lineno))

    def visit_Name(self, node: ast.Name) -> None:
        self.note(node, node.id)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Positions in f-strings are wrong before Python 3.12: only the scopes are counted."""
        saved = dict(self.found)
        self.generic_visit(node)
        self.found = saved

    def visit_FunctionDef(self, node: Any) -> None:
        arguments = node.args
        for each in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            self.visit(each)
        is_lambda = isinstance(node, ast.Lambda)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += filter(None, [arguments.vararg, arguments.kwarg])
        for each in every:
            if each.annotation:
                self.visit(each.annotation)
        if not is_lambda:
            if node.returns:
                self.visit(node.returns)
            for each in node.decorator_list:
                self.visit(each)
        self.stack.append(self.inside("lambda" if is_lambda else node.name, node.lineno))
        for each in every:
            self.note(each, each.arg)
        for each in [node.body] if is_lambda else node.body:
            self.visit(each)
        self.stack.pop()

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in [*node.bases, *node.keywords, *node.decorator_list]:
            self.visit(each)
        self.stack.append(self.inside(node.name, node.lineno))
        for each in node.body:
            self.visit(each)
        self.stack.pop()

    def visit_ListComp(self, node: Any) -> None:
        first, *rest = node.generators
        self.visit(first.iter)
        self.stack.append(self.inside(COMPREHENSIONS[type(node)], node.lineno))
        self.visit(first.target)
        for each in [*first.ifs, *rest]:
            self.visit(each)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self.stack.pop()

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp


def global_names(table: symtable.SymbolTable, is_top: bool = False) -> Iterator[str]:
    """What a module binds: at its top, and by `global` in functions."""
    for symbol in table.get_symbols():
        binds = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
        binds |= symbol.is_annotated()
        if binds and (is_top or symbol.is_declared_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from global_names(child)
