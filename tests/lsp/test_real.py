"""Answers of a small real model, as an editor sees them: speculation does not change them, and
questions name their sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from engine.editing.edits import plain
from engine.weights import home
from tests.support.lsp_editor import Editor, offset, ready, serving
from ui.demo import SAMPLE

pytestmark = [
    pytest.mark.model,
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]
MODEL = "smollm2-135m"
TEXT = "".join(SAMPLE.read_text("utf-8").splitlines(keepends=True)[:40])
SHORT = "Repeat only the first line of it."
QUOTE = "Repeat the code above word for word."


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    models = home()
    with serving(tmp_path_factory.mktemp("real"), MODEL, home=models) as port:
        yield port


def quoted(one: Editor, source: dict[str, Any], text: str) -> str:
    """The text in a source's range."""
    ends = (offset(text, source["range"][end], one.encoding) for end in ("start", "end"))
    return text[slice(*ends)]


@pytest.mark.full
async def test_speculation_does_not_change_an_answer(port: int) -> None:
    """To an edit, a question or a completion."""
    found = []
    for speculation in (True, False):
        quick = {"speculation": speculation, "maxTimeMs": 600_000, "maxTokens": 24}
        async with ready(port, settings=quick) as one:
            uri = one.open("untitled:sample.py", TEXT)
            document = {"textDocument": one.doc(uri)}
            first = one.span(uri, "".join(TEXT.splitlines(keepends=True)[:6]))
            params = document | {
                "range": first,
                "instruction": "Add comments.",
                "partialResultToken": "e",
            }
            edit: Any
            try:
                edit = one.json(await one.begin("draftline/edit", params))["edit"]
            except JsonRpcException as error:  # a small model's answer may be refused
                edit = str(error)
            asked = document | {"range": first, "question": SHORT, "partialResultToken": "q"}
            answer = await one.ask("draftline/ask", asked)
            assert one.partial["q"] == answer["answer"] != ""
            where = document | {"position": one.at(uri, len(TEXT) // 2)}
            made = await one.ask("textDocument/completion", where | {"context": {"triggerKind": 1}})
            texts = [item["textEdit"]["newText"] for item in made["items"]]
            found.append((edit, one.partial.get("e"), answer["answer"], texts))
            share = (await one.command("stats"))["acceptedShare"]
            assert bool(share) == speculation
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("newline", "encoding"),
    [pytest.param("\n", "utf-8", marks=pytest.mark.full), ("\r\n", "utf-16")],
)
async def test_sources_hold_the_quoted_text(
    port: int, newline: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.chat.explain.MAX_ANSWER_TOKENS", 96)
    async with ready(port, encoding=encoding) as one:
        whole = "# 😋\n" + TEXT
        text = whole.replace("\n", newline)
        uri = one.open("untitled:sample.py", text)
        part = whole[: whole.index("\n", 400)].replace("\n", newline)
        params = {"textDocument": one.doc(uri), "range": one.span(uri, part)}
        asked = params | {"question": QUOTE, "partialResultToken": "q", "workDoneToken": "w"}
        answer = await one.ask("draftline/ask", asked)
        assert one.partial["q"] == answer["answer"]
        assert one.progress["w"][0]["kind"] == "begin" and one.progress["w"][-1]["kind"] == "end"
        assert answer["sources"], answer
        for source in answer["sources"]:
            assert source["uri"] == uri and source["text"] == quoted(one, source, text)
            assert plain(source["text"]) in answer["answer"]
        monkeypatch.setattr("lsp_server.chat.explain.MAX_ANSWER_TOKENS", 8)
        explained = await one.ask("draftline/explain", params)
        assert explained["answer"].strip()


async def test_speculation_does_not_change_a_conversation(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the places that its answers are copied from, nor a commit message."""
    monkeypatch.setattr("lsp_server.chat.chat.MAX_ANSWER_TOKENS", 64)
    monkeypatch.setattr("lsp_server.chat.commit_message.MAX_MESSAGE_TOKENS", 24)
    part = "".join(TEXT.splitlines(keepends=True)[:8])
    diff = "--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-retries = 3\n+retries = 5\n"
    found = []
    for speculation in (True, False):
        async with ready(port, settings={"speculation": speculation}) as one:
            uri = one.open("untitled:sample.py", TEXT)
            context = [{"uri": uri, "range": one.span(uri, part)}]
            messages = [{"role": "user", "content": QUOTE}]
            made = []
            for number in range(2):
                asked = {"messages": messages, "context": context, "partialResultToken": number}
                answer = await one.ask("draftline/chat", asked)
                assert one.partial[number] == answer["text"] != ""
                for each in answer["citations"]:
                    assert each["uri"] == uri and quoted(one, each, TEXT).strip()
                made.append((answer["text"], answer["citations"]))
                messages.append({"role": "assistant", "content": answer["text"]})
                messages.append({"role": "user", "content": SHORT})
            asked = {"diff": diff, "partialResultToken": "d"}
            await one.ask("draftline/commitMessage", asked)
            made.append(one.partial["d"])
            found.append(made)
            assert bool((await one.command("stats"))["acceptedShare"]) == speculation
    assert found[0] == found[1]
