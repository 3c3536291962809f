"""Templates in a prompt: the model's own marks count, chat marks and end marks never do, and what
stands between marks is drafted from."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from engine import Config, Engine
from engine.generate import marks_in_text
from engine.prompts.builder import prompt_of
from engine.prompts.control_marks import bare, is_template, marked_ids, rewritten_region
from engine.prompts.fim import FORMATS, FimFormat, infill_ids
from engine.prompts.prompt_encoder import PromptEncoder
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request, RequestError
from engine.text_stream import TextStream
from tests.support.marked_tokenizer import with_marks
from tests.support.server import ANSWER, reciter, renamed

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>",
        "<|file_sep|>")  # fmt: skip
NEVER = ("<|end|>", "<|start|>")  # the end mark and the chat mark of the tests' models
OTHERS = ("<fim_prefix>", "[SUFFIX]", "<|im_end|>")  # of other models
PIECES = st.lists(
    st.sampled_from(
        [*QWEN, *NEVER, *OTHERS, "def f(x):\n", "    return x", "\n", "é", "\r\n", " "]
    ),
    max_size=12,
).map("".join)
TEXT = st.text("ab <|>fim_\n\r\té\U0001f60b", max_size=40)

# As Sweep's example client and Zed write them.
SWEEP = (
    "<|file_sep|>b.py\ndef b(): ...\n"
    "<|file_sep|>a.py.diff\noriginal:\nx = 1\nupdated:\ny = 1\n"
    "<|file_sep|>original/a.py\nx = 1\nprint(x)\n"
    "<|file_sep|>current/a.py\ny = 1\nprint(x)\n"
    "<|file_sep|>updated/a.py\n"
)
ZETA = (
    "<[fim-suffix]>\nafter\n<[fim-prefix]><filename>edit_history\n--- a\n+++ b\n"
    "<filename>a.py\nbefore\n<|marker_1|>y = 1\nprint(<|user_cursor|>x)\n<|marker_2|>\n"
    "<[fim-middle]>"
)
ZETA_1 = (
    "### User Excerpt:\n```a.py\nb\n<|editable_region_start|>\ny = <|user_cursor_is_here|>1\n"
    "<|editable_region_end|>\n```\n\n### Response:\n"
)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return with_marks(tmp_path_factory.mktemp("qwen"), QWEN)


@pytest.fixture(scope="module")
def library(qwen: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """The library's tokenizer of the same file, in which the marks that count are the only ones."""
    folder = tmp_path_factory.mktemp("library")
    with_marks(folder, QWEN)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["content"] in QWEN]
    return Backend.from_str(json.dumps(spec))


def complete(text: str, tokenizer: Tokenizer, **options: Any) -> list[int]:
    request = Request("complete", text, parse_special=True, **options)
    return prompt_of(request, tokenizer).ids


@given(PIECES)
def test_only_the_model_s_own_marks_count(qwen: Tokenizer, library: Backend, text: str) -> None:
    ids = marked_ids(text, PromptEncoder(qwen))
    seen = text.replace("\r\n", "\n")
    assert ids == library.encode(seen, add_special_tokens=False).ids
    assert not {qwen.control[name] for name in NEVER} & {*ids}


@given(PIECES)
def test_without_parse_special_no_mark_counts(qwen: Tokenizer, text: str) -> None:
    for request in (
        Request("complete", text),
        Request("chat", messages=({"role": "user", "content": text},)),
    ):
        ids = set(prompt_of(request, qwen).ids)
        assert not ids & {qwen.control[name] for name in QWEN}


def test_zed_s_template_is_three_marks_and_two_texts(qwen: Tokenizer) -> None:
    control, prompt = qwen.control, "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"
    (a,), (b,) = qwen.encode("a"), qwen.encode("b")
    prefix, suffix, middle = (control[name] for name in QWEN[:3])
    assert complete(prompt, qwen) == [prefix, a, suffix, b, middle]
    assert complete(prompt, qwen, suffix="x") != complete(prompt, qwen)
    assert prompt_of(Request("complete", prompt), qwen).ids == qwen.encode(prompt)


