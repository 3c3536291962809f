"""A rename across files changes all that refer to the same thing, in every file, or nothing."""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.editing.edits import EditRefused
from engine.editing.rename_files import Doubtful, Renamed, rename_files
from engine.editing.rename_request import read


def renamed(
    folder: Path, files: dict[str, str], instruction: str, others: tuple[str, ...] = ()
) -> dict[str, str] | None:
    """The files that change, by name, after an instruction for all but `others`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    paths = {str(folder / name): text for name, text in files.items()}
    chosen = {path: text for path, text in paths.items() if Path(path).name not in others}
    rest = {path: text for path, text in paths.items() if path not in chosen}
    made = rename_files(chosen, rest, read(instruction))
    if made is None:
        return None
    done = {path: each.text for path, each in made.items() if each.text != paths[path]}
    return {str(Path(path).relative_to(folder)): text for path, text in done.items()}


# -- Python ------------------------------------------------------------------------------------

HOME = "def area(x):\n    return x + 1\n"
HOMES = [HOME, f"{HOME}area_of = area\n", f"__all__ = ['area']\n{HOME}"]
USES = [
    "from home import area\nout.append(area(1))\n",
    "from home import area as size\nout.append(size(1))\n",
    "from home import (\n    area,  # area\n)\nout.append([area(x) for x in (1, 2)])\n",
    "import home\nout.append(home.area(1))\n",
    "import home as h\nout.append(h.area(2))\n",
    "from kit import other\nout.append(other.area(3))\n",
    "import kit.other\nout.append(kit.other.area(3))\n",
    "def f(area):\n    return area\nout.append(f(3))\n",
    "def g(*, area):\n    return area\nout.append(g(area=3))\n",
    "class C:\n    area = 5\nout.append(C.area)\nout.append(C().area)\n",
    "def k():\n    from home import area\n    return area(4)\nout.append(k())\n",
    "def k():\n    import home\n    return home.area(4)\nout.append(k())\n",
    "area = 7\nout.append(area)\n",
    "from home import *\nout.append(area(1))\n",
    "import home\nout.append(getattr(home, 'area')(1))\n",
    "import home\ndef call(m):\n    return m.area(1)\nout.append(call(home))\n",
    "import sys, home\nout.append(sys.modules['home'].area(1))\n",
    "from first import area\nout.append(area(1))\n",
    "import first\nout.append(first.area(1) if callable(getattr(first, 'x', 1)) else 0)\n",
    "import first\nout.append(first.home.area(1))\n",
    "from first import home\nout.append(home.area(1))\n",
    "try:\n    from home import area\nexcept ImportError:\n    area = None\nout.append(area(1))\n",
    "# area\nout.append('area')\n",
    "__all__ = ['area']\nfrom home import area\nout.append(len(__all__))\n",
    "surface = 9\nout.append(surface)\n",
    "from home import area\ndef m(surface):\n    return area(surface)\nout.append(m(1))\n",
    "from home import area\nout.append(eval('area(1)'))\n",
    "from home import area\nout.append((lambda area=area: area(1))())\n",
    "from kit.inner import area\nout.append(area(1))\n",
    "from kit import area\nout.append(area(1))\n",
    "import kit\nout.append(kit.area(1))\n",
    "import kit as k\nout.append(k.area(1))\n",
    "import kit.inner as k\nout.append(k.area(1))\n",
]
modules = st.lists(st.sampled_from(USES), max_size=3).map("".join)


@st.composite
def programs(draw: Any) -> dict[str, str]:
    """Modules that use the function of home.py, which each have a list `out` of what they found."""
    inner = draw(st.sampled_from(["", "from home import area\n", "from ..home import area\n"]))
    tops = [
        "",
        "from .inner import area\n",
        "from kit.inner import area\n",
        "from .inner import *\n",
    ]
    top = draw(st.sampled_from(tops))
    return {
        "home.py": draw(st.sampled_from(HOMES)),
        "first.py": f"out = []\n{draw(modules)}",
        "second.py": f"out = []\n{draw(modules)}",
        "kit/__init__.py": top if inner == "from home import area\n" else "",
        "kit/inner.py": inner.replace("from ..home", "from home"),
        "kit/other.py": "def area(x):\n    return x * 10\n",
    }  # fmt: skip


FUNCTION = "Rename the function area to surface"


def with_another(files: dict[str, str]) -> tuple[str, ...]:
    """The files that have a variable or function of this name themselves: they are not chosen."""
    other = [name for name, text in files.items() if "\narea = " in text]
    return ("other.py", *other)


def outcome(folder: Path, files: dict[str, str]) -> dict[str, Any]:
    """What each module has found, or the kind of error that it ends with."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before, found = {*sys.modules}, {}
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        for name in ("home", "first", "second", "kit", "kit.inner"):
            try:
                found[name] = getattr(importlib.import_module(name), "out", None)
            except Exception as error:
                found[name] = type(error)
    finally:
        sys.path.remove(str(folder))
        for name in {*sys.modules} - before:
            if name.split(".")[0] in {"home", "first", "second", "kit"}:
                del sys.modules[name]
    return {name: repr(value) for name, value in found.items()}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
