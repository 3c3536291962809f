"""Names that an import can bring: those of the other file, by rule; no others by the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.scopes.exports import exports
from lsp_server.completion.import_names import (
    certain,
    import_place,
    importable,
    missing,
    reader,
    undefined,
)
from tests.lsp.test_complete import figures, inline, listed, why
from tests.support.command import EOS, chain_model
from tests.support.lsp_editor import LocalServer, local_server, ready

CURSOR = "¦"
FILES = {
    "/p/pkg/__init__.py": "from .mod import Foo\n__version__ = '1'\n",
    "/p/pkg/mod.py": "import os\nfrom .base import *\n\nclass Foo: ...\ndef foo(): ...\n_own = 1\n",
    "/p/pkg/base.py": "class Base:\n    inner = 1\nTYPES = {}\n_hidden = 2\n",
    "/p/pkg/lazy.py": "def __getattr__(name): ...\nknown = 1\n",
    "/p/src/other.py": "import missing_one\nfrom nowhere import *\nx = 1\n",
    "/p/web/x.ts": (
        "import { z } from './y';\nexport const one = 1, { two } = z;\nfunction three() {}\n"
        "export { three, z as four };\nexport interface Shape {}\nexport * from './y';\n"
        "export default three;\nconst own = 1;\n"
    ),
    "/p/web/y.js": "export class Deep { inner() {} }\nexport function z() {}\n",
    "/p/web/common.js": "exports.a = 1;\nmodule.exports.b = () => 2;\n",
    "/p/web/whole.js": "const a = 1;\nmodule.exports = { a, b: 2, c() {} };\n",
    "/p/web/built.js": "module.exports = make();\n",
}
STATEMENTS = (
    "{} = 1", "def {}(): inner = 1", "class {}:\n    inner = 1", "import os as {}", "{}: int = 2",
    "for {} in (1, 2):\n    pass", "try:\n    {} = 1\nexcept ValueError:\n    pass",
    "if True:\n    from os import path as {}", "({}, *rest) = (1, 2)", "import os.path",
    "def sets():\n    global {}\n    {} = 1\nsets()", "x = [i for i in (1,)]", "({} := 3)",
)  # fmt: skip
NAMES = st.sampled_from(["alpha", "Beta", "_gamma", "delta1"])


def at(path: str, marked: str) -> tuple[str, int, list[str]]:
    """A text with a mark for the cursor: the text, the offset, and the names offered there."""
    offset = marked.index(CURSOR)
    text = marked.replace(CURSOR, "")
    place = import_place(path, text, offset)
    return text, offset, importable(place, exports(path, place.module, FILES.get)) if place else []


@given(st.lists(st.tuples(st.sampled_from(STATEMENTS), NAMES), max_size=6))
def test_a_module_has_the_names_that_running_it_gives_it(made: list[tuple[str, str]]) -> None:
    text = "\n".join(statement.format(name, name) for statement, name in made) + "\n"
    module = ModuleType("made")
    exec(text, module.__dict__)  # the oracle
    given = {name for name in vars(module) if not name.startswith("__")}
    found = exports("/p/app.py", "made", {"/p/made.py": text}.get)
    assert found.is_complete and set(found.names) == given


def nothing(_path: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("path", "marked", "names"),
    [
        ("/p/pkg/a.py", "from .mod import ¦", "Foo foo TYPES Base os"),
        ("/p/pkg/a.py", "from .mod import Fo¦", "Foo"),
        ("/p/pkg/a.py", "from .mod import Foo, ¦", "foo TYPES Base os"),
        (
            "/p/pkg/a.py",
            "from .mod import (\n    Foo,  # first\n    ¦\n    foo,\n)",
            "TYPES Base os",
        ),
        ("/p/pkg/a.py", "from .mod import (¦)", "Foo foo TYPES Base os"),
        ("/p/pkg/a.py", "from .mod import _¦", "_own"),
        ("/p/pkg/a.py", "from .mod import Foo as ¦", ""),
        ("/p/pkg/a.py", "from .mod import Fo¦x", ""),
        ("/p/pkg/a.py", "x = 1  # from .mod import ¦", ""),
        ("/p/app.py", "from pkg.mod import T¦", "TYPES"),
        ("/p/app.py", "from pkg import ¦", "Foo"),
        ("/p/tests/test_it.py", "if x:\n    from other import ¦", "x missing_one"),
        ("/p/app.py", "from json import ¦", ""),
        ("/p/web/a.ts", "import { ¦ } from './x'", "one two three four Shape Deep z"),
        ("/p/web/a.ts", "import type { S¦ } from './x.js';", "Shape"),
        ("/p/web/a.ts", "import main, { two, t¦ } from './x';", "three"),
        ("/p/web/a.ts", "export { t¦, two } from './x';", "three"),
        ("/p/web/a.ts", "import { one as t¦ } from './x';", ""),
        ("/p/web/a.js", "const { ¦ } = require('./common');", "a b"),
        ("/p/web/a.js", "const { a, ¦ } = require('./whole');", "b c"),
        ("/p/web/a.js", "const { ¦ } = props;", ""),
        ("/p/web/a.js", "import { ¦ } from 'react';", ""),
    ],
)
def test_what_the_other_file_has_is_offered(path: str, marked: str, names: str) -> None:
    assert sorted(at(path, marked)[2]) == sorted(names.split())
    own = [name for name in at(path, marked)[2] if name in {"Foo", "foo", "one", "x"}]
    assert at(path, marked)[2][: len(own)] == own  # what it defines comes first


@pytest.mark.parametrize(
    ("path", "marked", "text"),
    [
        ("/p/pkg/a.py", "from .mod import Fo¦\n", "o"),
        ("/p/pkg/a.py", "from .mod import ¦\n\nx = Foo(TYPES)\n", "Foo, TYPES"),
        ("/p/pkg/a.py", "from .mod import ¦\n\ndef f(Foo): return Foo + Base\n", "Base"),
        ("/p/pkg/a.py", "from .mod import Foo, ¦\n\nFoo(), foo()\n", "foo"),
        ("/p/pkg/a.py", "from .mod import Foo¦\n\nFoo\n", ""),
        ("/p/pkg/a.py", "from .mod import ¦\n", ""),
        ("/p/pkg/a.py", "from .mod import ¦\n\nx.Foo\n", ""),
        ("/p/web/a.ts", "import { ¦ } from './x'\n\nnew Deep(one)\n", "one, Deep"),
        ("/p/web/a.ts", "import { S¦ } from './x'\n\nlet s: string;\n", "hape"),
    ],
)
def test_what_is_certainly_meant(path: str, marked: str, text: str) -> None:
    whole, offset, names = at(path, marked)
    place = import_place(path, whole, offset)
    assert place and certain(place, names, path, whole) == text


@pytest.mark.parametrize(
    ("path", "marked", "answer", "why"),
    [
        ("/p/pkg/a.py", "from .mod import ¦\n", "Foo", ""),
        ("/p/pkg/a.py", "from .mod import ¦\n", "Bar", ".mod has no Bar"),
        ("/p/pkg/a.py", "from .mod import B¦\n", "ar, Foo", ".mod has no Bar"),
        ("/p/pkg/a.py", "¦\n", "from .mod import Foo as Bar\n", ""),
        ("/p/pkg/a.py", "¦\n", "from .mod import (\n    Foo,\n    Bar,\n)", ".mod has no Bar"),
        ("/p/pkg/a.py", "¦\nfrom .mod import Old\n", "x = 1", ""),
        ("/p/pkg/a.py", "from .lazy import ¦\n", "anything", ""),
        ("/p/pkg/a.py", "from json import ¦\n", "anything", ""),
        ("/p/app.py", "from other import ¦\n", "anything", ""),
        (
            "/p/a.py",
            "from typing import (\n    ¦\n    Any,\n)\n",
            "Any,",
            "Any is imported already",
        ),
        ("/p/a.py", "from typing import ¦\n", "Any, List", ""),
        ("/p/web/a.ts", "import { ¦ } from './x'\n", "five", "./x has no five"),
        ("/p/web/a.ts", "¦\n", "import { one as five, type Shape } from './x';", ""),
        ("/p/web/a.js", "const { ¦ } = require('./built');\n", "anything", ""),
    ],
)
def test_what_the_other_file_lacks_is_not_imported(
    path: str, marked: str, answer: str, why: str
) -> None:
    before, after = marked.split(CURSOR)
    assert missing(path, before, answer, after, FILES.get) == why


def test_a_module_that_is_not_there_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "styles.css").touch()
    (tmp_path / "fast.cpython-311.so").touch()
    for path, line, wrong in (
        ("a.py", "from .nope import x", "there is no .nope"),
        ("a.py", "from .fast import x", ""),
        ("a.ts", "import { x } from './nope'", "there is no ./nope"),
        ("a.ts", "import { x } from './styles.css'", ""),
    ):
        assert missing(str(tmp_path / path), "", line, "\n", nothing) == wrong
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").touch()
    inside = str(tmp_path / "own" / "a.py")
    assert missing(inside, "", "from own.nope import x", "\n", nothing) == "there is no own.nope"
    assert missing(inside, "", "from other.nope import x", "\n", nothing) == ""
    assert missing("/not/there/a.py", "", "from .nope import x", "\n", nothing) == ""


def test_files_outside_of_the_workspace_are_not_read(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root, other):
        folder.mkdir()
        (folder / "a.py").write_text("x = 1\n")
    (root / "link").symlink_to(other)
    read = reader({"/open.py": "y"}, [root])
    assert read(str(root / "a.py")) == "x = 1\n" and read("/open.py") == "y"
    for path in (other / "a.py", root / ".." / "other" / "a.py", root / "link" / "a.py"):
        assert read(str(path)) is None


@pytest.mark.parametrize(
    ("marked", "answer", "name"),
    [
        ("def f(a):\n    return ¦\n", "Foo(a)", "Foo"),
        ("def f(a):\n    return ¦\n\nclass Foo: ...\n", "Foo(a)", ""),
        ("def f(a):\n    return ¦\n", "helper(a)", "helper"),
        ("def f(a):\n    return ¦\n", "a.helper(b=len(a))", ""),
        ("def f(a):\n    ¦\n", "helper = a\n    helper(a)", ""),
        ("def f(a, b¦):\n    pass\n", "=LIMIT", "LIMIT"),
        ("try:\n    f()\nexcept ¦\n    pass\n", "FooError:", "FooError"),
        ("¦\n", "import os as LIMIT\nprint(LIMIT)", ""),
        ("def f(a):\n    return ¦\n", "os.path.join(a)", ""),
        ("from x import *\n\ny = ¦\n", "Foo()", ""),
        ("x = 1\ny = ¦\n", "later + x", ""),
    ],
)
def test_what_nothing_defines_is_not_used(marked: str, answer: str, name: str) -> None:
    before, after = marked.split(CURSOR)
    assert undefined("/p/a.py", before, answer, after) == (
        f"nothing defines {name}" if name else ""
    )
    assert undefined("/p/a.js", before, answer, after) == ""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    root = tmp_path_factory.mktemp("imports")
    with local_server(root, str(chain_model(root / "model", "xyz=1,abc+de", EOS))) as server:
        yield server


@pytest.mark.asyncio
async def test_an_editor_is_offered_the_names_of_open_and_closed_files(
    server: LocalServer, tmp_path: Path
) -> None:
    (tmp_path / "mod.py").write_text("class Foo: ...\nclass Foil: ...\n")
    settings: Any = {"debounceMs": 0, "maxTimeMs": 60_000}
    async with ready(server.port, tmp_path, settings=settings) as one:
        line = "from .mod import Fo"
        uri = one.open((tmp_path / "a.py").as_uri(), f"{line}\n\nFoil()\n")
        before, _ = await figures(one)
        (item,) = await inline(one, uri, len(line))
        assert item["insertText"] == "il" and "certainly" in await why(one)
        assert [each["label"] for each in await listed(one, uri, len(line))] == ["Foo", "Foil"]
        one.open((tmp_path / "mod.py").as_uri(), "def For(): ...\n")  # not saved
        items = await listed(one, uri, len(line))
        assert [each["label"] for each in items] == ["For"]
        assert items[0]["textEdit"]["range"]["start"] == one.at(uri, len(line) - 2)
        assert (await figures(one))[0] == before  # the model was not asked
