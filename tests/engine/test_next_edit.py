"""Next-edit models: their prompts word by word, and what their answers may change."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.editing.edits import Change, changes
from engine.prompts.control_marks import rewritten_region
from engine.prompts.next_edit import sweep, zeta
from engine.prompts.next_edit.answer import SAME_LINES, first_change, new_region
from engine.prompts.next_edit.context import (
    EditContext,
    NextEditPrompt,
    NoEdit,
    RecentChange,
    lines_around,
)
from engine.prompts.next_edit.formats import FORMATS, check_marks, counter, format_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done
from engine.weights import WeightsError
from tests.support.marked_tokenizer import with_marks

FILE = """\
import shapes

LIMIT = 3


def area(width, height):
    return width * height


def volume(width, heigth, depth):
    return area(width, heigth) * depth


print(volume(1, 2, LIMIT))
print(area(1, 2))
"""
EDITED = FILE.replace("def volume(width, heigth, depth)", "def volume(width, height, depth)")
AT = EDITED.index("height, depth)")
LINE = EDITED.index("def volume")
CONTEXT = EditContext(
    path="src/solid.py",
    text=EDITED,
    cursor=AT + len("height"),
    changes=(
        RecentChange("src/shapes.py", "x = 1\ny = 2\n", "x = 1\ny = 3\n", 7),
        RecentChange(
            "src/solid.py",
            "    return width * height\n\n\ndef volume(width, heigth, depth):\n"
            "    return area(width, heigth) * depth\n\n\n",
            "    return width * height\n\n\ndef volume(width, height, depth):\n"
            "    return area(width, heigth) * depth\n\n\n",
            7,
        ),
    ),
    related=(("src/shapes.py", "def shape(a):\n    return a"),),
    undo=Change(
        LINE,
        LINE + len("def volume(width, height, depth):"),
        "def volume(width, heigth, depth):",
    ),
)

# As Sweep's example client and Zed write them.
SWEEP = f"""\
<|file_sep|>src/shapes.py
def shape(a):
    return a
<|file_sep|>src/shapes.py.diff
original:
x = 1
y = 2
updated:
x = 1
y = 3
<|file_sep|>src/solid.py.diff
original:
    return width * height


def volume(width, heigth, depth):
    return area(width, heigth) * depth

updated:
    return width * height


def volume(width, height, depth):
    return area(width, heigth) * depth

<|file_sep|>original/src/solid.py
{FILE}<|file_sep|>current/src/solid.py
{EDITED}<|file_sep|>updated/src/solid.py
"""

# As Zed writes them (V0318), with one region of three blocks.
ZETA = """\
<[fim-suffix]>
<[fim-prefix]><filename>src/shapes.py
def shape(a):
    return a
...

<filename>edit_history
--- a/src/shapes.py
+++ b/src/shapes.py
@@ -7,2 +7,2 @@
 x = 1
-y = 2
+y = 3
--- a/src/solid.py
+++ b/src/solid.py
@@ -7,7 +7,7 @@
     return width * height
 
 
-def volume(width, heigth, depth):
+def volume(width, height, depth):
     return area(width, heigth) * depth
 
 

<filename>src/solid.py
<|marker_1|>import shapes

LIMIT = 3


def area(width, height):
    return width * height


<|marker_2|>def volume(width, height<|user_cursor|>, depth):
    return area(width, heigth) * depth


print(volume(1, 2, LIMIT))
print(area(1, 2))
<|marker_3|>
<[fim-middle]>"""  # noqa: W293

MARKS = {
    "sweep": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"),
    "zeta2.1": ("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>", "<filename>"),
}
NAMES = pytest.mark.parametrize("name", FORMATS)
TEXT = st.lists(
    st.sampled_from(["def f(x):", "    return x", "", "}", "é😋", "x = 1", "y" * 400])
    | st.text(alphabet="ab _\t=\"'(", max_size=12),
    max_size=60,
).map("\n".join)


@pytest.fixture(scope="module", params=FORMATS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The tests' tokenizer with the marks of each format."""
    return with_marks(tmp_path_factory.mktemp("marked"), MARKS[request.param])


def characters(text: str) -> int:
    return len(text)


