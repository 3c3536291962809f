"""Renames in Rust: right, or left to the model."""

from __future__ import annotations

import re

import pytest

from engine.editing.edits import EditRefused
from tests.support.marked_names import assert_marked_are_renamed, edit

RIGHT = [
    "fn f(x@: i32) -> i32 { let y = x@; let x = x@ + y; x }",
    "fn f(x: i32) -> i32 { let x@ = x + 1; { let x = x@; x }; x@ }",
    "fn f(mut x@: i32, (y, z): (i32, i32)) { x@ += y + z; }",
    "fn f(v: Option<i32>) -> i32 { if let Some(x@) = v { x@ } else { let x = 1; x } }",
    "fn f(x: Option<i32>) -> i32 { if let Some(x@) = x { x@ } else { x.unwrap() } }",
    "fn f(x@: Option<i32>) -> i32 { let Some(x) = x@ else { return x@.unwrap() }; x }",
    "fn f(v: E) -> i32 { match v { E::A(x@) | E::B(x@) if x@ > 1 => x@, E::A(x) => x, _ => 0 } }"
    " enum E { A(i32), B(i32) }",
    "fn f() { for (i, x@) in [1].iter().enumerate() { i; x@; } let x = 1; x; }",
    "fn f() { let x = 1; let g = |x@: i32, y| x@ + y; g(x, 1); }",
    "fn f() { let x@ = 1; let g = move || x@; g(); x@; }",
    'fn f(x@: i32) { println!("{} {x@} {x@:?} {{x}} x", x@); let s = "x {x}"; s; }',
    'fn f(x@: i32) { println!("{x} {}", x@, x = 1); }',
    'fn f(x@: i32) { assert_eq!(x@ + 1, g(x@), "{}", x@); vec![x@; 3]; } fn g(a: i32) -> i32 { a }',
    "fn f(s: S) { let x@ = s.x; x@; s.m(x@); } struct S { x: i32 }",
    "fn f() { let x@ = 1; 'x: loop { break 'x; } x@; }",
    "fn f() { let x@ = 1; fn g() { let x = 2; x; } x@; }",
    "fn x@(n: i32) -> i32 { if n > 0 { x@(n - 1) } else { 0 } } fn g() { x@(1); }",
    "fn f() { g(); fn x@() {} x@(); } fn g() {}",
    "struct S<T> { a: T } impl<x@> S<x@> { fn m(&self, a: x@) -> Option<&x@> { None } }",
    "fn f(x@: i32) -> i32 { fn g(x: i32) -> i32 { x } g(x@) }",
    "fn f(mut v: Vec<i32>) { while let Some(x@) = v.pop() { x@; } }",
    "fn f(x@: &mut Vec<i32>) { x@.push(1); (*x@)[0] = 2; let &mut ref y = &mut *x@; y; }",
    "const x@: i32 = 1; fn f() {} fn g() -> i32 { x@ }",
]


@pytest.mark.parametrize("marked", RIGHT)
def test_right(marked: str) -> None:
    assert_marked_are_renamed(marked, "a.rs")


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("fn f(x: i32) -> S { S { x } }", "fn f(zz: i32) -> S { S { x: zz } }"),
        ("fn f(S { x, .. }: S) { x; }", "fn f(S { x: zz, .. }: S) { zz; }"),
        (
            "fn f(s: S) { let S { ref mut x } = s; x; }",
            "fn f(s: S) { let S { x: ref mut zz } = s; zz; }",
        ),
        ("fn f(s: S) { let S { x: x } = s; x; }", "fn f(s: S) { let S { x: zz } = s; zz; }"),
    ],
)
def test_short_forms_keep_the_field(text: str, new: str) -> None:
    assert edit(f"{text} struct S {{ x: i32 }}", "Rename the variable x to zz", "a.rs") == (
        f"{new} struct S {{ x: i32 }}"
    )


LEFT = [
    "struct S { x: i32 }",
    "impl S { fn x(&self) {} }",
    "fn f(x: i32) { my_macro!(x); }",
    'fn f(x: i32) { println!("{}", { x }); }',
    'fn f(x: usize) { println!("{:x$}", 1); }',
    "macro_rules! m { () => { x } } fn f() { let x = 1; m!(); }",
    "fn x() {} mod m { fn g() { super::x(); } }",
    "fn x() {} mod m { use super::*; fn g() { x(); } }",
    "mod m { fn x() {} }",
    "use a::x; fn f() { x(); }",
    '#[serde(default = "x")] struct S; fn x() {}',
    "fn f() { x(); }",
    "fn f(x: i32) -> i32 { x.x }",
    "const x: i32 = 1; fn f(v: i32) { match v { x => {} _ => {} } }",
    "fn f(x: i32 { }",
    "fn f(v: T) { match v { x!() => {} } }",
]


@pytest.mark.parametrize("text", LEFT)
def test_left_to_the_model(text: str) -> None:
    assert edit(text, "Rename x to zz", "a.rs") is None


def test_main_keeps_its_name() -> None:
    assert edit("fn main() {}", "Rename main to zz", "a.rs") is None


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("fn f(x: i32, zz: i32) {}", "zz"),
        ("fn f(x: i32) { let zz = 1; x; }", "zz"),
        ("fn f(x: i32) { zz(); }", "zz"),
        ("fn f(x: i32) { let g = |zz: i32| x; }", "zz"),
        ("fn f(x: i32) {}", "fn"),
        ("fn f(x: i32) {}", "self"),
    ],
)
def test_refused(text: str, new: str) -> None:
    with pytest.raises(EditRefused, match=re.escape(f"`{new}`")):
        edit(text, f"Rename x to {new}", "a.rs")


def test_a_name_with_a_pattern() -> None:
    text = "fn f(v: i32) { match v { x @ 1..=5 => { x; } _ => {} } }"
    assert edit(text, "Rename x to zz", "a.rs") == text.replace("x", "zz")
