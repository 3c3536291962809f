"""Context snippets: definitions of names near the cursor, from other files as they are now, within
the token budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.prompts.tokenizer import Tokenizer
from lsp_server.completion.context_snippets import find_snippets, truncate_to_block
from tests.conftest import byte_bpe

SHAPES = '''"""Shapes."""


def area(width, height):
    """Of a rectangle."""
    return width * height


class Circle:
    def __init__(self, radius):
        self.radius = radius

    def perimeter(self):
        return 6.28 * self.radius

    def unrelated(self):
        return 0


def area_of(circle):
    return circle.radius
'''


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bpe")
    byte_bpe(folder)
    return Tokenizer(folder)


@pytest.fixture
def workspace(tmp_path: Path, workspaces: Any, bpe: Tokenizer) -> Any:
    (tmp_path / "shapes.py").write_text(SHAPES)
    made = workspaces(tmp_path, bpe)
    made.build()
    return made


def found(
    workspace: Any, bpe: Tokenizer, text: str, capacity: int = 10_000, name: str = "use.py"
) -> dict[str, str]:
    """The snippets for `text` with the cursor at its `|`, by head of the definition."""
    before, _, after = text.partition("|")
    path = workspace.key(Path(workspace.roots[0], name))
    shown = find_snippets(before, after, path, capacity, workspace, bpe)
    assert all(where == "shapes.py" for where, _ in shown)
    return {text.split("(")[0].strip(): text for _, text in shown}


def test_a_definition_ends_with_its_block(workspace: Any, bpe: Tokenizer) -> None:
    shown = found(workspace, bpe, "x = area(1, 2)\ny = circle.perimeter()|")
    assert shown == {
        "def area": 'def area(width, height):\n    """Of a rectangle."""\n'
        "    return width * height",
        "def perimeter": "def perimeter(self):\n    return 6.28 * self.radius",
    }


def test_the_nearest_name_comes_last_and_has_priority_in_the_budget(
    workspace: Any, bpe: Tokenizer
) -> None:
    text = "area(unrelated)\nperimeter(|)\narea_of"
    assert [*found(workspace, bpe, text)] == [
        "def area_of", "def area", "def unrelated", "def perimeter"
    ]  # fmt: skip
    whole = found(workspace, bpe, text)
    for capacity in range(0, 200, 7):
        shown = found(workspace, bpe, text, capacity)
        assert shown.items() <= whole.items()
        assert sum(len(bpe.encode(f"shapes.py\n{one}")) for one in shown.values()) <= capacity
    nearest = len(bpe.encode("shapes.py\n" + whole["def perimeter"])) + 4
    assert [*found(workspace, bpe, text, nearest)] == ["def perimeter"]


def test_names_defined_in_the_same_file_are_skipped(workspace: Any, bpe: Tokenizer) -> None:
    assert found(workspace, bpe, "area|", name="shapes.py") == {}
    assert found(workspace, bpe, "def area():\n    pass\narea|") == {}
    own = Path(workspace.roots[0], "use.py")
    workspace.update(own, "def area(x):\n    return x\n", 1)  # above the prompt's window
    assert found(workspace, bpe, "area|") == {}


def test_only_current_text_is_used(workspace: Any, bpe: Tokenizer) -> None:
    path = Path(workspace.roots[0], "shapes.py")
    workspace.update(path, "def area(side):\n    return side\n", 1)
    assert found(workspace, bpe, "area circle perimeter|") == {
        "def area": "def area(side):\n    return side"
    }
    workspace.update(path, "nothing\n", 2)
    assert found(workspace, bpe, "area perimeter|") == {}


def test_prose_and_longer_names_are_not_definitions(workspace: Any, bpe: Tokenizer) -> None:
    path = Path(workspace.roots[0], "shapes.py")
    workspace.update(path, "the class where of type where, const where*, def where_else(): 1\n", 1)
    assert found(workspace, bpe, "where|") == {}


def test_texts_without_known_names_have_no_snippets(workspace: Any, bpe: Tokenizer) -> None:
    for text in ("|", "return self|", "x = 1|", "no_such_name|", "<|end|> area_|"):
        assert found(workspace, bpe, text) == {}


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("def f(a):\n    return a\n\n\ndef g():\n    p", "def f(a):\n    return a"),
        ("def f(self):\n        return 1\n\n    def g(self):\n  ", "def f(self):\n    return 1"),
        (
            "def f(\n    a,\n) -> int:\n    return a\nx = 1\n",
            "def f(\n    a,\n) -> int:\n    return a",
        ),
        ("def f(self):\n        return g(1)\n\n    x", "def f(self):\n    return g(1)"),
        ("function f() {\n  return 1;\n}\n\nfunction g() {\n", "function f() {\n  return 1;\n}"),
        ("func F() int {\n\treturn 1\n}\n\nfunc G", "func F() int {\n\treturn 1\n}"),
        ("type X = number;\nconst a = 1;\n", "type X = number;"),
        ("def f(a):\n    b = 1\n    c = lo", "def f(a):\n    b = 1"),  # cut off
        ("def f(a", "def f(a"),
    ],
)
def test_where_a_definition_ends(text: str, block: str) -> None:
    assert truncate_to_block(text) == block