# -- recorded prompts --------------------------------------------------------------------------


def test_sweep_s_prompt_word_by_word() -> None:
    made = sweep.build(CONTEXT, 8192, characters)
    assert made.text == SWEEP
    assert (made.region, made.before) == (EDITED, FILE)
    assert rewritten_region(made.text) == EDITED  # which is drafted from


def test_zeta_s_prompt_word_by_word() -> None:
    small = replace(CONTEXT, text=EDITED)
    made = zeta.build(small, 8192, characters)
    assert made.text == ZETA
    assert (made.region, made.before) == (EDITED, FILE)
    drafted = zeta.MARKER.sub("", rewritten_region(made.text))
    assert drafted == EDITED


def test_prompts_without_history_or_other_files() -> None:
    bare = EditContext("a.py", "x = 1", 5)
    assert sweep.build(bare, 999, characters).text == (
        "<|file_sep|>original/a.py\nx = 1\n<|file_sep|>current/a.py\nx = 1\n"
        "<|file_sep|>updated/a.py\n"
    )
    assert zeta.build(bare, 999, characters).text == (
        "<[fim-suffix]>\n<[fim-prefix]><filename>a.py\n"
        "<|marker_1|>x = 1<|user_cursor|><|marker_2|>\n<[fim-middle]>"
    )


def test_sweep_shows_ten_lines_on_either_side_and_three_changes_of_forty_lines() -> None:
    text = "".join(f"line {n}\n" for n in range(60))
    long = "".join(f"new {n}\n" for n in range(50))
    all_changes = tuple(RecentChange(f"{n}.py", "a\n", "b\n", 1) for n in range(4))
    context = EditContext(
        "a.py",
        text,
        text.index("line 30"),
        (*all_changes, RecentChange("5.py", long, "", 1)),
    )
    made = sweep.build(context, 10**6, characters)
    assert made.region == "".join(f"line {n}\n" for n in range(20, 41))
    blocks = made.text.split("<|file_sep|>")[1:]
    assert [one.split("\n")[0] for one in blocks] == [
        "2.py.diff", "3.py.diff", "5.py.diff", "original/a.py", "current/a.py", "updated/a.py",
    ]  # fmt: skip
    kept = blocks[2].split("original:\n")[1].split("\nupdated:")[0].split("\n")
    assert len(kept) == sweep.MAX_CHANGE_LINES and kept[20] == "..."
    assert (kept[19], kept[21], kept[-1]) == ("new 19", "new 31", "new 49")


# -- properties of all formats -----------------------------------------------------------------


@NAMES
@settings(max_examples=60)
@given(text=TEXT, other=TEXT, at=st.floats(0, 1), limit=st.integers(20, 3000))
def test_a_prompt_has_the_cursor_s_line_and_never_more_tokens_than_its_limit(
    name: str, text: str, other: str, at: float, limit: int
) -> None:
    cursor = round(at * len(text))
    changes = (RecentChange("b.py", other, text, 3), RecentChange("a.py", text, other, 1))
    context = EditContext("a.py", text, cursor, changes, (("c.py", other), ("d.py", text)))
    try:
        made = FORMATS[name].build(context, limit, characters)
    except NoEdit as reason:
        assert "too long" in str(reason)
        assert limit < len(text) * 3 + 200
        return
    assert len(made.text) <= limit
    start, stop = lines_around(text, cursor, 0, 0)
    assert made.start <= start and stop <= made.end
    assert text[made.start : made.end] == made.region
    assert made.start == 0 or text[made.start - 1] == "\n"
    assert made.end == len(text) or text[made.end - 1] == "\n"
    line = text[start:stop].rstrip("\n")
    assert line in made.text.replace("<|user_cursor|>", "")


@settings(max_examples=30)
@given(text=TEXT, limit=st.integers(60, 900))
def test_tokens_are_counted_as_the_model_reads_them(
    model: Tokenizer, text: str, limit: int
) -> None:
    count = counter(model)
    for known in FORMATS.values():
        try:
            made = known.build(EditContext("a.py", text, 0, related=(("b", text),)), limit, count)
        except NoEdit:
            continue
        assert count(made.text) <= limit


