"""The page in a real browser, served by `draftline serve`. The scenarios are in scripts: normal use
in page.mjs, appearance and accessibility in look.mjs, injected markup in hostile.mjs, and logins in
users.mjs.

`DRAFTLINE_TEST_CACHE` names the folder for playwright-core; screenshots go to build/web.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support import sample_documents as papers
from tests.support.browser_scenarios import Scenarios
from tests.support.hostile_texts import NAME, NAMES, SAID, hostile_model
from tests.web.conftest import Play, Serve

pytestmark = pytest.mark.editors

SCENARIOS = {
    "page": [
        "the page is there",
        "an outline is there at once",
        "many files at once",
        "dropped with the mouse",
        "an answer streams",
        "a citation opens its passage",
        "a document is removed whose page is shown",
        "stopped midway",
        "regenerated",
        "history, and its export",
        "the sample and its questions",
        "one window does not see another's",
        "a summary",
        "a summary that is stopped has all but the statement",
        "an edit, accepted in part",
        "the same text, sooner",
    ],
    "look": [
        "with the keyboard alone",
        "everything has a name",
        "axe finds nothing serious",
        "code can be read",
        "how it looks",
    ],
    "hostile": [
        "on the tab Ask",
        "on the tab Summarize",
        "on the tab Edit",
        "on the tab Speed",
        "file names",
        "the second wall",
    ],
    "users": ["only a password opens", "each has documents of their own"],
}
ANN, BEN = ("ann", "horse-battery"), ("ben", "staple-correct")
GUIDE = [
    """# The tool library
The tool library lends tools to everybody who lives in the town.
It is open on Tuesday from 16 to 19 and on Saturday from 9 to 13.
A card costs nothing; to get one, bring something that shows where you live.""",
    """# Borrowing
You may have three tools at home at once, each for fourteen days.
Ladders of more than four metres are lent only to people who took the safety course.
The safety course is held on the first Saturday of every month.""",
]
NOTES = """# Notes on the workshop

The workshop behind the shop has four benches, a lathe and a drill press. A bench can be had for two
hours by everybody with a card. The lathe is switched on by the staff only.

## Cleaning

Clean every tool before you bring it back: no soil, no sawdust, no paint. Empty its tank, and take
the battery out. Put every part into the box that it came in. Tie a red ribbon to it if something is
broken, and write on the ribbon what. The last one to leave sweeps the floor and switches off the
light.
"""


def file(name: str, data: bytes) -> dict[str, str]:
    return {"name": name, "base64": b64encode(data).decode()}


@pytest.fixture(scope="module")
def begin(play: Play, request: pytest.FixtureRequest) -> Play:
    """begin(script, url, **parameters) starts those scenarios of a script that are selected."""

    def start(script: str, url: str, **parameters: Any) -> AbstractContextManager[Scenarios]:
        items = [item for item in request.session.items if isinstance(item, pytest.Function)]
        selected = [item.callspec.params for item in items if item.function is test_in_a_browser]
        wanted = [test["scenario"] for test in selected if test["script"] == script]
        return play(f"{script}.mjs", url, wanted=wanted, **parameters)

    return start


@pytest.fixture(scope="module")
def url(serve: Serve) -> Iterator[str]:
    """A server with the default model, started once for all tests."""
    with serve() as url:
        yield url


@pytest.fixture(scope="module")
def files() -> dict[str, dict[str, str]]:
    return {
        "guide": file("guide.pdf", papers.pdf(GUIDE)),
        "notes": file("notes.md", NOTES.encode()),
        "broken": file("broken.pdf", b"%PDF-1.7 and nothing more"),
        "long": file("long.txt", papers.prose(random.Random(6), 900).encode()),
    }


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_model(tmp_path_factory.mktemp("models") / "hostile")


@pytest.fixture(scope="module")
def page(begin: Play, url: str, files: dict[str, dict[str, str]]) -> Iterator[Scenarios]:
    with begin("page", url, files=files) as scenarios:
        yield scenarios


@pytest.fixture(scope="module")
def look(begin: Play, url: str, files: dict[str, dict[str, str]]) -> Iterator[Scenarios]:
    with begin("look", url, files=files) as scenarios:
        yield scenarios


@pytest.fixture(scope="module")
def hostile(begin: Play, serve: Serve, hostile_folder: Path) -> Iterator[Scenarios]:
    text = f"The bell rings at noon.\n\n{SAID}\n\nThe bell rings at noon."
    parameters = {
        "said": SAID,
        "named": NAME,
        "names": NAMES,
        "document": file(NAME, text.encode()),
    }
    with serve("--model", hostile_folder) as url, begin("hostile", url, **parameters) as scenarios:
        yield scenarios


@pytest.fixture(scope="module")
def users(begin: Play, serve: Serve, hostile_folder: Path) -> Iterator[Scenarios]:
    """A server with two users. The option overrides the user in the environment variable."""
    options = [part for name, password in (ANN, BEN) for part in ("--auth", f"{name}:{password}")]
    with (
        serve("--model", hostile_folder, *options, DRAFTLINE_AUTH="eve:in-the-environment") as url,
        begin("users", url, users=[ANN, BEN]) as scenarios,
    ):
        yield scenarios


@pytest.mark.parametrize(
    ("script", "scenario"),
    [(script, name) for script, names in SCENARIOS.items() for name in names],
)
def test_in_a_browser(script: str, scenario: str, request: pytest.FixtureRequest) -> None:
    scenarios: Scenarios = request.getfixturevalue(script)
    error = scenarios.error(scenario)
    assert error is None, error
