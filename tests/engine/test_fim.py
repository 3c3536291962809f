"""Fill in the middle: the window is stable and within its budgets, and user text never becomes a
special token."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.editing.edits import plain
from engine.model.kv_cache import common_prefix
from engine.prompts.builder import prompt_of
from engine.prompts.fim import (
    BLOCK_LINES,
    FORMATS,
    NEAR_TOKENS,
    FimFormat,
    ends,
    fim_format,
    infill_ids,
    whole_blocks,
    window,
)
from engine.prompts.prompt_encoder import PromptEncoder
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from lsp_server.completion.inline import PromptLayout
from tests.support.marked_tokenizer import with_marks

QWEN = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>",
        "<|file_sep|>"]  # fmt: skip
STARCODER = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]
CODELLAMA = ["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return with_marks(tmp_path_factory.mktemp("qwen"), QWEN)


@pytest.fixture(scope="module")
def starcoder(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return with_marks(tmp_path_factory.mktemp("starcoder"), STARCODER)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return with_marks(tmp_path_factory.mktemp("bare"), [])


def shown(request: Request, tokenizer: Tokenizer) -> list[str]:
    """The prompt as alternating special tokens and texts."""
    ids = infill_ids(request, PromptEncoder(tokenizer))
    names = {number: name for name, number in tokenizer.control.items()}
    found: list[str] = []
    for is_mark, run in groupby(ids, lambda one: one in names):
        part = [*run]
        found += [names[one] for one in part] if is_mark else [tokenizer.decode(part)]
    return found


HOSTILE = st.lists(
    st.sampled_from([*QWEN, *STARCODER, "<|end|>", "a", "\n", "😋", "\r\n", " "]), max_size=8
).map("".join)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_user_text_never_becomes_a_special_token(
    qwen: Tokenizer, before: str, after: str, other: str
) -> None:
    request = Request(
        "complete", before, path=f"a/{other}", suffix=after, snippets=((other, other),)
    )
    ids = infill_ids(request, PromptEncoder(qwen))
    controls = [one for one in ids if one in qwen.control.values()]
    files = controls.count(qwen.control["<|file_sep|>"])
    assert files == 2 or (files == 3 and "\n" in after)  # some of the text after the cursor
    names = ["<|repo_name|>", *["<|file_sep|>"] * files, *QWEN[:3]]
    assert controls == [qwen.control[name] for name in names]


def test_the_prompt_formats(qwen: Tokenizer, starcoder: Tokenizer, bare: Tokenizer) -> None:
    snippets = (("b.py", "def b():\n    pass\n"), ("c.py", "C"))
    request = Request("complete", "x\r\n", path="/p/a.py", suffix="y\r\nz", snippets=snippets)
    middle = ["<|fim_prefix|>", "x\n", "<|fim_suffix|>", "y\nz", "<|fim_middle|>"]
    assert shown(request, qwen) == [
        "<|repo_name|>", "workspace\n", "<|file_sep|>", "b.py\ndef b():\n    pass\n",
        "<|file_sep|>", "c.py\nC\n", "<|file_sep|>", "a.py\n", *middle,
    ]  # fmt: skip
    alone = Request("complete", "x\n", suffix="y\nz")
    assert shown(alone, qwen) == middle
    # Without file separators no other files are shown; without FIM tokens only the prefix is.
    assert shown(request, starcoder) == [
        "<fim_prefix>", "x\n", "<fim_suffix>", "y\nz", "<fim_middle>"
    ]  # fmt: skip
    assert shown(request, bare) == ["x\n"]
    assert fim_format(bare) is None and ends(bare) == frozenset()
    assert prompt_of(request, qwen).ends == {qwen.control[name] for name in QWEN}


def test_the_suffix_may_come_first(qwen: Tokenizer, tmp_path: Path) -> None:
    """SDSAT's infilling prompts: <PRE><SUF>suffix<MID>prefix."""
    request = Request("complete", "x\n", path="a.py", suffix="y\nz", suffix_first=True)
    for names, tokenizer in ((QWEN, qwen), (CODELLAMA, with_marks(tmp_path, CODELLAMA))):
        prefix, suffix, middle = names[:3]
        assert shown(request, tokenizer) == [prefix, suffix, "y\nz", middle, "x\n"]
        assert prompt_of(request, tokenizer).ends == {tokenizer.control[name] for name in names}