@NAMES
def test_the_newest_changes_come_first_where_room_is_short(name: str) -> None:
    whole = FORMATS[name].build(CONTEXT, 10**6, characters).text
    sizes = []
    for limit in range(len(whole), 100, -10):
        try:
            text = FORMATS[name].build(CONTEXT, limit, characters).text
        except NoEdit:
            break
        has_new, has_old = "-def volume" in text or "solid.py.diff" in text, "y = 3" in text
        assert has_new or not has_old
        sizes.append((has_new, has_old))
    assert (True, False) in sizes


# -- answers -----------------------------------------------------------------------------------


def prompt(name: str, context: EditContext = CONTEXT) -> NextEditPrompt:
    return FORMATS[name].build(context, 10**6, characters)


def answered(name: str, region: str, new: str) -> str:
    """A model's whole answer, in its format."""
    return new if name == "sweep" else f"<|marker_1|>{new}<|marker_{marks(region)}|>"


def marks(region: str) -> int:
    return len(zeta.block_bounds(region))


def done(text: str) -> Done:
    return Done("stop", text)


FIXED = EDITED.replace("area(width, heigth)", "area(width, height)")


@NAMES
def test_an_answer_becomes_the_smallest_edit(name: str) -> None:
    new = new_region(prompt(name), FORMATS[name], done(answered(name, EDITED, FIXED)))
    (change,) = changes(EDITED, new)
    assert EDITED[change.start : change.stop] == "th" and change.text == "ht"


@NAMES
@settings(max_examples=150)
@given(text=TEXT, new=TEXT, at=st.floats(0, 1))
@example(text="a\n\n\n", new="b", at=0.0)
def test_the_smallest_edit_gives_exactly_the_answer_s_region(
    name: str, text: str, new: str, at: float
) -> None:
    assume(name == "sweep" or not new.startswith("\n"))  # as if a mark had a line of its own
    made = prompt(name, EditContext("a.py", text, round(at * len(text))))
    try:
        region = new_region(made, FORMATS[name], done(answered(name, made.region, new)))
    except NoEdit:
        return
    assert region != made.region
    ends = len(made.region) - len(made.region.rstrip("\n"))
    assert region == new.rstrip("\n") + "\n" * ends
    edited, moved = text, made.start
    for one in reversed(changes(made.region, region)):
        edited = edited[: moved + one.start] + one.text + edited[moved + one.stop :]
    assert edited == text[: made.start] + region + text[made.end :]


@NAMES
@given(text=TEXT, at=st.floats(0, 1), ends=st.integers(0, 3))
def test_an_answer_equal_to_the_region_is_no_edit(
    name: str, text: str, at: float, ends: int
) -> None:
    assume(text.strip())
    made = prompt(name, EditContext("a.py", text, round(at * len(text))))
    answer = made.region.rstrip("\n") + "\n" * ends
    with pytest.raises(NoEdit):
        new_region(made, FORMATS[name], done(answered(name, made.region, answer)))


@NAMES
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "not between|nothing|delete everything"),
        ("\n\n", "not between|nothing|delete everything"),
        ("NO_EDITS", "nothing"),
        ("KEEP_PREVIOUS\n", "nothing"),
        (FIXED + "<|fim_middle|>", "the mark <.fim_middle"),
        (FIXED.replace("LIMIT", "<|im_end|>"), "the mark|cut off"),
        (FIXED.replace("LIMIT", "\ufffd"), "the mark"),
        (FIXED + "```\n", "a code fence"),
        (FIXED[: FIXED.index("print")], "cut off"),
        (FIXED[: FIXED.index("def volume")], "cut off"),
        (FILE, "take back"),
        (FIXED.replace("def volume(width, height, depth)", "def volume(width, h, depth)")
              .replace("height", "h"), "take back"),
    ],
)  # fmt: skip
def test_hostile_answers_are_no_edits(name: str, answer: str, reason: str) -> None:
    made = prompt(name)
    whole = answer if answer.startswith(("NO_", "KEEP")) else answered(name, EDITED, answer)
    with pytest.raises(NoEdit, match=reason):
        new_region(made, FORMATS[name], done(whole))


