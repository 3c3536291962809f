"""The laws of a proposal in its own Neovim buffer, without a server: what is accepted is what was
proposed, what is rejected leaves no trace, and what is typed around it stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.neovim import Neovim

pytestmark = pytest.mark.editors

LINES = st.lists(st.sampled_from(["", "a", "b", "é 😋", "\tx\r"]), min_size=1, max_size=8)
laws = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

OPEN = """
local before, after, notes, warning = ...
vim.cmd('silent! only! | enew! | messages clear')
vim.api.nvim_buf_set_lines(0, 0, -1, true, before)
vim.cmd('let &undolevels = &undolevels') -- what follows is a step of its own
Subject, Tick = vim.api.nvim_get_current_buf(), vim.b.changedtick
local hunks = require('draftline.changes').hunks(before, after)
if #hunks > 0 then
  require('draftline.hunks').open(Subject, hunks, notes or {}, warning, true)
end
return hunks
"""
# After Keys: the buffer's lines, whether its tick stands, whether the proposal is gone.
PRESS = """
Keys, Found = { ... }, nil
vim.schedule(function() -- not inside a call: there a message that is an error would end it
  for _, keys in ipairs(Keys) do -- each by itself: a key that fails ends what is typed with it
    vim.api.nvim_feedkeys(vim.keycode(keys), 'xm', false)
  end
  local mapped = vim.iter({ 'do', 'dr', 'ga', 'q', ']c', '[c' }):any(function(key)
    return vim.fn.maparg(key, 'n', false, true).buffer == 1
  end)
  local marks = {}
  for name, namespace in pairs(vim.api.nvim_get_namespaces()) do
    if name:match('^draftline') then
      vim.list_extend(marks, vim.api.nvim_buf_get_extmarks(Subject, namespace, 0, -1, {}))
    end
  end
  local gone = not mapped and #marks == 0 and not require('draftline.hunks').is_open(Subject)
  local lines = vim.api.nvim_buf_get_lines(Subject, 0, -1, true)
  Found = { lines, vim.api.nvim_buf_get_changedtick(Subject) == Tick, gone }
end)
"""
LINES_NOW = "return vim.api.nvim_buf_get_lines(0, 0, -1, true)"


@pytest.fixture(scope="module")
def nvim(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("hunks")
    init = "vim.opt.runtimepath:prepend({plugin})\nvim.o.autoindent = false"
    with Neovim(program, folder / "nvim", ["none"], {}, init) as started:
        yield started


def pressed(nvim: Neovim, *keys: str) -> list[Any]:
    nvim.lua(PRESS, *keys)
    found: list[Any] = nvim.until_lua("return Found")
    return found


def mixed(before: list[str], hunks: list[dict[str, Any]], taken: list[bool]) -> list[str]:
    """The lines with those hunks that were taken: the oracle."""
    lines = list(before)
    for hunk, is_taken in reversed(list(zip(hunks, taken, strict=True))):
        if is_taken:
            lines[hunk["row"] : hunk["row"] + len(hunk["old"])] = hunk["new"]
    return lines


@laws
@given(LINES, LINES)
def test_accepted_is_as_proposed_and_undone_at_once(
    nvim: Neovim, before: list[str], after: list[str]
) -> None:
    if not nvim.lua(OPEN, before, after):
        assert before == after
        return
    assert pressed(nvim, "ga") == [after, False, True]
    nvim.lua("vim.cmd('silent undo')")
    assert nvim.lua(LINES_NOW) == before


@laws
@given(LINES, LINES)
def test_rejected_leaves_no_trace(nvim: Neovim, before: list[str], after: list[str]) -> None:
    nvim.lua(OPEN, before, after)
    keys = ["q"] if before != after else []
    assert pressed(nvim, *keys) == [before, True, True]


@laws
@given(LINES, LINES, st.data())
def test_each_hunk_is_accepted_or_rejected(
    nvim: Neovim, before: list[str], after: list[str], data: st.DataObject
) -> None:
    """From the top: the cursor is at the first one, and `gg` goes back to it."""
    hunks = nvim.lua(OPEN, before, after)
    taken = [data.draw(st.booleans()) for _ in hunks]
    keys = [key for one in taken for key in ("gg", "do" if one else "dr")]
    lines, _, gone = pressed(nvim, *keys)
    assert (lines, gone) == (mixed(before, hunks, taken), True)


@laws
@given(LINES, LINES)
def test_what_is_typed_above_and_below_moves_the_hunks(
    nvim: Neovim, before: list[str], after: list[str]
) -> None:
    if nvim.lua(OPEN, before, after):
        lines, _, gone = pressed(nvim, "ggOmine<Esc>Gomine<Esc>", "ga")
        assert (lines, gone) == (["mine", *after, "mine"], True)


def test_a_hunk_whose_lines_were_changed_is_not_accepted(nvim: Neovim) -> None:
    before, after = ["a", "b", "c", "d"], ["A", "b", "C", "d"]
    for change, kept in (("Amine<Esc>", "cmine"), ("Omine<Esc>", None), ("dd", "d")):
        nvim.lua(OPEN, before, after)
        lines, _, gone = pressed(nvim, f"3G{change}", "ga")
        if kept is None:  # typed above it
            assert (lines, gone) == (["A", "b", "mine", "C", "d"], True)
            continue
        assert lines[:3] == ["A", "b", kept] and not gone
        assert "the lines of a hunk changed" in nvim.messages()
        assert pressed(nvim, "q")[2]


def test_hunks_are_reached_from_everywhere(nvim: Neovim) -> None:
    before = [str(number) for number in range(40)]
    after = ["first", *before[1:20], "middle", *before[21:]]
    nvim.lua(OPEN, before, after)
    line = "return vim.fn.line('.')"
    for key, expected in (
        ("]c", 21),
        ("]c", 1),
        ("[c", 21),
        ("[c", 1),
        ("10G]c", 21),
        ("10G[c", 1),
    ):
        pressed(nvim, key)
        assert nvim.lua(line) == expected, key
    pressed(nvim, "q")


SHOW = """
local cursor, keys, scrolloff = ...
vim.o.scrolloff = scrolloff
vim.api.nvim_win_set_cursor(0, { cursor, 0 })
vim.cmd('normal! ' .. (keys or 'zt'))
"""
OPEN_HERE = """
local after, go = ...
local before = vim.api.nvim_buf_get_lines(0, 0, -1, true)
local hunks = require('draftline.changes').hunks(before, after)
require('draftline.hunks').open(vim.fn.bufnr(), hunks, { 'a note' }, 'a reason', go)
"""


@laws
@given(
    st.tuples(st.integers(0, 99), st.integers(0, 3), st.integers(0, 6)).filter(
        lambda hunk: hunk[1] + hunk[2] > 0
    ),
    st.integers(1, 100),
    st.sampled_from(["zt", "zz", "zb"]),
    st.sampled_from([0, 5]),
    st.booleans(),
)
def test_a_hunk_is_scrolled_to_as_a_whole(
    nvim: Neovim, hunk: tuple[int, int, int], cursor: int, view: str, scrolloff: int, go: bool
) -> None:
    """Wherever the cursor was; without `go` by a key, and until then a line says where it is."""
    before = [f"line {number}." for number in range(100)]
    row, old, new = hunk
    gone, added = before[row : row + old], [f"new {number}." for number in range(new)]
    after = [*before[:row], *added, *before[row + old :]]
    nvim.lua("vim.cmd('silent! only! | enew! | messages clear')")
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, ...)", before)
    nvim.lua(SHOW, cursor, view, scrolloff)
    nvim.lua(OPEN_HERE, after, go)
    if not go:
        assert nvim.lua("return vim.fn.line('.')") == cursor
        pressed(nvim, "]c")
    screen = "\n".join(nvim.screen())
    for text in ("Draftline do accept", "a note", "a reason", *gone, *added):
        assert text in screen, (text, screen)
    pressed(nvim, "q")


def test_a_proposal_out_of_view_says_where_it_is(nvim: Neovim) -> None:
    lines = [str(number) for number in range(100)]
    nvim.lua("vim.cmd('silent! only! | enew!')")
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, ...)", lines)
    for row, expected in ((98, "do accept"), (1, "at line 2; ]c")):
        nvim.lua(SHOW, 99, "zb", 0)
        nvim.lua(
            OPEN_HERE.replace(", 'a reason'", ", nil"), [*lines[:row], *lines[row + 1 :]], False
        )
        assert expected in "\n".join(nvim.screen()[-3:])
        pressed(nvim, "q")


def test_the_screen_shows_keys_notes_and_both_texts(nvim: Neovim) -> None:
    """In a narrow window, and in the buffer's first lines, too."""
    before = ["old = 1", "kept", "kept"]
    nvim.lua("vim.o.columns = 80")
    for after in (["new = 1", *before[1:]], ["added", *before], [*before, "added"]):
        nvim.lua(OPEN, before, after, ["By rule: moved", "a note"], "a string is lost")
        screen = "\n".join(nvim.screen())
        for text in ("do accept · dr reject · ga accept all · q reject all", *after, *before):
            assert text in screen, screen
        assert "▏By rule: moved" in screen and "▏a note" in screen
        assert "⚠ check this: a string is lost" in screen
        pressed(nvim, "q")


