"""The work of a rename grows as its text does, or ends at a limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.editing.dialogue import by_rule
from engine.editing.scopes import names
from engine.editing.syntax import parse
from engine.records import Request
from tests.support.counted_lines import lines_run

Shape = Callable[[int], str]


def nested_python(count: int) -> str:
    heads = "".join(" " * depth + f"def f{depth}(alpha):\n" for depth in range(count))
    return f"{heads}{' ' * count}return alpha\n"


SHAPES: dict[str, Shape] = {
    "nested.py": nested_python,
    "nested.js": lambda n: (
        "".join(f"function f{i}(alpha) {{ " for i in range(n)) + "alpha" + "}" * n
    ),
    "many.py": lambda n: "".join(f"def f{i}(alpha):\n    return alpha\n" for i in range(n)),
    "called.py": lambda n: "".join(
        f"def f{i}(alpha):\n    return f{i - 1}(alpha=alpha)\n" for i in range(1, n)
    ),
    "methods.py": lambda n: (
        "class C:\n"
        + "".join(
            f"    def f{i}(self, alpha):\n        return self.f{i}(alpha=alpha)\n" for i in range(n)
        )
    ),
    "decorated.py": lambda n: "".join(
        f"@cache\ndef f{i}(alpha):\n    return alpha\n" for i in range(n)
    ),
    "escapes.py": lambda n: "alpha = '" + "\\nalpha" * n + "'\n",
}  # fmt: skip


def rename(path: str, text: str) -> None:
    assert by_rule(Request("edit", text, path, instruction="Rename alpha to beta"))


@pytest.mark.parametrize("name", SHAPES)
def test_twice_the_text_is_twice_the_work(name: str) -> None:
    small, large = (SHAPES[name](count) for count in (60, 120))
    rename(name, small)  # what is loaded and compiled once does not count
    assert lines_run(lambda: rename(name, large)) < 2.3 * lines_run(lambda: rename(name, small))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.js", "let top = 1;" + "{" * 60 + "let alpha = top;" + "}" * 60),
        ("a.py", "def f(alpha): pass\nf(alpha=1)\n" + "eval('')\n" * 60),
    ],
)  # fmt: skip
def test_too_much_work_is_left_to_the_model(
    path: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "MAX_STEPS", 50)
    tree = parse(path, text)
    assert tree and not tree.errors
    assert by_rule(Request("edit", text, path, instruction="Rename alpha to beta")) is None
