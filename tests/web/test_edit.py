"""The Edit tab without a browser: accepting hunks, preserving text exactly, and edits by a model
that always answers `x=9`."""

from __future__ import annotations

import asyncio
import base64
import html
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine import Config, Engine, Request, RequestError
from engine.editing.dialogue import judge
from engine.editing.edits import LINE_END, plain
from engine.editing.text_file import FileError
from engine.records import Done
from tests.support.command import EDITED, EOS, FENCE, SOURCE, chain_model
from tests.support.server import answers_pause
from ui.api.jobs import Jobs
from ui.web import edit, edit_state
from ui.web.diff import (
    apply_hunks,
    apply_typing,
    find_hunks,
    pair_lines,
    side_by_side,
    split_lines,
)
from ui.web.edit_state import EditState
from ui.web.progress import AnswerProgress
from ui.web.state import PageState

PIECES = ["\n", "\n", "\r\n", "\r", "a", "b", "foo", "(x)", " ", "\ufeff", "\u2028", "<b>", "&amp;"]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
subsets = st.sets(st.integers(0, 12))
HELLO = ({"role": "user", "content": "hello"},)
TEXT = SOURCE.decode()  # with a BOM, NFD, mixed line ends and no final line end

# -- hunks -----------------------------------------------------------------------------------------


@given(texts, texts)
@example("a\r", "\n")
def test_all_hunks_give_the_new_text_and_no_hunks_the_old(old: str, new: str) -> None:
    hunks = find_hunks(old, new)
    assert apply_hunks(old, new, hunks, range(len(hunks))) == new
    assert apply_hunks(old, new, hunks, ()) == old
    assert (hunks == []) == (old == new)


@given(texts, texts, subsets)
def test_only_accepted_hunks_are_applied(old: str, new: str, accepted: set[int]) -> None:
    hunks = find_hunks(old, new)
    result = apply_hunks(old, new, hunks, accepted)
    old_lines, new_lines = split_lines(old), split_lines(new)
    offset = begin = 0
    for number, hunk in enumerate(hunks):
        kept = "".join(old_lines[begin : hunk.old_start])
        assert kept == "".join(
            new_lines[hunk.new_start - (hunk.old_start - begin) : hunk.new_start]
        )
        chosen = (
            new_lines[hunk.new_start : hunk.new_stop]
            if number in accepted
            else old_lines[hunk.old_start : hunk.old_stop]
        )
        part = kept + "".join(chosen)
        assert result[offset : offset + len(part)] == part
        offset, begin = offset + len(part), hunk.old_stop
    assert result[offset:] == "".join(old_lines[begin:])
    assert all(b.old_start > a.old_stop for a, b in itertools.pairwise(hunks))


@given(texts, texts)
def test_the_diff_shows_every_changed_line_once(old: str, new: str) -> None:
    hunks = find_hunks(old, new)
    shown = side_by_side(old, new, hunks)
    assert shown.count('type="checkbox"') == len(hunks)
    for tag, count in (("del", sum(h.old_stop - h.old_start for h in hunks)),
                       ("ins", sum(h.new_stop - h.new_start for h in hunks))):  # fmt: skip
        changed = re.findall(f"<{tag}>(.*?)</{tag}>", shown, re.DOTALL)
        assert len(changed) == count
    allowed = "div span button label input del ins mark details summary".split()  # noqa: SIM905
    assert set(re.findall(r"<(\w+)", shown)) <= {*allowed}


@given(texts, texts)
def test_marked_lines_have_the_text_of_the_line(old: str, new: str) -> None:
    hunks = find_hunks(old, new)
    shown = side_by_side(old, new, hunks).replace("\u2400", "\0")
    inserted = re.findall("<ins>(.*?)</ins>", shown, re.DOTALL)
    marks = re.compile('<mark class="end">.*?</mark>|</?mark>')
    texts = [html.unescape(marks.sub("", line)) for line in inserted]
    new_lines = split_lines(new)
    expected = [
        LINE_END.sub("", line)
        for hunk in hunks
        for line in new_lines[hunk.new_start : hunk.new_stop]
    ]
    assert texts == expected