@NAMES
@pytest.mark.parametrize("how", ["length", "cancelled", "failed"])
def test_an_answer_that_did_not_end_is_no_edit(name: str, how: str) -> None:
    ended = Done(how, answered(name, EDITED, FIXED), error="x" if how == "failed" else None)  # type: ignore[arg-type]
    with pytest.raises(NoEdit, match=r"incomplete|x"):
        new_region(prompt(name), FORMATS[name], ended)


@NAMES
@settings(max_examples=150)
@given(st.lists(st.sampled_from([
    "<|marker_1|>", "<|marker_2|>", "<|marker_3|>", "<|marker_99|>", "<|user_cursor|>", "NO_EDITS",
    "<|file_sep|>", "</s>", "<[fim-middle]>", "<[end▁of▁sentence]>", "\0", "x\n", EDITED, FIXED,
])).map("".join))  # fmt: skip
def test_no_answer_puts_a_mark_into_the_text(name: str, answer: str) -> None:
    try:
        new = new_region(prompt(name), FORMATS[name], done(answer))
    except NoEdit as reason:
        assert str(reason) and "\n" not in str(reason)
        return
    assert new != EDITED and "<|" not in new and "<[" not in new and "\0" not in new


def test_what_was_typed_may_be_completed_and_repeated() -> None:
    text = "def f(x):\n    ret\n\n\nprint(f)\n"
    at = text.index("    ret")
    context = EditContext("a.py", text, at + 7, undo=Change(at, at + 7, ""))
    new = text.replace("    ret\n", "    return x\n")
    for name, known in FORMATS.items():
        made = prompt(name, context)
        assert new_region(made, known, done(answered(name, made.region, new))) == new
        gone = text.replace("    ret\n", "    pass\n")
        with pytest.raises(NoEdit, match="take back"):
            new_region(made, known, done(answered(name, made.region, gone)))


def test_zeta_s_answers_replace_the_blocks_between_their_marks() -> None:
    first, second = EDITED.split("def volume", 1)
    body = f"def volume{second}".replace("heigth", "height")
    assert zeta.read(EDITED, f"<|marker_2|>{body}<|marker_3|>") == first + body
    assert zeta.read(EDITED, f"<|marker_2|>\n{body}<|marker_3|>\n{zeta.END}") == first + body
    assert zeta.read(EDITED, f"<|marker_1|>{first}<|marker_2|>{body}<|marker_3|>") == first + body
    assert zeta.read(EDITED, "<|marker_1|><|marker_2|>") == body.replace(
        "area(width, height)", "area(width, heigth)"
    )
    for nothing in ("<|marker_2|><|marker_2|>", "<|marker_3|>x<|marker_1|>", "x", "<|marker_0|>x"):
        with pytest.raises(NoEdit):
            zeta.read(EDITED, nothing)


@given(TEXT)
def test_blocks_cover_a_region_at_line_ends(region: str) -> None:
    bounds = zeta.block_bounds(region)
    assert (bounds[0], bounds[-1]) == (0, len(region))
    assert bounds == sorted(bounds) and len(bounds) >= 2
    for at in bounds[1:-1]:
        assert region[at - 1] == "\n"
    lines = [region[a:b].count("\n") for a, b in pairwise(bounds)]
    assert max(lines) <= zeta.MAX_BLOCK_LINES + zeta.MAX_NUDGE_LINES
    assert all(one >= zeta.MIN_BLOCK_LINES for one in lines[:-1])


# -- which format ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("sweepai/sweep-next-edit-0.5B", "sweep"),
        ("/models/sweep-next-edit-1.5b.q8_0.v2.gguf", "sweep"),
        ("hub:sweepai/sweep-next-edit-v2-7B", "sweep"),
        ("zed-industries/zeta-2.1", "zeta2.1"),
        ("ollama:zeta2.1", "zeta2.1"),
    ],
)
def test_a_model_s_name_tells_its_format(model: str, name: str) -> None:
    assert format_of(model).name == name
    assert format_of("anything", name).name == name


def test_unknown_models_and_formats_are_refused() -> None:
    for model in ("qwen2.5-coder-0.5b", "zed-industries/zeta-2", "sweep"):
        with pytest.raises(WeightsError, match=r"its name tells no format.*sweep or zeta2\.1"):
            format_of(model)
    with pytest.raises(WeightsError, match=r"zeta9: choose sweep or zeta2\.1"):
        format_of("x", "zeta9")