@example({"home.py": HOME, "first.py": "out = []\n" + USES[0], "second.py": "out = []\n"})
def test_python_programs_do_what_they_did(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EditRefused):
        before = outcome(Path(folder) / "before", files)
        changed = renamed(Path(folder) / "at", files, FUNCTION, with_another(files))
        assert changed and "surface" in changed["home.py"]
        after = outcome(Path(folder) / "after", files | changed)
        assert after == before


@pytest.mark.parametrize(
    "body",
    [
        "    area = area\n    m = area",
        "    area += 1\n    m = area",
        "    if out: area = 2\n    m = area",
        "    area = 2\n    del area\n    m = area",
        "    area = 2\n    m = [area for _ in [1]]",
        "    area = 2\n    def m(self): return area",
    ],
)
def test_a_class_may_read_the_name_of_its_module(tmp_path: Path, body: str) -> None:
    """Where its own is not set yet, or no longer, and in its functions."""
    text = f"out = []\narea = 1\nclass A:\n{body}\nout = A().m() if callable(A.m) else A.m\n"
    before, after = dict[str, Any](), dict[str, Any]()
    exec(text, before)
    with contextlib.suppress(EditRefused):
        changed = renamed(tmp_path, {"a.py": text}, "Rename area to surface")
        exec(changed["a.py"] if changed else text, after)
        assert after["out"] == before["out"]


def test_every_plain_use_is_renamed(tmp_path: Path) -> None:
    """The law above would hold if all were refused."""
    plain = [USES[number] for number in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 23, 27)]
    for number, use in enumerate(plain):
        files = {
            "home.py": HOME,
            "kit/__init__.py": "",
            "kit/other.py": "area = abs\n",
            "first.py": f"out = []\n{use}",
        }
        changed = renamed(
            tmp_path / str(number), files, "Rename the function area to surface", ("other.py",)
        )
        assert changed and changed["home.py"] == HOME.replace("area", "surface"), use
        assert ("first.py" in changed) == ("home" in use), use


@pytest.mark.parametrize(
    ("files", "others", "message"),
    [
        ({"a.py": HOME, "b.py": "from a import area\n"}, ("b.py",), "b.py uses `area`: choose it"),
        ({"a.py": HOME, "b.py": "from a import area\n"}, ("a.py",), "defined in a.py: choose it"),
        ({"a.py": HOME, "b.py": HOME}, (), "defined in a.py and b.py"),
        ({"a.py": HOME, "b.py": "from a import *\narea(1)\n"}, (), "b.py: .*import"),
        ({"a.py": HOME, "b.py": "from a import area\nsurface = 1\n"}, (), "is used already"),
        (
            {"a.py": HOME, "b.py": "from a import area\n(\n"},
            (),
            "b.py has `area`, and it has syntax",
        ),
        ({"a.py": HOME, "b.py": "patch('a.area')\n"}, (), 'the string "a.area" may name it'),
        (
            {"a.py": HOME, "src/a.py": "", "src/b.py": "from a import area\n"},
            (),
            "not certain",
        ),
        (
            {
                "a.py": HOME,
                "kit/__init__.py": "from a import *\n",
                "b.py": "from kit import area\n",
            },
            (),
            "by `import",
        ),
        (
            {
                "a.ts": "export const area = 1\n",
                "b.ts": "export * from './a'\n",
                "c.ts": "import { area } from './b'\n",
            },
            (),
            "by `export",
        ),
        ({"a.py": "x = 1\n"}, (), "in none of these files"),
        (
            {"a.py": "class C:\n    def area(self): pass\n", "b.py": "def f(c):\n    c.area()\n"},
            ("b.py",),
            "b.py may use `area` of a.py",
        ),
        (
            {"a.py": "def f(area): return area\n", "b.py": "from a import f\nf(area=1)\n"},
            ("b.py",),
            "b.py may use `area` of a.py",
        ),
    ],
)  # fmt: skip
def test_refused(
    tmp_path: Path, files: dict[str, str], others: tuple[str, ...], message: str
) -> None:
    with pytest.raises(EditRefused, match=message):
        renamed(tmp_path, files, "Rename area to surface", others)


