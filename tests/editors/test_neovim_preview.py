"""The laws of the preview in Neovim, without a server: what is taken is what was proposed, what is
left leaves no trace, and what the user wrote is never written over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.neovim import Neovim, applied, pinned

pytestmark = pytest.mark.editors

LINES = st.lists(st.sampled_from(["", "a", "b", "é 😋", "\tx\r"]), min_size=1, max_size=8)
# Characters of one to four bytes, of one and two UTF-16 units, and all that ends a line somewhere.
TEXT = st.text(st.sampled_from("ab é😋\t\f\u2028\r"), max_size=5)
laws = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

OPEN = """
local before, after = ...
vim.cmd('silent! only! | enew!')
vim.api.nvim_buf_set_lines(0, 0, -1, true, before)
vim.cmd('let &undolevels = &undolevels') -- what follows is a step of its own
Subject, Tick = vim.api.nvim_get_current_buf(), vim.b.changedtick
require('draftline.preview').open(Subject, after)
Proposal = vim.api.nvim_get_current_buf()
"""
# After `keys`: the buffer's lines, whether its tick stands, whether the preview is gone.
PRESS = """
for _, keys in ipairs(Keys) do -- each by itself: a key that fails ends what is typed with it
  vim.api.nvim_feedkeys(vim.keycode(keys), 'xm', false)
end
local gone = not vim.api.nvim_buf_is_valid(Proposal)
  and vim.wait(30000, function() return vim.api.nvim_get_current_buf() == Subject end, 1)
  and #vim.api.nvim_list_wins() == 1
  and not vim.wo.diff and vim.fn.maparg('do', 'n') == ''
  and not require('draftline.preview').is_open(Subject)
local lines = vim.api.nvim_buf_get_lines(Subject, 0, -1, true)
return { lines, vim.api.nvim_buf_get_changedtick(Subject) == Tick, gone }
"""


@pytest.fixture(scope="module")
def nvim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("preview")
    init = "vim.opt.runtimepath:prepend({plugin})\nvim.o.autoindent = false"
    with Neovim(pinned(), folder / "nvim", ["none"], {}, init) as started:
        yield started


def pressed(nvim: Neovim, *keys: str) -> list[Any]:
    """PRESS, not inside a call: there a message that is an error would end it."""
    later = "Keys, Found = { ... }, nil\nvim.schedule(function() Found = (function()"
    later += PRESS + "end)() end)"
    nvim.lua(later, *keys)
    found: list[Any] = nvim.until_lua("return Found")
    return found


def after_keys(nvim: Neovim, before: list[str], after: list[str], keys: list[str]) -> list[Any]:
    nvim.lua(OPEN, before, after)
    return pressed(nvim, *keys)


@laws
@given(LINES, LINES)
@pytest.mark.parametrize("key", ["ga", "<CR>"])
def test_taken_is_as_proposed(nvim: Neovim, key: str, before: list[str], after: list[str]) -> None:
    assert after_keys(nvim, before, after, [key]) == [after, before == after, True]
    if before != after:
        nvim.lua("vim.cmd('silent undo')")
    assert nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == before


@laws
@given(LINES, LINES)
def test_left_leaves_no_trace(nvim: Neovim, before: list[str], after: list[str]) -> None:
    assert after_keys(nvim, before, after, ["q"]) == [before, True, True]


@laws
@given(LINES, LINES, st.integers(1, 3))
def test_hunks_and_then_the_rest(
    nvim: Neovim, before: list[str], after: list[str], hunks: int
) -> None:
    """Some hunks from the proposal's side, one from the buffer's, then all that is left."""
    keys = ["gg", *["dp", "]c"] * hunks, "<C-w>h", "gg", "do", "<C-w>l", "ga"]
    assert after_keys(nvim, before, after, keys)[::2] == [after, True]


@laws
@given(LINES, LINES, st.booleans())
def test_what_the_user_wrote_is_not_written_over(
    nvim: Neovim, before: list[str], after: list[str], hunk: bool
) -> None:
    keys = [*(["gg", "dp"] if hunk else []), "<C-w>hGomine<Esc><C-w>l", "ga"]
    lines, _, gone = after_keys(nvim, before, after, keys)
    assert "mine" in lines and not gone
    assert hunk or lines == [*before, "mine"]
    assert "changed beside the proposal" in nvim.messages()
    nvim.lua("vim.cmd('messages clear')")
    assert pressed(nvim, "q") == [lines, False, True]


def test_the_users_own_mapping_comes_back(nvim: Neovim) -> None:
    nvim.lua(OPEN, ["a"], ["b"])
    pressed(nvim, "q")
    nvim.lua("vim.keymap.set('n', 'do', 'ix', { buffer = Subject })")
    nvim.lua("require('draftline.preview').open(Subject, { 'c' })\nProposal = vim.fn.bufnr()")
    pressed(nvim, "q")
    assert nvim.lua("return vim.fn.maparg('do', 'n')") == "ix"


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """A text and edits of it that do not overlap, as offsets of code points."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [line.rstrip("\r") for line in draw(st.lists(TEXT, min_size=1, max_size=4))]
    text = "".join(line + end for line in lines)
    spots = [n for n in range(len(text) + 1) if text[n - 1 : n + 1] != "\r\n"]
    marks = sorted(draw(st.lists(st.sampled_from(spots), min_size=2, max_size=6)))
    new = st.lists(TEXT.map(lambda each: each.replace("\r", "")), max_size=2).map(end.join)
    pairs = zip(marks[::2], marks[1::2], strict=False)
    return text, [{"start": start, "stop": stop, "newText": draw(new)} for start, stop in pairs]


def position(text: str, at: int, encoding: str) -> dict[str, int]:
    """Where a code point is, in an encoding's units."""
    head = re.split("(?<=\n)", text[:at])
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    units = len(head[-1].encode(encoding + ("-le" if width > 1 else ""))) // width
    return {"line": len(head) - 1, "character": units}


@laws
@given(edits(), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_edits_are_applied_to_the_byte(
    nvim: Neovim, case: tuple[str, list[dict[str, Any]]], encoding: str
) -> None:
    text, spans = case
    wire = [
        {
            "range": {
                "start": position(text, each["start"], encoding),
                "end": position(text, each["stop"], encoding),
            },
            "newText": each["newText"],
        }
        for each in spans
    ]
    expected = text
    for each in reversed(spans):
        expected = expected[: each["start"]] + each["newText"] + expected[each["stop"] :]
    end = "\r\n" if "\r\n" in text else "\n"
    code = (
        "local lines, edits, encoding, format = ...\n"
        "vim.bo.fileformat = format\n"
        "return require('draftline.text').edited(lines, 0, edits, encoding)"
    )
    lines = text.split(end)[:-1]
    found = nvim.lua(code, lines, wire, encoding, "dos" if end == "\r\n" else "unix")
    closed = expected if expected.endswith(end) else expected + end  # as Neovim writes all files
    assert "".join(line + end for line in found) == closed
    if encoding == "utf-8":
        assert applied(text, wire) == expected