@given(st.lists(st.sampled_from(["a b c", "a b d", "x", "", "q"]), max_size=6),
       st.lists(st.sampled_from(["a b c", "a c", "x y", "", "z"]), max_size=6))  # fmt: skip
def test_every_line_is_in_exactly_one_row_in_order(old: list[str], new: list[str]) -> None:
    rows = pair_lines(old, new)
    assert [a for a, _ in rows if a is not None] == list(range(len(old)))
    assert [b for _, b in rows if b is not None] == list(range(len(new)))


def test_changed_words_are_marked_and_similar_lines_share_a_row() -> None:
    old, new = "def load(self, path):\n    pass\n", "# new\ndef load(self, source):\n    pass\n"
    shown = side_by_side(old, new, find_hunks(old, new))
    assert "<mark>path</mark>" in shown
    assert "<mark>source</mark>" in shown
    assert pair_lines(split_lines(old), split_lines(new)) == [(None, 0), (0, 1), (1, 2)]


def test_a_changed_line_end_is_shown() -> None:
    shown = side_by_side("a\nb", "a\nb\n", find_hunks("a\nb", "a\nb\n"))
    assert "no line end" in shown
    assert "LF" in shown


def test_scripts_are_escaped() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>${1}{{2}}\n"
    for shown in (
        side_by_side("", evil, find_hunks("", evil)),
        edit.result_html(evil, '"><script>.py'),
    ):
        assert "<script" not in shown
        assert "<img" not in shown


# -- typing in the box -----------------------------------------------------------------------------


@given(texts, texts)
@example("a\r\n\r", "a\n\nb\n")
@example("a\ra\n\n", "a\n\n\n")
def test_typing_changes_only_what_was_typed(exact: str, box: str) -> None:
    assert plain(apply_typing(exact, box)) == plain(box)
    assert apply_typing(exact, plain(exact)) == exact


def test_unchanged_lines_keep_their_ends() -> None:
    assert apply_typing("\ufeffa\r\nb\nc\r\nd", "a\nb\nnew\nc\nd") == "\ufeffa\r\nb\nnew\r\nc\r\nd"
    assert apply_typing("a\r\nb\r\n", "something\nelse\n") == "something\nelse\n"


# -- state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [("", None), ("2", (2, 2)), ("2:3", (2, 3)), ("2-3", (2, 3)), ("2:", (2, 4)), (":3", (1, 3))],
)
def test_line_ranges(lines: str, expected: tuple[int, int] | None) -> None:
    assert edit_state.line_range(lines, "a\nb\nc\nd") == expected


@pytest.mark.parametrize(
    "invalid",
    [
        {"text": " \n"},
        {"text": "a\0b"},
        {"text": "a\ud800"},
        {"text": "a" * (edit_state.MAX_TEXT_BYTES + 1)},
        {"instruction": " "},
        {"instruction": "\0"},
        *({"lines": lines} for lines in ("0", "9", "3:2", "x", ":", "1:9", "1,2", "-")),
    ],
)
def test_invalid_fields_are_refused(invalid: dict[str, str]) -> None:
    valid = {"text": "a\nb\nc\n", "name": "", "lines": "", "instruction": "do"}
    edit_state.make_request(**valid)
    with pytest.raises(RequestError) as error:
        edit_state.make_request(**valid | invalid)
    assert re.fullmatch(r"[^\n]{1,200}: [^\n]+", str(error.value))


def test_weak_models_edit_few_lines_at_once() -> None:
    text = "line\n" * 81
    request = edit_state.make_request(text, "", "", "do")
    edit_state.check_length(request, "a larger one")
    edit_state.check_length(edit_state.make_request(text, "", "2:3", "do"), "smollm2")
    with pytest.raises(RequestError, match=r"^81 lines, .*: name the lines to edit, or tick"):
        edit_state.check_length(request, "smollm2")