def template(one: FimFormat, prefix: str, suffix: str) -> str:
    """A format's prompt as clients write it."""
    blank = " " if one.prefix.startswith("▁") else ""
    before = f"{bare(one.prefix)}{blank}{prefix}"
    after = f"{blank}{bare(one.suffix)}{suffix}"
    end = f"{blank}{bare(one.middle)}" if one.middle else ""
    return (after + before if one.suffix_first else before + after) + end


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.suffix)
@settings(max_examples=20)
@given(prefix=TEXT, suffix=TEXT)
def test_a_template_is_the_prompt_of_its_prefix_and_suffix(
    tmp_path_factory: pytest.TempPathFactory, one: FimFormat, prefix: str, suffix: str
) -> None:
    """A client that fills in a model's template gets what one gets that sends the two texts."""
    tokenizer = made(one, tmp_path_factory)
    prefix, suffix = f"a{prefix}", f"b{suffix}"  # no BOM, no blank that a mark may be written with
    request = Request("complete", prefix, suffix=suffix)
    ids = infill_ids(request, PromptEncoder(tokenizer))
    assert complete(template(one, prefix, suffix), tokenizer) == [*tokenizer.begin, *ids]


MADE: dict[FimFormat, Tokenizer] = {}


def made(one: FimFormat, folders: pytest.TempPathFactory) -> Tokenizer:
    """The tests' tokenizer with a format's marks, which is made once."""
    if one not in MADE:
        folder = folders.mktemp(one.model or "format")
        MADE[one] = with_marks(folder, one.marks)
    return MADE[one]


@pytest.mark.parametrize("one", FORMATS[1:], ids=lambda one: one.suffix)
def test_a_template_of_another_model_is_refused(qwen: Tokenizer, one: FimFormat) -> None:
    prompt = template(one, "before ", "after")
    with pytest.raises(RequestError, match=r"another model's format.*<.fim_prefix.>") as caught:
        complete(prompt, qwen)
    assert bare(one.prefix) in str(caught.value) and "\n" not in str(caught.value)
    assert prompt_of(Request("complete", prompt), qwen).ids == qwen.encode(prompt)
    source = f"MARKS = {prompt!r}  # a text about them\n"
    assert complete(source, qwen) == qwen.encode(source)


def test_a_model_without_marks_says_so(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="this model's are: none"):
        complete("<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", with_marks(tmp_path, []))


def test_an_answer_ends_at_marks_where_the_prompt_has_some(qwen: Tokenizer) -> None:
    def ends(text: str) -> frozenset[int]:
        return prompt_of(Request("complete", text, parse_special=True), qwen).ends

    assert ends(SWEEP) == {qwen.control[name] for name in QWEN}
    assert ends("no marks") == ends("<|im_start|>user\n") == frozenset()


def test_a_prompt_that_is_too_long_is_refused_before_it_is_tokenized(qwen: Tokenizer) -> None:
    request = Request("complete", "a<|file_sep|>" * 300_000, parse_special=True)
    with pytest.raises(RequestError, match="the prompt has at least 300000 tokens"):
        prompt_of(request, qwen, 4096)


# -- what is drafted from ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "region"),
    [
        (SWEEP, "y = 1\nprint(x)\n"),
        (ZETA, "<|marker_1|>y = 1\nprint(x)\n<|marker_2|>"),
        (ZETA_1, "<|editable_region_start|>\ny = 1\n<|editable_region_end|>"),
        ("<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", ""),
        ("<|file_sep|>current/a.py", ""),
        ("<|marker_1|>", ""),
        ("plain", ""),
    ],
)
def test_the_region_that_the_answer_rewrites(prompt: str, region: str) -> None:
    assert rewritten_region(prompt) == region
    assert is_template(prompt) == ("<" in prompt)


def test_the_region_is_predicted_first_and_then_the_whole_prompt(qwen: Tokenizer) -> None:
    request = Request("complete", SWEEP, parse_special=True)
    prompt = prompt_of(request, qwen)
    assert prompt.predictions == [qwen.encode("y = 1\nprint(x)\n"), prompt.ids]
    own = Request("complete", SWEEP, parse_special=True, predictions=("mine",))
    assert prompt_of(own, qwen).predictions == [qwen.encode("mine")]