# Marks of a model, its name, and its prompt for one file, as its card or its makers' client has it.
GOLDEN = [
    (QWEN[:5], "granite-4.1-3b", "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>"),
    (STARCODER, "granite-3.3-8b-base", "<fim_prefix>P<fim_suffix>S<fim_middle>"),
    (STARCODER, "models--JetBrains--Mellum-4b-base", "<fim_suffix>S<fim_prefix>P<fim_middle>"),
    (
        ["<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"],
        "glm-4",
        "<|code_prefix|>P<|code_suffix|>S<|code_middle|>",
    ),
    (
        ["<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"],
        "Seed-Coder-8B-Base",
        "<[fim-suffix]>S<[fim-prefix]>P<[fim-middle]>",
    ),
    (["[PREFIX]", "[MIDDLE]", "[SUFFIX]"], "Codestral-22B-v0.1", "[SUFFIX]S[PREFIX]P"),
]


@pytest.mark.parametrize(("names", "model", "prompt"), GOLDEN)
def test_the_prompts_of_other_models(
    tmp_path: Path, names: list[str], model: str, prompt: str
) -> None:
    folder = tmp_path / model
    folder.mkdir()
    request = Request("complete", "P", path="a.py", suffix="S")
    assert "".join(shown(request, with_marks(folder, names))) == prompt


def test_mellum_sees_other_files_before_its_own(tmp_path: Path) -> None:
    """The example of its card."""
    folder = tmp_path / "models--JetBrains--Mellum-4b-base" / "snapshots" / "4179e39"
    folder.mkdir(parents=True)
    tokenizer = with_marks(folder, [*STARCODER, "<filename>"])
    files = (
        ("utils.py", "def multiply(x, y):\n    return x * y\n"),
        ("config.py", "DEBUG = True\nMAX_VALUE = 100\n"),
    )
    before = "def calculate_sum(a, b):\n"
    after = "\n\n# Test the function\nresult = calculate_sum(5, 10)\nprint(result)"
    request = Request("complete", before, path="example.py", suffix=after, snippets=files)
    assert "".join(shown(request, tokenizer)) == (
        "<filename>utils.py\n"
        "def multiply(x, y):\n"
        "    return x * y\n"
        "<filename>config.py\n"
        "DEBUG = True\n"
        "MAX_VALUE = 100\n"
        "<filename>example.py\n"
        "<fim_suffix>\n"
        "\n"
        "# Test the function\n"
        "result = calculate_sum(5, 10)\n"
        "print(result)<fim_prefix>def calculate_sum(a, b):\n"
        "<fim_middle>"
    )


def test_marks_that_a_model_never_learnt_are_not_used(tmp_path: Path) -> None:
    """Mistral's chat models have Codestral's marks in their vocabulary."""
    assert fim_format(with_marks(tmp_path, ["[PREFIX]", "[SUFFIX]", "[IMG]"])) is None


def test_every_format_is_found_by_its_marks(tmp_path: Path) -> None:
    found: list[FimFormat | None] = []
    for number, one in enumerate(FORMATS):
        folder = tmp_path / str(number) / (one.model or "model")
        folder.mkdir(parents=True)
        found.append(fim_format(with_marks(folder, [*one.marks])))
    assert found == [*FORMATS]


# -- what a keystroke leaves unchanged ---------------------------------------------------------

LINES = st.lists(
    st.sampled_from(["    return x\n", "\n", "}\n", "def f(x, y):\n", "é = '😋'\n", "a\r\n"]),
    max_size=24,
).map("".join)
OWN_LINE = st.sampled_from(["", ")", "):", " + total(x, y)", "]"])


