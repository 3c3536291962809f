"""Code actions and the sources of answers, as an editor sees them. The models are chains, in which
each token has one successor, so every answer is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EOS, FENCE, chain_model
from tests.support.lsp_editor import Editor, offset, ready, serving

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/app.py"
REWRITE = "refactor.rewrite.draftline"
MODIFIED, INVALID, FAILED = -32801, -32602, -32803


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root = tmp_path_factory.mktemp("actions")
    model = chain_model(root / "model", "x=9", FENCE)
    with serving(root, str(model)) as port:
        yield port


async def actions(one: Editor, part: str, **context: Any) -> list[dict[str, Any]]:
    params = {"textDocument": {"uri": URI}, "range": one.span(URI, part)}
    given = {"diagnostics": [], **context}
    return list(await one.ask("textDocument/codeAction", params | {"context": given}))


async def test_actions_are_listed_without_the_model_and_resolved_with_it(port: int) -> None:
    async with ready(port) as one:
        one.open(URI, "a = 1\nx=1\nb = 2\n")
        problem = {"range": one.span(URI, "x=1"), "message": "x is\n one"}
        every = await actions(one, "x=1", diagnostics=[problem])
        assert [action["kind"] for action in every] == [
            "quickfix.draftline",
            *(f"{REWRITE}.{name}" for name in ("edit", "docstring", "types", "simplify")),
        ]
        assert every[0]["title"].endswith("x is one") and every[0]["diagnostics"]
        assert every[1]["command"]["command"] == "draftline.editWithInstruction"
        assert not any("edit" in action for action in every)
        assert await one.ask("codeAction/resolve", every[1]) == every[1]
        assert not (await one.command("stats"))["answers"].get("passes")  # no model was asked
        for only, count in (("quickfix", 1), ("refactor", 4), (f"{REWRITE}.types", 1), ("s", 0)):
            assert len(await actions(one, "x=1", diagnostics=[problem], only=[only])) == count
        solved = await one.ask("codeAction/resolve", every[2])
        one.apply(solved["edit"])
        assert one.texts[URI] == "a = 1\nx=9\nb = 2\n"
        code, _ = await one.fails("codeAction/resolve", every[3])
        assert code == MODIFIED  # listed for the previous text
        code, message = await one.fails("codeAction/resolve", {"title": "t", "data": {"a": 1}})
        assert code == INVALID and message.startswith("params.data")


@pytest.mark.parametrize(("line", "part"), [("x=1", "="), ("abc()", "abc")])
async def test_one_selected_character_or_word_is_a_cursor(port: int, line: str, part: str) -> None:
    """As Helix and eglot send it."""
    async with ready(port) as one:
        one.open(URI, f"# one\n\n{line}\n\n# two\n")
        every = await actions(one, part, only=[REWRITE])
        (action,) = (found for found in every if found["title"] == "Add a docstring")
        one.apply((await one.ask("codeAction/resolve", action))["edit"])
        assert one.texts[URI] == "# one\n\nx=9\n\n# two\n"


async def test_a_problem_is_fixed_where_it_is(port: int) -> None:
    """Not where the cursor is."""
    async with ready(port) as one:
        one.open(URI, "a = 1\n\nx=1\n\nb = 2\n")
        problem = {"range": one.span(URI, "x=1"), "message": "wrong"}
        (action,) = await actions(one, "a = 1", diagnostics=[problem], only=["quickfix"])
        one.apply((await one.ask("codeAction/resolve", action))["edit"])
        assert one.texts[URI] == "a = 1\n\nx=9\n\nb = 2\n"


async def test_a_diagnostic_is_returned_unchanged(port: int) -> None:
    """With every field that LSP defines."""
    async with ready(port) as one:
        one.open(URI, "x=1\n")
        where = one.span(URI, "x=1")
        problem = {
            "range": where, "message": "wrong", "severity": 2, "code": 7, "source": "lint",
            "codeDescription": {"href": "https://example.org"}, "tags": [1, 2],
            "relatedInformation": [{"location": {"uri": URI, "range": where}, "message": "here"}],
            "data": {"any": ["thing", 1]},
        }  # fmt: skip
        (action,) = await actions(one, "x=1", diagnostics=[problem], only=["quickfix"])
        assert action["diagnostics"] == [problem]
        one.apply((await one.ask("codeAction/resolve", action))["edit"])
        assert one.texts[URI] == "x=9\n"


async def test_nothing_is_listed_while_turned_off(port: int) -> None:
    async with ready(port) as one:
        one.open(URI, "x=1\n")
        assert await actions(one, "x=1")
        await one.command("toggle")
        assert await actions(one, "x=1") == []
        await one.command("toggle")
        one.configure(disabledGlobs=["*.py"])
        assert await actions(one, "x=1") == []


async def test_a_client_without_resolve_support_gets_commands(port: int) -> None:
    literals = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}
    async with ready(port, textDocument={"codeAction": literals}, experimental={}) as one:
        one.open(URI, "x=1\n")
        (action,) = await actions(one, "x=1", only=[f"{REWRITE}.simplify"])
        command = {name: action["command"][name] for name in ("command", "arguments")}
        done = await one.ask("workspace/executeCommand", command)
        assert done["applied"] and one.texts[URI] == "x=9\n"
        assert len(await actions(one, "x=9")) == 3  # the client has no instruction box


async def test_an_actions_command_keeps_every_definition(port: int) -> None:
    """The model's answer, "x=9", drops them; an edit by instruction may do so."""
    literals = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}
    text = "def a():\n    pass\n"
    async with ready(port, textDocument={"codeAction": literals}) as one:
        one.open(URI, text)
        (action,) = await actions(one, text, only=[f"{REWRITE}.simplify"])
        command = {name: action["command"][name] for name in ("command", "arguments")}
        code, message = await one.fails("workspace/executeCommand", command)
        assert code == FAILED and "`a` would be lost" in message and one.texts[URI] == text
        by_hand = {**command["arguments"][0], "keepDefinitions": False}
        command["arguments"] = [by_hand]
        done = await one.ask("workspace/executeCommand", command)
        assert done["applied"] and one.texts[URI] == "x=9\n"