def test_names_of_one_file_are_renamed_in_each(tmp_path: Path) -> None:
    files = {
        "a.py": "def f(n):\n    return n\n",
        "b.ts": "function g(n: number) { return n; }\n",
    }
    changed = renamed(tmp_path, files, "Rename n to count")
    assert changed == {
        "a.py": "def f(count):\n    return count\n",
        "b.ts": "function g(count: number) { return count; }\n",
    }


def test_several_renames_and_what_the_user_should_know(tmp_path: Path) -> None:
    files = {
        "a.py": "def f(): pass\ndef g(): pass\n",
        "b.py": "from a import f, g\n",
        "c.md": "f\n",
    }
    paths = {str(tmp_path / name): text for name, text in files.items()}
    for path, text in paths.items():
        Path(path).write_text(text)
    made = rename_files(paths, {}, read("Rename f to first and g to second"))
    assert made is not None
    home, user, prose = made.values()
    assert home.text == "def first(): pass\ndef second(): pass\n"
    assert user.text == "from a import first, second\n"
    assert user.title == "`f` renamed to `first` in 1 place; `g` renamed to `second` in 1 place"
    assert prose.text == "f\n" and any("c.md" in note for note in home.notes)


# -- files that are not read as code -------------------------------------------------------------

JS_HOME = {"a.ts": "export function area(x) { return x }\n"}
PY_HOME = {"a.py": HOME}
MEMBER = {"a.py": "class C:\n    def area(self): pass\n"}
VUE = '<script setup lang="ts">\nimport { area } from "./a"\narea(1)\n</script>\n'
NOTEBOOK = '{"cells": [{"cell_type": "code", "source": ["from a import area\\n", "area(1)"]}]}'
NAME_BEHIND_ESCAPE = '{"cells": [{"cell_type": "code", "source": "import a\\narea(1)"}]}'
EXAMPLES = [
    "# Use\n\n```python\nfrom a import area\n```\n",
    "> * ~~~~\n> area(1)\n> ~~~~\n",
    "Try:\n\n>>> area(1)\n2\n",
    "Try::\n\n    area(1)\n",
    "````\n```\n````\n\n```\narea\n",
]
PROSES = [
    "The area of a page.\n",
    "```\nx\n```\nThe area.\n",
    "Call `area`.\n",
    "````\n```\n````\narea\n",
]


def made_for(
    folder: Path, files: dict[str, str], others: dict[str, str], anyway: bool = False
) -> dict[str, Renamed]:
    """The files, by name, after a rename of `area` to `surface`."""
    paths = [{str(folder / name): text for name, text in each.items()} for each in (files, others)]
    for each in paths:
        for path, text in each.items():
            Path(path).write_text(text)
    made = rename_files(*paths, read("Rename area to surface"), anyway)
    assert made is not None
    return {Path(path).name: each for path, each in made.items()}