def test_the_users_own_mapping_comes_back(nvim: Neovim) -> None:
    nvim.lua("vim.cmd('enew!')\nvim.keymap.set('n', 'q', 'ix', { buffer = 0 })")
    nvim.lua(OPEN.replace("| enew! ", ""), ["a"], ["b"])
    assert nvim.lua("return vim.fn.maparg('q', 'n')") != "ix"
    pressed(nvim, "q")
    assert nvim.lua("return vim.fn.maparg('q', 'n')") == "ix"


# -- the log of changes --------------------------------------------------------------------------

# Changes (row, count, new lines), undo or redo; a snapshot of the buffer at each version.
TYPED = """
local before, steps = ...
local changes = require('draftline.changes')
vim.cmd('silent! only! | enew!')
vim.api.nvim_buf_set_lines(0, 0, -1, true, before)
local log = changes.follow(0)
local snapshots = { { vim.b.changedtick, before } }
for _, step in ipairs(steps) do
  vim.cmd('let &undolevels = &undolevels')
  if step == 'undo' or step == 'redo' then
    vim.cmd('silent! ' .. step)
  else
    local count = vim.api.nvim_buf_line_count(0)
    local row = math.min(step[1], count)
    local stop = math.min(row + step[2], count)
    vim.api.nvim_buf_set_lines(0, row, stop, true, step[3])
  end
  local lines = vim.api.nvim_buf_get_lines(0, 0, -1, true)
  snapshots[#snapshots + 1] = { vim.b.changedtick, lines }
end
log.stop()
local equal = vim.iter(snapshots):all(function(each)
  return vim.deep_equal(changes.lines_at(log, each[1]), each[2])
end)
local hunk = { row = 3, old = { 'l3', 'l4' }, new = { 'new' } }
local moved = changes.moved(log, snapshots[1][1], { hunk })
return { equal, log.lines, moved and moved[1].row or -1 }
"""
STEP = st.one_of(
    st.sampled_from(["undo", "redo"]),
    st.tuples(
        st.integers(0, 9), st.integers(0, 3), st.lists(st.sampled_from("xyz"), max_size=2)
    ).map(list),
)


@laws
@given(st.lists(STEP, max_size=6))
def test_the_log_knows_every_version_and_where_lines_are(nvim: Neovim, steps: list[Any]) -> None:
    """Lines are unique, so the buffer itself says where the hunk's are."""
    before = [f"l{number}" for number in range(9)]
    equal, lines, row = nvim.lua(TYPED, before, steps)
    assert equal
    if row >= 0:
        assert lines[row : row + 2] == ["l3", "l4"]
    if all(step not in ("undo", "redo") and step[0] >= 5 for step in steps):
        assert row == 3  # nothing above it was touched