def infilled(before: str, after: str, tokenizer: Tokenizer) -> list[int]:
    request = Request(
        "complete", before, path="p/a.py", suffix=after, snippets=(("b.py", "b = 1\n"),)
    )
    return infill_ids(request, PromptEncoder(tokenizer))


@settings(max_examples=200)
@given(LINES, LINES, OWN_LINE, OWN_LINE, st.sampled_from("x( .\n)"))
def test_a_key_costs_the_text_next_to_it(
    qwen: Tokenizer, above: str, below: str, old: str, new: str, typed: str
) -> None:
    """Also where the editor changes the rest of the line, as when it closes a bracket."""
    before, after = infilled(above, f"{old}\n{below}", qwen), f"{new}\n{below}"
    ids = infilled(above + typed, after, qwen)
    read = len(ids) - common_prefix(before, ids)
    kept = above[: above.rstrip().rfind(" ") + 1]  # what a character may be merged with
    line = len(qwen.encode(f"{above[len(kept) :]}{typed}")) + len(qwen.encode(f"{new}\n"))
    assert read <= line + NEAR_TOKENS + 4  # marks, and a token that two texts share


@settings(max_examples=200)
@given(LINES, OWN_LINE, st.integers(0, 400))
def test_all_of_the_rest_is_shown_and_few_lines_twice(
    qwen: Tokenizer, below: str, own: str, long: int
) -> None:
    after = f"{own * (1 + long)}\n{below}"
    text = shown(Request("complete", "x", path="a.py", suffix=after), qwen)
    near = text[text.index("<|fim_suffix|>") + 1] if "\n" in after else after
    lines = plain(after)
    first = lines.split("\n")[0] + "\n"
    assert lines.startswith(near) and near.startswith(first)  # all of the cursor's line
    assert len(qwen.encode(near[len(first) :])) <= NEAR_TOKENS
    if text[0] == "<|repo_name|>":
        rest = text[3].removeprefix("a.py\n").rstrip("\n")
        assert lines.rstrip("\n").endswith(rest)
        repeated = len(near) - lines.rindex(rest)
        assert repeated >= 0 and near[len(near) - repeated :].count("\n") < BLOCK_LINES
    else:
        assert not lines[len(near) :].strip()


def test_formats_that_show_one_file_or_the_suffix_first_stay_whole(
    qwen: Tokenizer, starcoder: Tokenizer, tmp_path: Path
) -> None:
    after = "".join(f"line {n} of the text\n" for n in range(40))
    request = Request("complete", "x\n", path="a.py", suffix=after)
    assert shown(request, starcoder) == [
        "<fim_prefix>",
        "x\n",
        "<fim_suffix>",
        after,
        "<fim_middle>",
    ]
    folder = tmp_path / "Mellum"
    folder.mkdir()
    mellum = with_marks(folder, [*STARCODER, "<filename>"])
    assert mellum.source
    for one, tokenizer in ((request, mellum), (replace(request, path=""), qwen)):
        parts = shown(one, tokenizer)
        assert after in parts and "x\n" in parts and len(parts) == 5
    first = shown(replace(request, suffix_first=True), qwen)
    assert first == ["<|fim_prefix|>", "<|fim_suffix|>", after, "<|fim_middle|>", "x\n"]


