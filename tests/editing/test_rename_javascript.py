"""Renames in JavaScript and TypeScript: right, or left to the model."""

from __future__ import annotations

import re

import pytest

from engine.editing.edits import EditRefused
from tests.support.marked_names import assert_marked_are_renamed, edit

RIGHT = [
    "const x@ = 1; { const x = 2; x } x@;",
    "function f(x@) { return x@ + (x => x)(x@) + ((y = x@) => x@)(); }",
    "function f() { { var x@ = 1; } return x@; } var y;",
    "let o = { x: x@, y: { x: 1 }.x }; let x@ = 2;",
    "let o = { x: x@ }; let x@ = 2; o.x;",
    "for (const x@ of y) { x@; } for (const y in z) y;",
    "for (let x@ = 0; x@ < 9; x@++) { [x@]; }",
    "try {} catch (x@) { x@; } y;",
    "x: for (let x@ = 1; ; ) { break x; }",
    "const f = function x@() { x@(); };",
    "const C = class x@ { m() { return x@; } };",
    "class x@ { static m(): x@ { return new x@(); } } let y: typeof x@;",
    "interface x@ { y: x@[]; } function f(a: x@): a is x@ { return true; }",
    "type T<x@> = x@ extends infer U ? x@ : U;",
    "type M<K> = { [x@ in keyof K]: K[x@] };",
    "function f<x@ extends object = {}>(a: x@): x@ { return a; }",
    "function f(x@: any): asserts x@ is string {}",
    "enum x@ { A = 1, B = A } x@.A;",
    "import x@ from 'm'; x@();",
    "import * as x@ from 'm'; x@.y();",
    "import { y as x@ } from 'm'; x@();",
    "const x@ = 1; export { x@, y as z }; export default x@;",
    "export { x as y } from 'm'; let x@ = 1;",
    "let x@ = 1; [x@, y[x@]] = [x@, 1]; x@ ||= `a${x@}`;",
    "switch (x@) { case 1: const y = x@; } let x@;",
    "let x@ = 1; // x\nlet s = 'x' + `x ${x@}`;",
    "function x@(a: string): void; function x@(a: number): void; function x@(a: any) {}",
    "let f: (x@: number) => typeof x@; let g: [x: number];",
    "class A { m(x@: number) { return { x: this.y + x@ }; } }",
]


@pytest.mark.parametrize("marked", RIGHT)
def test_right(marked: str) -> None:
    assert_marked_are_renamed(marked, "a.ts")


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("let x = 1; f({ x });", "let z = 1; f({ x: z });"),
        ("const { x } = o; x;", "const { x: z } = o; z;"),
        (
            "function f({ x = 1, ...y }) { return x; }",
            "function f({ x: z = 1, ...y }) { return z; }",
        ),
        ("let x; ({ x } = o); ({ x = 2 } = o);", "let z; ({ x: z } = o); ({ x: z = 2 } = o);"),
        ("const { a: x } = o; x;", "const { a: z } = o; z;"),
    ],
)
def test_short_forms_keep_the_property(text: str, new: str) -> None:
    assert edit(text, "Rename x to z", "a.ts") == new
    assert edit(text, "Rename x to z", "a.js") == new


def test_components() -> None:
    text = "const Old = () => <div><Old a={Old}>Old</Old><Old.B /></div>;\n"
    new = "const New = () => <div><New a={New}>Old</New><New.B /></div>;\n"
    assert edit(text, "Rename Old to New", "a.tsx") == new
    assert edit(text, "Rename Old to small", "a.tsx") is None  # <small> would be HTML's
    assert edit("const div = 1; <div>{div}</div>;", "Rename div to z", "a.jsx") == (
        "const z = 1; <div>{z}</div>;"
    )


LEFT = [
    "import { x } from 'm'; x();",
    "console.log(x);",
    "class A { x = 1; m() { this.x; } }",
    "class A { constructor(private x: number) {} }",
    "let x = 1; o.x = x;",
    "interface x {} function f(x: number): x {}",
    "namespace N { export const x = 1; } N;",
    "enum E { x = 1, B = x }",
    "with (o) { let x; }",
    "let x = 1; eval('x');",
    "{ function x() {} } x();",
    "let x = ;",
    "// x",
]


@pytest.mark.parametrize("text", LEFT)
def test_left_to_the_model(text: str) -> None:
    path = "a.js" if "with" in text else "a.ts"
    assert edit(text, "Rename x to z", path) is None


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("let x = 1, z = 2;", "z"),
        ("function f(x) { return z + x; } let z;", "z"),
        ("let x = 1; function f(z) { return x; }", "z"),
        ("let x = 1; console.log(x);", "console"),
        ("let x = 1;", "class"),
        ("let x = 1;", "a-b"),
        ("let x = 1;", "1a"),
    ],
)
def test_refused(text: str, new: str) -> None:
    with pytest.raises(EditRefused, match=re.escape(f"`{new}`")):
        edit(text, f"Rename x to {new}", "a.js")


def test_an_arrow_function_is_a_function() -> None:
    assert (
        edit("const x = () => x;\n", "Rename the function x to z", "a.ts") == "const z = () => z;\n"
    )
