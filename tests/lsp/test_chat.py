"""The chat and commit messages, as an editor sees them, and what a prompt shows of long texts and
conversations. The editor's model is a chain, in which each token has one successor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import Request
from engine.worker import Job
from lsp_server.chat.chat import FORGOTTEN, MESSAGE_TOKENS, shorten
from lsp_server.chat.commit_message import MAX_SUBJECT_CHARS, cleaned, shortened
from lsp_server.chat.context import ContextText, choose_passages, excerpts
from lsp_server.protocol.positions import Text
from lsp_server.shared_engine import SharedEngine
from tests.support.command import EOS, chain_model
from tests.support.held_model import unfinished
from tests.support.lsp_editor import local_server, offset, ready, refused

URI = "file:///project/app.py"
ANSWER = "def(xy)[ab]{cm}=no;😋"  # no byte occurs twice; five words
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
CANCELLED, INVALID, FAILED = -32800, -32602, -32803


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("chat")
    model = chain_model(root / "model", ANSWER, EOS)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    with local_server(root, str(model)) as running:
        yield running


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that reach the engine."""
    seen: list[Request] = []
    begin = Job.__init__

    def record(job: Job, request: Request, *rest: Any, **options: Any) -> None:
        seen.append(request)
        begin(job, request, *rest, **options)

    monkeypatch.setattr(Job, "__init__", record)
    return seen


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]} | more


# -- the protocol ------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_an_answer_streams_and_names_the_place_that_it_is_copied_from(
    server: Any, encoding: str
) -> None:
    async with ready(server.port, encoding=encoding) as one:
        text = f"# 😋 first\n{ANSWER}\nlast\n"
        uri = one.open(URI, text)
        given = user("why?", context=[{"uri": uri}], partialResultToken="p", workDoneToken="w")
        answer = await one.ask("draftline/chat", given)
        assert answer["text"] == one.partial["p"] == ANSWER
        assert one.progress["w"][0]["kind"] == "begin" and one.progress["w"][-1]["kind"] == "end"
        assert answer["notes"] == [] and answer["stats"]["tokens"] > 0
        assert answer["citations"]
        for each in answer["citations"]:
            units = ANSWER.encode("utf-16-le")[2 * each["start"] : 2 * each["end"]]
            ends = (offset(text, each["range"][end], encoding) for end in ("start", "end"))
            assert each["uri"] == uri
            assert text[slice(*ends)] == units.decode("utf-16-le")


@pytest.mark.asyncio
async def test_the_model_reads_files_selections_problems_and_the_conversation(
    server: Any, requests: list[Request], tmp_path: Path
) -> None:
    """Open documents as the editor has them, other files from disk."""
    closed, opened = tmp_path / "closed.py", tmp_path / "opened.py"
    closed.write_text("from_disk = 1\n")
    opened.write_text("old = 1\n")
    async with ready(server.port) as one:
        uri = one.open(opened.as_uri(), "new = 1\nselected = 2\nafter = 3\n")
        problem = {"uri": uri, "range": one.span(uri, "after"), "message": "after\n is odd"}
        chosen = {"uri": uri, "range": one.span(uri, "selected = 2")}
        messages = [
            {"role": "user", "content": "first?"},
            {"role": "assistant", "content": "First."},
            {"role": "user", "content": "unanswered?"},
            {"role": "user", "content": "second?"},
        ]
        context = [{"uri": closed.as_uri()}, chosen, chosen]
        await one.ask(
            "draftline/chat", {"messages": messages, "context": context, "diagnostics": [problem]}
        )
    system, *rest = requests[-1].messages
    assert system["role"] == "system"
    assert [each["role"] for each in rest] == ["user", "assistant", "user"]
    assert rest[0]["content"] == (
        "closed.py:\n```python\nfrom_disk = 1\n\n```\n\n"
        "opened.py, line 2:\n```python\nselected = 2\n```\n\n"
        "Problems that the editor reports:\n"
        "- opened.py, line 3 (`after = 3`): after is odd\n\nfirst?"
    )
    assert rest[2]["content"] == "unanswered?\n\nsecond?"


@pytest.mark.asyncio
async def test_a_newer_question_replaces_the_older_and_stop_cancels(server: Any) -> None:
    shared: SharedEngine = server.shared_engine
    async with ready(server.port) as one:
        with unfinished(shared.engine):
            older = one.begin("draftline/chat", user("older?", partialResultToken="old"))
            await one.until(lambda: one.partial.get("old"))
            newer = one.begin("draftline/chat", user("newer?", partialResultToken="new"), 4711)
            assert (await refused(older))[0] == CANCELLED
            await one.until(lambda: one.partial.get("new"))
            one.tell("$/cancelRequest", {"id": 4711})
            assert (await refused(newer))[0] == CANCELLED
        await one.idle()
        assert (await one.ask("draftline/chat", user("again?")))["text"] == ANSWER