ANSWER = "def abov(xyz):mnq"  # each character occurs once, so its successor is unique
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


@pytest.mark.parametrize("opened", [pytest.param(False, marks=pytest.mark.full), True])
async def test_another_file_is_the_source_of_what_was_copied_from_it(
    tmp_path: Path, opened: bool
) -> None:
    """Through a symlinked folder; the source is the file, or the open document in its place."""
    model = chain_model(tmp_path / "model", ANSWER, EOS)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    real, root = tmp_path / "real", tmp_path / "root"
    real.mkdir()
    root.symlink_to(real)
    text = f"# first 😋\n{ANSWER}\nlast\n"
    (real / "other.py").write_text("nothing\n" if opened else text, "utf-8")
    with serving(tmp_path, str(model)) as port:
        await _ask_about_the_copy(port, root, real, text, opened)


async def _ask_about_the_copy(port: int, root: Path, real: Path, text: str, opened: bool) -> None:
    async with ready(port, root) as one:
        other = (root / "other.py").as_uri()
        if opened:
            one.open(other, text)
        uri = one.open((root / "app.py").as_uri(), "a = 1\n")
        tokens = {"workDoneToken": "w", "partialResultToken": "p"}
        asked = {"textDocument": one.doc(uri), "question": "why?"} | tokens
        await one.ready()  # and the documents are indexed
        answer = await one.ask("draftline/ask", asked)
        assert answer["answer"] == one.partial["p"] == ANSWER
        assert one.progress["w"][0]["kind"] == "begin" and one.progress["w"][-1]["kind"] == "end"
        (source,) = answer["sources"]
        assert source["uri"] == (other if opened else (real / "other.py").as_uri())
        ends = (offset(text, source["range"][end], one.encoding) for end in ("start", "end"))
        assert text[slice(*ends)] == source["text"] and source["text"] in ANSWER
        assert len(source["text"]) >= len(ANSWER) - 3  # all but the model's first characters