@given(st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_blocks_are_counted_from_the_end(lines: int, stop: int, ends_in_line: bool) -> None:
    text = "ab\n" * lines + "c" * ends_in_line
    offset, stop = 1, max(1, min(3 * stop, len(text)))
    end = whole_blocks(text, min(offset, stop), stop)
    below = text.count("\n", end)
    assert end == stop or (end <= stop and below % BLOCK_LINES == 0)
    assert stop - end < 3 * BLOCK_LINES
    if end == stop and below % BLOCK_LINES:  # no block fits
        assert stop - offset <= 3 * BLOCK_LINES
    assert whole_blocks("new\n" + text, 4 + min(offset, stop), 4 + stop) == 4 + end


# -- the window --------------------------------------------------------------------------------

TEXT = st.lists(
    st.sampled_from(["def f(x):\n", "    return x\r\n", "\n", "😋é", "\r", "x" * 300, " " * 70,
                     "a b", "\u0958\U0001d160", "long line " * 40]),
    max_size=60,
).map("".join)  # fmt: skip


@settings(max_examples=200)
@given(TEXT, st.data())
def test_the_window_contains_the_cursor_within_its_budgets(
    bare: Tokenizer, text: str, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, len(text)))
    before, after = data.draw(st.integers(0, 300)), data.draw(st.integers(0, 100))
    start, stop = window(text, offset, before, after, bare.encode)
    assert 0 <= start <= offset <= stop <= len(text)
    assert len(bare.encode(text[start:offset])) <= before
    assert len(bare.encode(text[offset:stop])) <= after
    starts_line = start == 0 or text[start - 1] == "\n"
    lines_fit = len(bare.encode(text[text.rfind("\n", 0, offset) + 1 : offset])) <= before
    assert starts_line or not lines_fit
    assert stop == len(text) or text[stop - 1 : stop] == "\n" or "\n" not in text[offset:stop]


def characters(text: str) -> list[int]:
    return [ord(char) for char in text]


def test_a_text_that_fits_is_shown_whole() -> None:
    text = "line\n" * 50
    assert window(text, 125, 1000, 1000, characters) == (0, len(text))
    assert window(text, 125, 125, 125, characters) == (0, len(text))
    assert window(text, 125, 124, 124, characters) == (40, 245)
    assert window("", 0, 10, 10, characters) == (0, 0)


@given(st.integers(0, 600), st.integers(0, 30))
def test_a_window_is_at_least_three_quarters_full(lines: int, at: int) -> None:
    """Starting at fixed lines costs at most a quarter of the budget for lines of normal length."""
    text = "abcdefghi\n" * lines + "x" * at
    start, _ = window(text, len(text), 2000, 0, characters)
    shown = len(text) - start
    assert shown == len(text) or 0.75 * 2000 - 30 <= shown <= 2000


def test_typing_keeps_the_start(bare: Tokenizer) -> None:
    """Each move invalidates the cached prefix: at most three in 200 keystrokes."""
    above = "".join(f"    total_{n} = count(items[{n}])\n" for n in range(500))
    typed = "".join(f"    name_{n} = f({n})\n" for n in range(20))[:200]
    for room in (256, 700, 1500):
        starts = []
        for n in range(201):
            text = above + typed[:n] + "\nthe rest\n"
            starts.append(window(text, len(above) + n, room, 50, bare.encode)[0])
        assert starts == sorted(starts)
        moves = sum(a != b for a, b in pairwise(starts))
        assert moves <= 3, (room, moves)


@given(st.integers(0, 40), st.text("ab\n", max_size=30))
def test_the_start_is_at_a_fixed_line(first: int, typed: str) -> None:
    """The start is a multiple of 8 lines, and moves only when the text no longer fits."""
    text = "".join(f"{n}\n" for n in range(first, 400))
    for shown in (text, text + typed):
        start, _ = window(shown, len(shown), 400, 0, characters)
        assert start == 0 or shown.count("\n", 0, start) % 8 == 0
    (a, _), (b, _) = (window(one, len(one), 400, 0, characters) for one in (text, text + typed))
    assert a <= b <= a + 64


def test_each_character_is_encoded_at_most_twice() -> None:
    """The cost of a window does not depend on the size of the file."""
    seen = 0

    def encode(text: str) -> list[int]:
        nonlocal seen
        seen += len(text)
        return characters(text)

    text = "word word word word\n" * 20_000
    window(text, 200_000, 2000, 500, encode)
    assert seen <= 2 * 2500 + 2 * 20 * 33


def test_the_prompt_budget_is_steady_and_never_too_large() -> None:
    """The measured prefill speed varies from prompt to prompt."""
    layout = PromptLayout()
    wavering = [layout.fit_budget(most) for most in (500, 480, 520, 610, 450, 700, 500)]
    assert len(set(wavering)) == 1
    for most in (500, 100, 90, 400, 2000, 1500, 60):
        assert most * 0.5 <= layout.fit_budget(most) <= most