def test_a_model_with_marks_of_another_format_is_refused(tmp_path: Path) -> None:
    qwen = with_marks(tmp_path, MARKS["sweep"])
    check_marks(FORMATS["sweep"], "a", qwen)
    with pytest.raises(WeightsError, match=r"^b: has no mark <\[fim-suffix.*set .* to sweep$"):
        check_marks(FORMATS["zeta2.1"], "/models/b", qwen)
    (tmp_path / "bare").mkdir()
    bare = with_marks(tmp_path / "bare", [])
    with pytest.raises(WeightsError, match="choose another model"):
        check_marks(FORMATS["sweep"], "a", bare)


@NAMES
def test_a_file_with_marks_of_its_model_is_refused(name: str) -> None:
    mark = MARKS[name][0]
    text = f"A = {mark!r}\nx = 1\n"
    with pytest.raises(NoEdit, match=r"the text has <.*, a mark"):
        prompt(name, EditContext("a.py", text, 0))
    changes = (RecentChange("b.py", text, "", 1),)
    shown = prompt(name, EditContext("a.py", "x", 0, changes, (("c.py", text),))).text
    assert shown == prompt(name, EditContext("a.py", "x", 0)).text


# -- a change that is known before the region ends ---------------------------------------------

LINES = st.lists(st.sampled_from(["a", "b", "c = 1", "d()", "", "}"]), max_size=9)
REGION = "\n".join(f"line_{n}" if n % 4 else "" for n in range(21)) + "\n"


def prefixes(text: str) -> list[str]:
    return [text[:stop] for stop in range(len(text) + 1)]


@given(LINES, LINES, st.booleans())
def test_a_known_change_stays_however_the_answer_goes_on(
    old: list[str], new: list[str], ended: bool
) -> None:
    """So it is the same whatever number of tokens a pass adds. It has what was written, and the
    rest of the region, of which it takes away no more lines than it adds."""
    region, answer = ("\n".join(lines) + "\n" * ended for lines in (old, new))
    found = [first_change(region, written) for written in prefixes(answer)]
    known = next((one for one in found if one is not None), None)
    first = next((n for n, one in enumerate(found) if one is not None), len(found))
    assert found == [None] * first + [known] * (len(found) - first)
    if known is None:
        return
    written = answer[:first]
    assert f"{known}\n".startswith(written) and known != region and written.endswith("\n")
    rest = known[len(written) :]
    assert region.endswith(rest) and known.count("\n") >= region.count("\n")
    same = written.split("\n")[:-1][-SAME_LINES:]
    assert "\n".join((*same, rest)) in f"{region}\n"


@given(st.integers(0, 20), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_a_change_is_known_two_lines_behind_it(at: int, cut: int, put: int, marked: bool) -> None:
    """Unless it takes away more lines than it adds, or too few lines follow it."""
    lines = REGION.split("\n")
    assume(at + cut <= 20 and put)
    new = [*lines[:at], *(f"new_{n}" for n in range(put)), *lines[at + cut :]]
    text = "\n".join(new)
    behind = [n for n in range(at + cut, 21) if lines[n]][:SAME_LINES]
    stop = None
    if len(behind) == SAME_LINES and cut <= put:
        stop = len("\n".join(lines[: behind[-1] + 1]) + "\n") + len(text) - len(REGION)
    answer = text.replace("new_0", "new<|cursor|>_0") if marked else text
    found = [n for n, one in enumerate(prefixes(answer)) if first_change(REGION, one) is not None]
    if stop is None:
        assert found == []
    else:
        assert found[0] == stop + len(answer) - len(text)
        assert first_change(REGION, answer) == text


def test_a_deletion_and_an_ambiguous_place_wait_for_the_end() -> None:
    assert first_change("a\nb\nc\nd\n", "b\nc\nd\n") is None  # a deletion
    assert first_change("a\nx\ny\nz\nx\ny\nz\n", "b\nx\ny\n") is None  # which of them?
    assert first_change("a\nx\ny\nz\n", "NO_EDITS") is None
