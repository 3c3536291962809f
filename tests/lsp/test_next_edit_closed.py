"""Next edits in files that are not open.

The model is a chain, whose answer is always "x=9".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import FENCE, chain_model
from tests.support.lsp_editor import Editor, LocalServer, edited, local_server, parts, ready

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
HOME = "yy = 1\nprint(2)\n"
USER = "from a import yy\n\nyy=9\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    root = tmp_path_factory.mktemp("closed")
    (root / "server").mkdir()
    with local_server(root / "server", str(chain_model(root / "model", "x=9", FENCE))) as running:
        yield running


@asynccontextmanager
async def opened(server: LocalServer, folder: Path, **files: str) -> AsyncIterator[Editor]:
    """An editor in a folder of these Python files, with a.py open."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, newline="")
    async with ready(server.port, folder) as one:
        one.open((folder / "a.py").as_uri(), files["a"])
        yield one


async def next_edit(one: Editor, uri: str) -> dict[str, Any]:
    asked = {"textDocument": one.doc(uri), "position": one.at(uri, "print")}
    answer: dict[str, Any] = await one.ask("draftline/nextEdit", asked)
    return answer


async def test_a_renamed_name_is_offered_in_a_file_that_imports_it(
    server: LocalServer, tmp_path: Path
) -> None:
    async with opened(server, tmp_path, a=HOME, b=USER) as one:
        uri, other = ((tmp_path / name).as_uri() for name in ("a.py", "b.py"))
        one.type(uri, 0, "x", "yy")
        answer = await next_edit(one, uri)
        assert answer["location"]["uri"] == other and answer["reason"] == "yy was renamed to x"
        (change,) = answer["edit"]["documentChanges"]
        assert change["textDocument"] == {"uri": other, "version": None}
        made = edited(USER, parts(answer["edit"])[other], one.encoding)
        assert made == USER.replace("import yy", "import x")
        assert [(place["uri"], place["label"]) for place in answer["others"]] == [
            (other, "yy was renamed to x")
        ]
        assert answer["others"][0]["range"]["start"]["line"] == 2
        one.open(other, USER)
        again = await next_edit(one, uri)
        assert again["edit"]["documentChanges"][0]["textDocument"]["version"] == 1


@pytest.mark.parametrize(
    ("home", "files"),
    [
        (HOME, {"b": "yy=9\n"}),  # of its own: it does not speak of a.py
        (HOME, {"b": USER.replace("yy", "yyy")}),
        ("yy = 1\nprint(yy)\n", {"b": USER}),  # first in the file itself
    ],
)
async def test_nothing_is_offered_in_other_files(
    server: LocalServer, tmp_path: Path, home: str, files: dict[str, str]
) -> None:
    async with opened(server, tmp_path, a=home, **files) as one:
        uri = (tmp_path / "a.py").as_uri()
        one.type(uri, 0, "x", "yy")
        answer = await next_edit(one, uri)
        places = [answer["location"], *answer["others"]]
        assert all(place is None or place["uri"] == uri for place in places)


async def test_a_file_that_is_gone_or_changed_is_not_edited(
    server: LocalServer, tmp_path: Path
) -> None:
    async with opened(server, tmp_path, a=HOME, b=USER, c=USER) as one:
        (tmp_path / "b.py").unlink()
        (tmp_path / "c.py").write_text("nothing\n")
        uri = (tmp_path / "a.py").as_uri()
        one.type(uri, 0, "x", "yy")
        answer = await next_edit(one, uri)
        assert answer["edit"] is None and answer["others"] == []
