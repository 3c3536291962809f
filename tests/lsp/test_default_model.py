"""The default model, as an editor sees it: edits with and without speculation, a next edit after a
rename, and a completion from another file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.weights import home
from tests.support.lsp_editor import Editor, connected, parts, serving

pytestmark = [
    pytest.mark.full,
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
URI = "file:///project/shop.py"
TEXT = '''"""Totals of a shop. 😋"""


def total_price(items, rate):
    """The sum of all items, tax included."""
    amount = 0
    for item in items:
        amount += item.price * item.count
    return amount * (1 + rate)


def average_price(items, rate):
    if not items:
        return 0
    return total_price(items, rate) / len(items)


def report(items):
    print("total:", total_price(items, 0.2))
'''
HEAD = TEXT[TEXT.index("def total_price") : TEXT.index("\n\n\ndef average_price")]
SLOW = {"maxTimeMs": 600_000, "debounceMs": 0}  # the prompt and the answer depend on it


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    models = home()
    with serving(tmp_path_factory.mktemp("default"), home=models) as port:
        yield port


@asynccontextmanager
async def editor(port: int, *roots: Path, **hello: Any) -> AsyncIterator[Editor]:
    async with connected(port) as one:
        await one.hello(*roots, **{"settings": SLOW} | hello)
        await one.ready()
        yield one


async def inline(one: Editor, uri: str, place: str) -> list[dict[str, Any]]:
    where = {"textDocument": {"uri": uri}, "position": one.at(uri, place)}
    answer = await one.ask("textDocument/inlineCompletion", where | {"context": {"triggerKind": 2}})
    return list(answer["items"])


async def test_an_edit_is_drafted_from_the_text_and_the_same_without_speculation(port: int) -> None:
    answers = []
    for speculation in (True, False):
        async with editor(port, settings=SLOW | {"speculation": speculation}) as one:
            assert (await one.command("status"))["model"] == "qwen2.5-coder-0.5b"
            one.open(URI, TEXT)
            params = {
                "textDocument": one.doc(URI),
                "range": one.span(URI, HEAD),
                "instruction": "In this code, rename the variable amount to result.",
            }
            answer = await one.ask("draftline/edit", params)
            one.apply(answer["edit"])
            answers.append(answer["edit"])
            assert one.texts[URI] == TEXT.replace("amount", "result")
            changed = [each for found in parts(answer["edit"]).values() for each in found]
            assert sum(len(each["newText"]) for each in changed) < len(HEAD) / 2
            if speculation:
                assert answer["stats"]["acceptedShare"] > 0.5
    assert answers[0] == answers[1]


async def test_a_second_edit_of_a_file_reuses_the_kv_cache(port: int) -> None:
    async with editor(port) as one:
        one.open(URI, TEXT)
        params = {"textDocument": one.doc(URI), "range": one.span(URI, HEAD)}
        await one.ask(
            "draftline/edit", params | {"instruction": "In this code, rename amount to result."}
        )
        again = params | {"instruction": "In this code, rename item to thing."}
        stats = (await one.ask("draftline/edit", again))["stats"]
        assert stats["cachedTokens"] > 0.5 * stats["promptTokens"]


@pytest.mark.parametrize("name", ["Visual Studio Code", "Neovim"])
async def test_an_unfinished_rename_is_the_next_edit(port: int, name: str) -> None:
    """By its own request, or as an inline completion for clients without it."""
    neovim = name == "Neovim"
    more = {"experimental": {}} if neovim else {}
    async with editor(port, name=name, encoding="utf-8" if neovim else "utf-16", **more) as one:
        one.open(URI, TEXT)
        one.type(URI, TEXT.index("amount"), "result", "amount")
        where = {"textDocument": one.doc(URI), "position": one.at(URI, "    result = 0")}
        if neovim:
            (item,) = await inline(one, URI, "    result = 0")
            edit = {"changes": {URI: [{"range": item["range"], "newText": item["insertText"]}]}}
            assert "renamed" in (await one.command("why"))["why"]
        else:
            answer = await one.ask("draftline/nextEdit", where)
            edit = answer["edit"]
            assert "amount was renamed to result" in answer["reason"]
            assert answer["location"] and answer["location"]["uri"] == URI, answer
        before = one.texts[URI].count("amount")
        one.apply(edit)
        assert before == 2 and one.texts[URI].count("amount") == 1
        assert one.texts[URI].replace("amount", "result") == TEXT.replace("amount", "result")


async def test_a_completion_uses_another_file_and_is_kept_while_typed(
    port: int, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(TEXT, "utf-8")
    async with editor(port, tmp_path) as one:
        text = "from shop import average_price\n\nprint(average_price())\n"
        uri = one.open((tmp_path / "main.py").as_uri(), text)
        (item,) = await inline(one, uri, "print(average_price(")
        filled = text.replace("price())", f"price({item['insertText']}))")
        assert compile(filled, "main.py", "exec") and "," in item["insertText"]  # both parameters
        before = (await one.command("stats"))["answers"]
        one.type(uri, "print(average_price(", item["insertText"][:3])
        (rest,) = await inline(one, uri, f"print(average_price({item['insertText'][:3]}")
        assert rest["insertText"] == item["insertText"][3:]
        assert (await one.command("stats"))["answers"] == before


async def test_a_diagnostic_is_fixed(port: int) -> None:
    async with editor(port) as one:
        text = TEXT.replace("return amount *", "return amout *")
        one.open(URI, text)
        problem = {"range": one.span(URI, "amout"), "message": 'undefined name "amout"'}
        params = {"textDocument": {"uri": URI}, "range": one.span(URI, "amout")}
        context = {"diagnostics": [problem], "only": ["quickfix"]}
        (action,) = await one.ask("textDocument/codeAction", params | {"context": context})
        assert action["kind"] == "quickfix.draftline" and "edit" not in action
        solved = await one.ask("codeAction/resolve", action)
        one.apply(solved["edit"])
        assert one.texts[URI] == TEXT