@pytest.mark.parametrize(
    "data", [b"a\0b", b"\xff\xfe", b"a" * (1 + edit_state.MAX_TEXT_BYTES), b" \n", b""]
)
def test_an_unusable_upload_changes_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "odd.py"
    path.write_bytes(data)
    before = EditState("text")
    state, name, message = edit.open_upload(str(path), before, "text", "")
    assert (state, name) == (before, "")
    assert "odd.py" in message
    assert str(tmp_path) not in message
    assert not path.exists()  # the upload is deleted


def test_an_opened_file_keeps_its_exact_text_and_name(tmp_path: Path) -> None:
    path = tmp_path / "my file.py"
    path.write_bytes(SOURCE)
    state, name, message = edit.open_upload(str(path), EditState("before"), "before", "2")
    assert (state.text, name) == (TEXT, "my file.py")
    assert "4 lines; line ends CRLF" in message
    assert edit_state.undo(state) == (EditState("before"), "2")


@pytest.mark.parametrize(
    ("path", "name"),
    [("../../etc/passwd", "passwd"), ("C:\\a\\b.py", "b.py"), ("a\u202egnp.py", "agnp.py"),
     ("..", ""), ("x" * 500, "x" * 120), ("\0", "")],
)  # fmt: skip
def test_file_names_are_sanitized(path: str, name: str) -> None:
    assert edit_state.file_name(path) == name


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(FileError, match=r"^gone\.py: no such file"):
        edit_state.read_upload(Path("/nowhere/gone.py"), "gone.py")


def test_continue_and_undo() -> None:
    request = Request("edit", "a\nb\nc\n", selection=(2, 4), instruction="do")
    outcome = judge(request, Done("stop", "x\ny", "\n```"))
    state = edit_state.propose(EditState("a\nb\nc\n"), request, outcome, (2, 2))
    assert state.proposal is not None
    assert state.proposal.text == "a\nx\ny\nc\n"
    none_accepted = edit_state.accept_hunks(state, [])
    assert none_accepted.proposal is not None
    assert none_accepted.proposal.text == "a\nb\nc\n"
    assert edit_state.accept_hunks(state, [0, 7, -1, "0", None]) == state
    continued, lines = edit_state.continue_from_result(state, "a\nb\nc\n", "2")
    assert (continued.text, lines) == ("a\nx\ny\nc\n", "2:3")
    assert edit_state.undo(continued) == (EditState("a\nb\nc\n"), "2")
    assert edit_state.undo(EditState()) == (EditState(), "")


def test_the_download_is_the_text_byte_for_byte() -> None:
    link = edit.result_html(TEXT, "my file.py")
    data = re.search(r'base64,([^"]+)"', link)
    assert data
    assert base64.b64decode(data[1]) == SOURCE
    assert 'download="my file.py"' in link


# -- an edit ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE)
    with Engine(Config(model=str(folder), dtype="f32", threads=1, library=False)) as engine:
        yield engine


def run(
    engine: Engine, text: str, lines: str = "2", instruction: str = "make it nine"
) -> tuple[list[AnswerProgress | None], EditState, str]:
    """The progress at each step of an edit, and the last state and message."""

    async def collect() -> tuple[list[AnswerProgress | None], EditState, str]:
        page = PageState(engine, Jobs(engine, 2))
        steps = edit.stream_edit(
            page, EditState(text), "f.py", lines, instruction, False, "session"
        )
        updates = [step async for step in steps]
        assert page.running == {}
        page.jobs.close()
        return [progress for progress, _, _ in updates], *updates[-1][1:]

    return asyncio.run(collect())


def test_an_edit_changes_nothing_else(engine: Engine) -> None:
    progress, state, message = run(engine, TEXT)
    assert "not run: syntax, lost definitions and names looked at." in message
    assert state.proposal is not None
    assert state.proposal.text.encode() == EDITED
    assert state.proposal.lines == (2, 2)
    assert progress[-1] is not None
    assert progress[-1].text == "x=9"
    assert "x=9" in re.sub("<[^>]*>", "", edit.answer_html(progress[-1], True))