@pytest.mark.asyncio
async def test_a_long_conversation_is_shortened_from_the_front_and_the_answer_says_so(
    server: Any, requests: list[Request]
) -> None:
    async with ready(server.port) as one:
        turns = [
            {"role": role, "content": f"{role} {number} " + "x" * 1500}
            for number in range(30)
            for role in ("user", "assistant")
        ]
        answer = await one.ask(
            "draftline/chat",
            {"messages": [*turns, {"role": "user", "content": "now?"}]},
        )
    assert answer["notes"] == [FORGOTTEN]
    kept = requests[-1].messages[1:]
    assert kept[0]["role"] == "user" and kept[-1]["content"] == "now?"
    assert list(kept) == [*turns, {"role": "user", "content": "now?"}][-len(kept) :]


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("chat", {"messages": []}, FAILED, "no question"),
    ("chat", user(" \n"), FAILED, "the question is empty"),
    ("chat", {"messages": [{"role": "system", "content": "x"}]}, INVALID, "params.messages[0]"),
    ("chat", {"messages": "why"}, INVALID, "params.messages: not a list"),
    ("chat", user("why?", context=[{"uri": "file:///no.py"}]), FAILED, "/no.py: no such file"),
    ("chat", user("why?", context=[{"uri": "untitled:1"}]), FAILED, "untitled:1: neither open"),
    ("chat", user("x" * 1_000_000), FAILED, "the question is too long"),
    ("commitMessage", {"diff": "\n"}, FAILED, "the diff is empty: stage"),
    ("commitMessage", {}, INVALID, "params.diff: missing"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "params", "code", "message"), BAD)
async def test_bad_input_gets_one_line(
    server: Any, method: str, params: dict[str, Any], code: int, message: str
) -> None:
    async with ready(server.port) as one:
        found = await one.fails(f"draftline/{method}", params)
        assert found[0] == code and found[1].startswith(message), found
        assert "\n" not in found[1] and one.messages == []


@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["context", "diagnostics"])
async def test_lines_that_do_not_exist_are_an_error(server: Any, field: str) -> None:
    async with ready(server.port) as one:
        uri = one.open(URI, "x = 1\n")
        range_ = {"start": {"line": 9, "character": 0}, "end": {"line": 9, "character": 1}}
        given = user("why?", **{field: [{"uri": uri, "range": range_, "message": "odd"}]})
        code, message = await one.fails("draftline/chat", given)
        assert code == FAILED and message.startswith("app.py: no line 10, it has 2")


@pytest.mark.asyncio
async def test_a_commit_message_is_the_cleaned_answer(server: Any) -> None:
    async with ready(server.port) as one:
        given = {"diff": "diff --git a/x b/x\n+x = 1\n", "partialResultToken": "p"}
        answer = await one.ask("draftline/commitMessage", given)
        assert one.partial["p"] == ANSWER and answer["text"] == cleaned(ANSWER)


@pytest.mark.asyncio
async def test_explanations_are_offered_to_clients_with_a_chat(server: Any) -> None:
    chat = {"experimental": {"draftline": {"chat": True}}}
    async with ready(server.port, **chat) as one:
        uri = one.open(URI, "x = 1\n")
        problem = {"range": one.span(uri, "x"), "message": "x is\nodd"}
        where = {"textDocument": {"uri": uri}, "range": one.span(uri, "x = 1")}
        context = {"diagnostics": [problem]}
        found = await one.ask("textDocument/codeAction", where | {"context": context})
        commands = [one["command"] for one in found if "command" in one]
        assert [each["command"] for each in commands] == ["draftline.explain"] * 2
        (problem_asked,), (selection_asked,) = (each["arguments"] for each in commands)
        assert problem_asked["diagnostics"][0]["message"] == "x is odd"
        assert selection_asked["range"] == where["range"]


# -- what fits ---------------------------------------------------------------------------------


def encode(text: str) -> list[int]:
    """A token for each character: an encoder with a known length."""
    return [ord(char) for char in text]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(10, 400))