UNREAD = [
    (JS_HOME, "View.vue", VUE),
    (JS_HOME, "View.svelte", VUE),
    (JS_HOME, "page.astro", "---\nimport { area } from './a'\n---\n<p>{area(1)}</p>\n"),
    (JS_HOME, "page.mdx", "import { area } from './a'\n\n# {area(1)}\n"),
    (JS_HOME, "index.html", "<script type=module>import { area } from './a.js'</script>\n"),
    (JS_HOME, "list.html", "<app-list (click)='area(1)'></app-list>\n"),
    (JS_HOME, "broken.ts", "import { area } from './a'\nf(area\n"),
    (PY_HOME, "n.ipynb", NOTEBOOK),
    (PY_HOME, "n.ipynb", NAME_BEHIND_ESCAPE),
    (PY_HOME, "fast.pyx", "from a cimport area\n"),
    (PY_HOME, "page.jinja", "{{ area(1) }}\n"),
    (PY_HOME, "pyproject.toml", "[project.scripts]\narea = 'a:area'\n"),
    (PY_HOME, "run.sh", "python -c 'from a import area; area(1)'\n"),
    (PY_HOME, "tasks.json", '{"run": "a.area"}\n'),
    (PY_HOME, "broken.py", "from a import area\n(\n"),
    (MEMBER, "page.html", "{{ c.area }}\n"),
    *[(PY_HOME, "README.md", text) for text in EXAMPLES],
    (PY_HOME, "use.rst", EXAMPLES[3]),
]  # fmt: skip


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize(("files", "name", "text"), UNREAD)
def test_a_file_that_is_not_read_as_code_stops_a_rename(
    tmp_path: Path, files: dict[str, str], name: str, text: str, chosen: bool
) -> None:
    """Unless the user wants it anyway: then the file stays as it is, and a note says so."""
    more, others = (files | {name: text}, {}) if chosen else (files, {name: text})
    (home,) = files
    with pytest.raises(Doubtful, match=f"^{name} has `area`, and it .*: rename it by hand"):
        made_for(tmp_path, more, others)
    made = made_for(tmp_path, more, others, anyway=True)
    assert made[home].text == files[home].replace("area", "surface")
    assert any(name in note and "cannot be read as code" in note for note in made[home].notes)
    if chosen:
        assert made[name].text == text
        assert made[name].notes == ("`area` stays in this file: it cannot be read as code",)


def test_a_file_with_syntax_errors_may_use_a_member(tmp_path: Path) -> None:
    broken = {"broken.py": "c.area(\n"}
    with pytest.raises(Doubtful, match=r"^broken\.py has `area`, and it has syntax errors"):
        made_for(tmp_path, MEMBER, broken)
    made = made_for(tmp_path, MEMBER, broken, anyway=True)
    assert made["a.py"].text == MEMBER["a.py"].replace("area", "surface")


def test_all_such_files_are_named_in_one_line(tmp_path: Path) -> None:
    others = {"A.vue": VUE, "B.vue": VUE, "c.html": "area", "d.html": "area"}
    with pytest.raises(Doubtful, match=r"^A\.vue, B\.vue, c\.html and 1 more have `area`"):
        made_for(tmp_path, JS_HOME, others)


@pytest.mark.parametrize(
    ("files", "name", "text"),
    [
        *[(PY_HOME, "README.md", text) for text in PROSES],
        (PY_HOME, "View.vue", VUE),
        (JS_HOME, "fast.pyx", "area = 1\n"),
        (PY_HOME, "a.c", "int area(int x);\n"),
        (PY_HOME, "b.go", "package b\n\nfunc area() {}\n"),
    ],
)
def test_a_file_that_cannot_use_the_name_is_only_noted(
    tmp_path: Path, files: dict[str, str], name: str, text: str
) -> None:
    (home,) = files
    made = made_for(tmp_path, files, {name: text})
    assert made[home].notes == (f"`area` is also in {name}, for something else or in a text",)


def test_names_of_one_file_are_not_in_others(tmp_path: Path) -> None:
    local = {"a.py": "def f(area):\n    return area\n"}
    made = made_for(tmp_path, local, {"n.ipynb": NOTEBOOK, "page.html": "{{ area }}"})
    assert made["a.py"].text == local["a.py"].replace("area", "surface")


STUB = "def area(x: int) -> int: ...\n"


def test_stubs_are_renamed_with_their_files(tmp_path: Path) -> None:
    files = {
        **PY_HOME,
        "a.pyi": STUB,
        "b.py": "import a\na.area(1)\n",
        "c.pyi": "from a import area\ndef f(x: area) -> None: ...\n",
    }
    changed = renamed(tmp_path, files, "Rename area to surface")
    assert changed == {name: text.replace("area", "surface") for name, text in files.items()}
    for one in ("a.py", "a.pyi", "c.pyi"):
        with pytest.raises(EditRefused, match=one):
            renamed(tmp_path, files, "Rename area to surface", (one,))
    alone = renamed(tmp_path / "alone", {"d.pyi": STUB}, "Rename area to surface")
    assert alone == {"d.pyi": STUB.replace("area", "surface")}