@settings(max_examples=200)
@given(st.lists(st.sampled_from([SWEEP, ZETA, ZETA_1, *QWEN, "<|marker_2|>", "x\n"])).map("".join))
def test_a_region_is_a_part_of_the_prompt_without_the_cursor(text: str) -> None:
    cursors = ("<|user_cursor|>", "<|user_cursor_is_here|>")
    for one in cursors:
        text = text.replace(one, "")
    assert rewritten_region(text) in text


def test_finding_marks_takes_linear_time() -> None:
    for piece in ("<|file_sep|>current/", "<|marker_1|>", "<|user_cursor", "<|editable_region_"):
        text = piece * 200_000
        is_template(text)
        rewritten_region(text)


# -- the law -----------------------------------------------------------------------------------


MARKED = dict(zip("ÀÁõö÷", [*QWEN[:3], *QWEN[4:]], strict=True))  # bytes that no text has


@contextlib.contextmanager
def running(model: Path, folders: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine for a model, to which marks are added, with a cache of its own."""
    folder = renamed(model, folders.mktemp("models") / "marked", MARKED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(folders.mktemp("home")))
        with Engine(Config(model=str(folder), threads=2, library=False)) as engine:
            yield engine


@pytest.fixture(scope="module")
def writer(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A model whose answers depend on the whole prompt."""
    with running(tiny("llama"), tmp_path_factory) as engine:
        yield engine


@pytest.fixture(scope="module")
def reciting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A model that answers every prompt that ends with a line with ANSWER."""
    with running(reciter(tmp_path_factory.mktemp("plain") / "reciter"), tmp_path_factory) as engine:
        yield engine


@settings(max_examples=15)
@given(PIECES, st.sampled_from([0.0, 0.8]), st.integers(0, 99))
def test_speculation_never_changes_the_answer_to_a_template(
    writer: Engine, text: str, temperature: float, seed: int
) -> None:
    for prompt in (f"x{text}", SWEEP + text, f"<|fim_prefix|>{text}<|fim_suffix|>b<|fim_middle|>"):
        request = Request(
            "complete",
            prompt,
            parse_special=True,
            max_tokens=40,
            temperature=temperature,
            seed=seed,
        )
        plain = writer.submit(request, speculation=False).result()
        fast = writer.submit(request).result()
        assert (fast.reason, fast.text) == (plain.reason, plain.text)
        assert fast.usage.completion_tokens == plain.usage.completion_tokens


def test_the_region_is_drafted_from(reciting: Engine) -> None:
    current = f" {ANSWER}\n"
    prompt = f"<|file_sep|>current/a.py\n{current}<|file_sep|>updated/a.py\n"
    *steps, done = reciting.submit(Request("complete", prompt, parse_special=True))
    assert done.text == f" {ANSWER}"
    drafted = [piece for step in steps for piece in step.pieces if piece.source == "prediction"]
    assert sum(len(piece.text) for piece in drafted) > len(ANSWER) / 2
    assert done.usage.forwards < len(ANSWER) / 2


def test_prefix_and_suffix_are_drafted_from(reciting: Engine) -> None:
    prompt = f"<|fim_suffix|>{ANSWER}<|fim_prefix|>x\n"
    *steps, done = reciting.submit(Request("complete", prompt, parse_special=True))
    assert done.text == f" {ANSWER}"
    drafted = [piece for step in steps for piece in step.pieces if piece.source == "context"]
    assert sum(len(piece.text) for piece in drafted) > len(ANSWER) / 2


def test_marks_of_regions_are_text_in_answers(tmp_path: Path) -> None:
    """Where a model has tokens for them: without them, what it rewrites could not be told."""
    tokenizer = with_marks(tmp_path, ["<|marker_1|>", "<|marker_12|>", "<|file_sep|>"])
    names = ["<|marker_1|>", "<|marker_12|>", "<|file_sep|>"]
    (a,), ids = tokenizer.encode("a"), [tokenizer.control[name] for name in names]
    for parse_special, expected in ((True, "a<|marker_1|><|marker_12|>a"), (False, "aa")):
        marks = marks_in_text(Request("complete", "x", parse_special=parse_special), tokenizer)
        stream = TextStream(tokenizer, (), continues=True, marks=marks)
        stream.push([a, *ids, a], [("model", None)] * 5)
        stream.finish()
        assert stream.text == expected