def test_an_edit_that_fails_a_check_is_asked_for_again_and_has_a_warning(engine: Engine) -> None:
    """The model's answer, "x=9", drops the function both times."""
    progress, state, message = run(engine, "def a():\n    pass\n\n\nx=1\n", "1:2")
    assert 'class="warning"' in message and "`a` would be lost" in message
    assert state.proposal is not None and state.proposal.text == "x=9\n\n\nx=1\n"
    assert sum(1 for one in {id(one): one for one in progress}.values() if one and one.done) == 2


def test_an_edit_without_changes_says_why(engine: Engine) -> None:
    _, state, message = run(engine, "x=9\n", "1", "Rename `abc`.")
    assert "Nothing changed: `abc` does not occur in the selected lines" in message
    assert state.proposal is not None and not state.proposal.hunks


@pytest.mark.parametrize(
    ("text", "lines", "instruction", "reason"),
    [
        ("", "", "do", "the text is empty"),
        (TEXT, "", "", "the instruction is empty"),
        (TEXT, "7", "do", "the text has 4 lines"),
        ("long " * 9000, "", "do", "context"),
    ],
)
def test_an_invalid_edit_is_reported(
    engine: Engine, text: str, lines: str, instruction: str, reason: str
) -> None:
    _, state, message = run(engine, text, lines, instruction)
    assert reason in message
    assert 'class="error"' in message
    assert state == EditState(text)


def test_an_unusable_answer_is_shown_and_not_proposed(tmp_path: Path) -> None:
    folder = chain_model(tmp_path / "model", "x=9", EOS)  # never closes the block
    with Engine(Config(model=str(folder), dtype="f32", threads=1, library=False)) as engine:
        progress, state, message = run(engine, TEXT)
    assert "The answer was not used: the model ended its answer without closing" in message
    assert state.proposal is None
    assert progress[-1] is not None
    assert progress[-1].text == "x=9"  # but still shown


def test_a_rule_renames_without_the_model(engine: Engine) -> None:
    """Also in more lines than the model may edit at once."""
    text = "x = 1\n" + "y = x\n" * 300
    progress, state, message = run(engine, text, "2", "Rename `x` to `<b>`")
    assert "`&lt;b&gt;` cannot be a name" in message and state.proposal is None
    progress, state, message = run(engine, text, "", "Rename x to z")
    assert "made by rule, without the model: `x` renamed to `z` in 301 places" in message
    assert state.proposal is not None
    assert state.proposal.text == text.replace("x", "z")
    assert progress == [None]


def test_a_full_queue_is_reported(engine: Engine) -> None:
    async def refused() -> tuple[EditState, str]:
        page = PageState(engine, Jobs(engine, 1))
        steps = edit.stream_edit(page, EditState(TEXT), "", "2", "do", False, "session")
        page.jobs.queue_size = 0
        updates = [step async for step in steps]
        page.jobs.close()
        return updates[-1][1:]

    state, message = asyncio.run(refused())
    assert "Too many requests" in message
    assert state.proposal is None


def test_a_stopped_edit_leaves_the_text_unchanged(tmp_path: Path) -> None:
    folder = chain_model(tmp_path / "model", "x=9", "\n", context=32768)  # repeats
    text = "x=1\n" * 400  # an edit of this length may have far more tokens than 20 steps generate

    async def stopped(engine: Engine) -> tuple[EditState, str]:
        page = PageState(engine, Jobs(engine, 1))
        updates = []
        async for step in edit.stream_edit(page, EditState(text), "", "", "do", True, "session"):
            updates.append(step)
            if step[0] is not None and step[0].tokens > 5:
                page.stop("session-edit")
        page.jobs.close()
        return updates[-1][1:]

    config = Config(model=str(folder), dtype="f32", threads=1, library=False)
    with Engine(config) as engine, answers_pause(engine):
        state, message = asyncio.run(stopped(engine))
    assert state == EditState(text)
    assert "Stopped" in message