def test_a_shortened_conversation_fits_or_is_the_question_alone(
    sizes: list[int], max_tokens: int
) -> None:
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": "x" * size}
        for number, size in enumerate([*sizes, 1][: len(sizes) // 2 * 2 + 1])
    ]
    first = shorten(messages, max_tokens, encode)
    tokens = sum(len(one["content"]) + MESSAGE_TOKENS for one in messages[first:])
    assert messages[first]["role"] == "user"
    assert tokens <= max_tokens or first == len(messages) - 1
    if sum(len(one["content"]) + MESSAGE_TOKENS for one in messages) <= max_tokens:
        assert first == 0


def test_a_shortened_conversation_mostly_keeps_its_beginning() -> None:
    """Or each question would read the whole conversation anew."""
    role = ("user", "assistant")
    messages = [{"role": role[n % 2], "content": "x" * 12} for n in range(401)]
    starts = [shorten(messages[: n + 1], 1000, encode) for n in range(0, 401, 2)]
    assert starts == sorted(starts) and len(set(starts)) <= 20 < len(starts) / 5


words = st.text(alphabet="abcd efg\n.", max_size=400)


@given(st.lists(words, min_size=1, max_size=5), words, st.integers(1, 600))
def test_passages_are_in_order_and_all_of_what_fits(
    texts: list[str], question: str, max_tokens: int
) -> None:
    given = [
        ContextText(f"file:///{n}", f"{n}.py", Text.of(text), 0, len(text))
        for n, text in enumerate(texts)
    ]
    passages, notes = choose_passages(given, question, max_tokens, encode)
    places = [(given.index(one.source), one.start) for one in passages]
    assert places == sorted(places)
    assert sum(len(one.text) for one in passages) <= max(max_tokens, len(texts))
    whole = {one.source.uri for one in passages if one.text == one.source.text.text}
    assert len(notes) == sum(1 for one in given if one.text.text and one.uri not in whole)


def test_of_a_long_text_the_part_that_a_question_names_is_read() -> None:
    parts = [f"def function_{number}():\n    return {number}\n\n\n" for number in range(400)]
    parts[250] = "def load_settings(path):\n    return toml.load(path)\n\n\n"
    text = "".join(parts)
    spans = excerpts(text, "Where are the settings loaded from toml?", 1200, encode)
    assert any("toml.load(path)" in text[start:stop] for start, stop in spans)
    (beginning,) = excerpts(text, "What is this?", 1200, encode)
    assert beginning[0] == 0 and len(text[slice(*beginning)]) <= 1200


# -- commit messages ---------------------------------------------------------------------------


def diff_of(files: int, lines: int) -> str:
    return "".join(
        f"diff --git a/f{n}.py b/f{n}.py\n--- a/f{n}.py\n+++ b/f{n}.py\n"
        + "".join(f"@@ -{m} +{m} @@\n-old {m}\n+new {m}\n" for m in range(lines))
        for n in range(files)
    )


@pytest.mark.parametrize(("files", "lines"), [(1, 2), (1, 500), (6, 100), (200, 3)])
def test_a_long_diff_keeps_the_head_of_its_files_and_some_hunks(files: int, lines: int) -> None:
    budget = 2000
    diff = diff_of(files, lines)
    short = shortened(diff, budget, encode)
    assert len(short) <= budget + 16 * files
    if len(diff) <= budget:
        assert short == diff
    heads = [line for line in diff.splitlines() if line.startswith("diff --git")]
    shown = [line for line in short.splitlines() if line.startswith("diff --git")]
    assert shown == heads[: len(shown)]
    assert len(shown) == len(heads) or f"[{len(heads) - len(shown)} more files]" in short


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("Add a timeout\n", "Add a timeout"),
        ("```\nAdd a timeout\n\nIt hung.\n```\nDone.", "Add a timeout\n\nIt hung."),
        ('"Add a timeout."', "Add a timeout"),
        ("Commit message: **Add a timeout**", "Add a timeout"),
        ("Add a timeout\nIt hung.", "Add a timeout\n\nIt hung."),
        ("```\n```", ""),
        ("", ""),
        ("x" * 100, "x" * 72 + "\n\n" + "x" * 28),
    ],
)
def test_fences_quotes_and_labels_are_removed(answer: str, message: str) -> None:
    assert cleaned(answer) == message


@given(st.text(alphabet="ab `\"'\n#.:", max_size=300), st.booleans())
def test_a_message_has_a_short_subject_and_an_empty_line(answer: str, cut: bool) -> None:
    lines = cleaned(answer, cut).split("\n")
    assert len(lines[0]) <= MAX_SUBJECT_CHARS
    assert len(lines) == 1 or (lines[1] == "" and lines[-1].strip())
