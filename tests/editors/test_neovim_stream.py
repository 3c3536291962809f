"""An edit in Neovim while it is written: old lines are dimmed, new text grows below them, typing
elsewhere goes on. The models are chains, in which each token has one successor."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.editors.test_neovim_server import servers, with_model
from tests.support.command import FENCE, chain_model
from tests.support.neovim import Neovim

pytestmark = pytest.mark.editors
TEXT = "a = 1\n\nx=1\n\nb = 2\n"
TRACES = """
local found = 0
for name, namespace in pairs(vim.api.nvim_get_namespaces()) do
  if name:match('^draftline') then
    found = found + #vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, {})
  end
end
return found + (vim.fn.maparg('<Esc>', 'n', false, true).buffer or 0)
"""
PROPOSED = "return require('draftline.hunks').is_open(vim.fn.bufnr())"


@contextmanager
def session(
    folder: Path, program: Path, answer: tuple[str, ...], command: list[str], home: dict[str, str]
) -> Iterator[Neovim]:
    model = chain_model(folder / "model", *answer[:2], *map(int, answer[2:]))
    with Neovim(program, folder / "nvim", command, home, with_model(model)) as nvim:
        yield nvim


@pytest.fixture(scope="module")
def short(
    program: Path,
    tmp_path_factory: pytest.TempPathFactory,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("short")
    with session(folder, program, ("x=9", FENCE), server_command, server_environment) as nvim:
        yield nvim


@pytest.fixture(scope="module")
def endless(
    program: Path,
    tmp_path_factory: pytest.TempPathFactory,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("endless")
    answer = ("x=9", "\n", "20000")
    with session(folder, program, answer, server_command, server_environment) as nvim:
        yield nvim


def opened(nvim: Neovim, folder: Path) -> Neovim:
    (folder / "app.py").write_text(TEXT, "utf-8")
    nvim.keys("<C-\\><C-N>")
    nvim.lua("vim.cmd('silent! %bwipeout!')")
    nvim.open(folder / "app.py")
    return nvim


def shown(nvim: Neovim) -> list[str]:
    """The lines of the screen, without those of other parts."""
    return [line for line in nvim.screen() if line and not line.startswith("~")]


HOLD = """
local pids, line = ...
local written = ''
Held = false
vim.api.nvim_create_autocmd('LspProgress', {
  callback = function(event)
    if not tostring(event.data.params.token):match('/text$') then
      return
    end
    written = written .. event.data.params.value.text
    if written:find('x=9') then -- the first parts of it may be shorter
      for _, pid in ipairs(pids) do vim.uv.kill(pid, 'sigstop') end
      Held = true
      return true
    end
  end,
})
vim.cmd(line .. 'DraftlineEdit make it nine')
"""


@contextmanager
def writing(nvim: Neovim) -> Iterator[None]:
    """In the context, the server is stopped in the midst of an answer for line 3."""
    found = servers(nvim)
    try:
        while True:  # a slow Neovim may learn of the first part when the answer is complete
            nvim.lua(HOLD, [each.pid for each in found], 3)
            nvim.until_lua("return Held")
            nvim.lua("vim.wait(100)")  # reads what the server had sent until then
            if nvim.lua(TRACES):
                break
            for each in found:
                each.send_signal(signal.SIGCONT)
        nvim.until(lambda: "x=9" in shown(nvim), "the answer is shown while it is written")
        nvim.lua("vim.cmd('messages clear')")
        yield
    finally:
        for each in found:
            each.send_signal(signal.SIGCONT)


def test_the_answer_is_shown_below_the_old_lines_and_escape_removes_it(
    endless: Neovim, tmp_path: Path, artefacts: Path
) -> None:
    nvim = opened(endless, tmp_path)
    tick = nvim.lua("return vim.b.changedtick")
    with writing(nvim):
        lines = shown(nvim)
        (artefacts / "neovim-stream.txt").write_text("\n".join(lines), "utf-8")
        at = lines.index("x=1")
        assert "<Esc> cancels" in lines[at + 1] and "x=9" in lines[at + 2 :]
        nvim.keys("<Esc>")
        nvim.said("Draftline: editing: cancelled")
        assert nvim.lua(TRACES) == 0
    assert (nvim.text(), nvim.lua("return vim.b.changedtick")) == (TEXT, tick)
    nvim.until_lua("return require('draftline').status() == 'ready'")  # the server stopped, too


def test_typing_elsewhere_goes_on_and_a_change_inside_ends_the_edit(
    endless: Neovim, tmp_path: Path
) -> None:
    nvim = opened(endless, tmp_path)
    with writing(nvim):
        nvim.keys("ggOabove<Esc>Gobelow<Esc>")
        nvim.until(lambda: {"above", "below"} <= set(shown(nvim)), "what is typed is shown")
        lines = shown(nvim)
        assert "<Esc> cancels" in lines[lines.index("x=1") + 1]
        nvim.keys("4GAy<Esc>")
        nvim.until(lambda: "x=1y" in shown(nvim), "this, too")
    # This model would not end by itself: whichever the server finds first.
    message = "text changed meanwhile where it is edited|the answer was cut off"
    nvim.until(lambda: re.search(message, nvim.messages()), "the edit is refused")
    assert nvim.lua(TRACES) == 0
    assert nvim.text() == "above\na = 1\n\nx=1y\n\nb = 2\nbelow\n"


def test_a_newer_edit_takes_the_place_of_the_one_that_is_written(
    endless: Neovim, tmp_path: Path
) -> None:
    nvim = opened(endless, tmp_path)
    nvim.lua("vim.keymap.set('n', '<Esc>', function() Mine = true end, { buffer = 0 })")
    with writing(nvim):
        nvim.keys(":5DraftlineEdit make it nine<CR>")
        nvim.said("Draftline: editing: cancelled")
        lines = shown(nvim)
        assert "<Esc> cancels" in lines[lines.index("b = 2") + 1]
        assert "".join(lines).count("<Esc> cancels") == 1
        nvim.keys("<Esc>")
        nvim.until(lambda: nvim.messages().count("editing: cancelled") == 2, "it is cancelled")
        assert not nvim.lua("return Mine")
        nvim.keys("<Esc>")
        nvim.until_lua("return Mine")  # the user's own mapping is back


@pytest.mark.parametrize("delay", [0, 600000])
def test_an_edit_is_proposed_where_its_lines_are_now(
    short: Neovim, tmp_path: Path, delay: int
) -> None:
    """Also if the server has not heard of the typing when it answers: Neovim sends changes late."""
    nvim = opened(short, tmp_path)
    nvim.lua("Probe.client(0).flags.debounce_text_changes = ...", delay)
    nvim.lua(
        "vim.cmd('3DraftlineEdit make it nine')\n"
        "vim.api.nvim_buf_set_lines(0, 0, 0, true, { 'above 😋' })\n"
        "vim.api.nvim_buf_set_lines(0, -1, -1, true, { 'below' })"
    )
    nvim.until_lua(PROPOSED)
    nvim.keys("ggOonce more<Esc>ga")
    expected = "once more\nabove 😋\n" + TEXT.replace("x=1", "x=9") + "below\n"
    nvim.until(lambda: nvim.text() == expected, "the edit is accepted where it belongs")
    assert nvim.lua(TRACES) == 0
    nvim.keys("u")
    nvim.until(lambda: nvim.text() == expected.replace("x=9", "x=1"), "one undo")


def test_an_edit_by_rule_says_so(short: Neovim, tmp_path: Path, artefacts: Path) -> None:
    nvim = opened(short, tmp_path)
    nvim.keys(":DraftlineEdit Rename x to y<CR>")
    nvim.until_lua(PROPOSED)
    screen = "\n".join(nvim.screen())
    (artefacts / "neovim-by-rule.txt").write_text(screen, "utf-8")
    assert re.search("▏made by rule: .*x.*y", screen) and "y=1" in screen
    nvim.keys("ga")
    nvim.until(lambda: nvim.text() == TEXT.replace("x=", "y="), "the edit is accepted")


def test_a_warning_is_shown_above_the_hunk(short: Neovim, tmp_path: Path) -> None:
    """The model's answer, "x=9", drops a definition."""
    (tmp_path / "lost.py").write_text("def f():\n    return 1\n\n\nz = 1\n", "utf-8")
    opened(short, tmp_path)
    short.open(tmp_path / "lost.py")
    short.keys(":1,2DraftlineEdit tidy up<CR>")
    short.until_lua(PROPOSED)
    screen = "\n".join(short.screen())
    assert re.search("⚠ check this: .*`f`", screen), screen
    short.keys("q")
    short.until_lua("return not require('draftline.hunks').is_open(vim.fn.bufnr())")
    assert short.lua(TRACES) == 0
