"""Renames in Go: right, or left to the model."""

from __future__ import annotations

import re

import pytest

from engine.editing.edits import EditRefused
from tests.support.marked_names import assert_marked_are_renamed, edit

HEAD = "package p\n\n"
RIGHT = [
    "var x@ = 1\nfunc f() int { x := x@; return x }\nfunc g() int { return x@ }\n",
    "func f(x@ int) int { y := x@; { x := x@ + y; _ = x }; return x@ }\n",
    "func f() (n int, x@ error) { a, x@ := g(); { b, x := g(); _, _ = b, x }; return a, x@ }\n",
    "func f() { if x@ := g(); x@ { _ = x@ } else if y := x@; y {}; _ = 1 }\n",
    "func f() { for i, x@ := range x { _ = x@ }; for x := 0; x < 1; x++ {} }\n",
    "func f(v any) { switch x@ := v.(type) { case int: _ = x@; default: _ = x@ } }\n",
    "func f() { select { case x@, ok := <-ch: _ = x@; case x := <-ch: _ = x } }\n",
    "func f() {\nx:\n\tfor { var x@ int; _ = x@; break x }\n}\n",
    "func x@() int { return x@() }\nvar y = T{f: x@}\ntype T struct { f func() int }\n",
    "type x@ struct { n *x@ }\nfunc (t *x@) m(y x@) *x@ { return &x@{} }\n",
    "type T[x@ any] struct { a, b x@ }\nfunc f[x any](y x) {}\n",
    "type x@ struct { c net.x }\nfunc f(a x@, b net.x) { a.c = net.x{} }\n",
    "func f[x@ any](y x@) []x@ { return make([]x@, 1) }\n",
    "func f(node *node, x@ func(x int) int) { _ = x@(1) }\ntype node int\n",
    'import x@ "fmt"\nfunc f(y x@.Stringer) { x@.Println(y) }\n',
    "func f(x@ int) { _ = map[int]int{x@: 1}; _ = T{x: x@} }\ntype T struct { x int }\n",
    "func f(x@ int) { _ = []T{{x: x@}}; _ = map[int]*T{x@: {x: 1}} }\ntype T struct { x int }\n",
    "func f() { x@ := 1 /* x */; g := func() { x@++ }; g(); var s = `x`; _ = s }\n",
    "func f(x@ ...int) { go g(x@...); defer g(x@[0]) }\n",
    "const (\n\tx@ = iota\n\ty\n)\nvar z = x@ + y\n",
    "func f() { var x = 1; { var x@ = x; _ = x@ } }\n",
]


@pytest.mark.parametrize("marked", RIGHT)
def test_right(marked: str) -> None:
    assert_marked_are_renamed(HEAD + marked, "a.go")


LEFT = [
    'import "x"\nfunc f() { x.F() }\n',
    "type T struct { x int }\n",
    "func (t T) x() {}\n",
    "func f(x int) { _ = T{x: 1} }\n",
    "func f(x int) { _ = p.T{x: 1} }\n",
    "type x int\ntype T struct { *x }\n",
    "type T[K any] int\nfunc (t T[x]) m(y x) {}\n",
    "//export x\nfunc x() {}\n",
    "func f() { x() }\n",
    "func f(x int { }\n",
]


@pytest.mark.parametrize("text", LEFT)
def test_left_to_the_model(text: str) -> None:
    assert edit(HEAD + text, "Rename x to zz", "a.go") is None


def test_main_keeps_its_name() -> None:
    assert edit("package main\nfunc main() {}\n", "Rename main to zz", "a.go") is None


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("func f(x int) { zz := 1; _ = x + zz }\n", "zz"),
        ("func f(x int) { _ = fmt.Sprint(x) }\n", "fmt"),
        ("func f(x int) { if zz := 1; zz > x {} }\n", "zz"),
        ("var x = 1\n", "range"),
        ("var x = 1\n", "_"),
    ],
)
def test_refused(text: str, new: str) -> None:
    with pytest.raises(EditRefused, match=re.escape(f"`{new}`")):
        edit(HEAD + text, f"Rename x to {new}", "a.go")