# -- JavaScript and TypeScript -----------------------------------------------------------------

EXPORTED = "export function area(x) { return x }\n"


@pytest.mark.parametrize(
    ("user", "new"),
    [
        ("import { area } from './a'\narea(1)\n", "import { surface } from './a'\nsurface(1)\n"),
        (
            "import { area as b } from './a.js'\nb(1)\n",
            "import { surface as b } from './a.js'\nb(1)\n",
        ),
        (
            "import { area } from './a'\nf({ area })\n",
            "import { surface } from './a'\nf({ area: surface })\n",
        ),
        ("import * as a from './a'\na.area(1)\n", "import * as a from './a'\na.surface(1)\n"),
        ("export { area } from './a'\n", "export { surface } from './a'\n"),
        ("export { area as b } from './a'\n", "export { surface as b } from './a'\n"),
        ("import x, { type T, area } from './a'\n", "import x, { type T, surface } from './a'\n"),
        ("import { area } from './b'\narea(1)\n", None),
        ("import { area } from 'lib'\narea(1)\n", None),
        ("import area from './a'\narea(1)\n", None),
        ("const area = 1\n", None),
    ],
)  # fmt: skip
def test_scripts(tmp_path: Path, user: str, new: str | None) -> None:
    changed = (
        renamed(
            tmp_path, {"a.ts": EXPORTED, "user.ts": user}, "Rename area to surface", ("user.ts",)
        )
        if new is None
        else renamed(tmp_path, {"a.ts": EXPORTED, "user.ts": user}, "Rename area to surface")
    )
    assert changed == {"a.ts": EXPORTED.replace("area", "surface")} | (
        {"user.ts": new} if new else {}
    )


def test_re_exports_are_followed(tmp_path: Path) -> None:
    files = {
        "a/index.ts": "const area = 1\nexport { area }\n",
        "b.ts": "export * from './a' // area\n",
        "c.tsx": "import { area } from './b'\nexport const c = area\n",
        "d.ts": "import { area } from './a/index'\nexport { area }\n",
        "e.ts": "import { area as x } from './d'\n",
    }
    changed = renamed(tmp_path, files, "Rename area to surface")
    files.pop("b.ts")
    assert changed == {name: text.replace("area", "surface") for name, text in files.items()}


@pytest.mark.parametrize(
    "user",
    [
        "const { area } = require('./a')\n",
        "const a = await import('./a')\na.area()\n",
        "import * as a from './a'\nf(a)\na.area()\n",
        "import { area } from '@/a'\narea()\n",
        "export * as a from './a'\nconst area = 1\n",
        "import { area } from './a'\nconst surface = 1\n",
        "import { area } from './a'\nf(area\n",
    ],
)
def test_scripts_that_are_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(EditRefused):
        renamed(tmp_path, {"a.ts": EXPORTED, "user.ts": user}, "Rename area to surface")


def test_real_names_are_renamed_and_back(tmp_path: Path) -> None:
    """In this repository's own folders: there and back is the text that was."""
    root = Path(__file__).resolve().parents[2]
    files = {
        f"engine/{path.relative_to(root / 'engine')}": path.read_text()
        for folder in ("engine/editing", "engine/editing/scopes")
        for path in sorted((root / folder).glob("*.py"))
    } | {"lsp_server/__init__.py": ""}
    new = "renamed_here"
    for old in ("line_count", "Unsure", "parse", "EditRefused"):
        changed = renamed(tmp_path / old, files, f"Rename `{old}` to `{new}`")
        assert changed and len(changed) > 2
        for text in changed.values():
            nodes = [*ast.walk(ast.parse(text))]
            names = {getattr(node, field, "") for node in nodes for field in ("id", "name")}
            assert new in names and old not in names
        again = renamed(tmp_path / f"{old} back", files | changed, f"Rename `{new}` to `{old}`")
        assert again == {name: files[name] for name in changed}
