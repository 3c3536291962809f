"""A new import goes where it would be if all were sorted; the oracle sorts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.imports import ImportEdit, tidy
from engine.editing.placed_imports import with_imports

MODULES = ["abc", "json", "os", "re", "numpy", "attrs", ".near", ".far"]
FROM = [f"from {module} import Thing" for module in MODULES]
IMPORTS = [*FROM, *(f"import {module}" for module in MODULES if module[0] != ".")]
SORT = ImportEdit(order=True)


@given(st.lists(st.sampled_from(IMPORTS), min_size=2, unique_by=lambda line: line.split()[1]))
def test_a_new_import_of_a_sorted_file_is_in_its_place(lines: list[str]) -> None:
    lines = [f"{line} as a{n}" for n, line in enumerate(lines)]
    kept, new = lines[:-1], lines[-1]
    text, _ = tidy("a.py", "\n".join(kept) + "\n\n\nx = 1\n", None, SORT)
    wanted, _ = tidy("a.py", "\n".join(lines) + "\n\n\nx = 1\n", None, SORT)
    assert with_imports("a.py", text, [new]) == wanted


@pytest.mark.parametrize(
    ("path", "old", "new", "wanted"),
    [
        ("a.py", "from a import b, d\n", "from a import c", "from a import b, c, d\n"),
        ("a.py", "from a import d, b\n", "from a import c", "from a import d, b, c\n"),
        ("a.py", "from a import (\n    b,\n)\n", "from a import c",
         "from a import (\n    b,\n)\nfrom a import c\n"),
        ("a.py", "import c\nimport b\n", "import a", "import c\nimport b\nimport a\n"),  # no order
        ("a.py", "from a import b\nimport c\n", "import b",
         "from a import b\nimport b\nimport c\n"),
        ("a.py", '"""Doc."""\n', "import a", '"""Doc."""\n\nimport a\n'),
        ("a.py", "import os\r\n", "import re", "import os\r\nimport re\r\n"),
        ("a.ts", 'import { a } from "m";\n', 'import { b } from "m";',
         'import { a, b } from "m";\n'),
        ("a.ts", 'import a from "./a";\n', 'import x from "x";',
         'import x from "x";\nimport a from "./a";\n'),
        ("a.ts", 'import x from "x";\n', 'import a from "./a";',
         'import x from "x";\nimport a from "./a";\n'),
        ("a.rs", "use a::b;\nuse c::d;\n", "use b::c;", "use a::b;\nuse b::c;\nuse c::d;\n"),
        ("a.c", "#include <b.h>\n#include \"c.h\"\n", "#include <a.h>",
         "#include <a.h>\n#include <b.h>\n#include \"c.h\"\n"),
        ("a.java", "import java.util.List;\n", "import java.io.File;",
         "import java.io.File;\nimport java.util.List;\n"),
        ("a.txt", "import os\n", "import re", "import os\n"),  # no language
    ],
)  # fmt: skip
def test_examples(path: str, old: str, new: str, wanted: str) -> None:
    assert with_imports(path, old, [new]) == wanted
