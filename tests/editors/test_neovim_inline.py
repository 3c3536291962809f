"""Ghost text in Neovim 0.12, with the real server and the default model.

That Neovim is not pinned: it is Debian sid's, fetched by `fetch_neovim.sh sid`, or the program that
DRAFTLINE_NEOVIM names. Without either these tests are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.neovim import WITH_PLUGIN, Neovim, newest

pytestmark = pytest.mark.editors
SOURCE = '''"""Sums 😋."""


def add(left, right):
    return left + right


def subtract(left, right):
'''
GHOST = """
local space = vim.api.nvim_get_namespaces()['nvim.lsp.inline_completion']
local marks = vim.api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true })
if #marks == 0 then return false end
local details, text = marks[1][4], ''
for _, chunk in ipairs(details.virt_text) do text = text .. chunk[1] end
for _, line in ipairs(details.virt_lines or {}) do
  text = text .. '\\n'
  for _, chunk in ipairs(line) do text = text .. chunk[1] end
end
return text ~= '' and text
"""


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("inline")
    init = WITH_PLUGIN + "\nvim.keymap.set('i', '<M-w>', 'before', {})"
    with Neovim(newest(), folder / "nvim", server_command, server_environment, init) as nvim:
        yield nvim


@pytest.fixture
def nvim(
    session: Neovim, tmp_path: Path, artefacts: Path, request: pytest.FixtureRequest
) -> Neovim:
    """A file in insert mode, where a statement is to come."""
    (tmp_path / "sums.py").write_text(SOURCE, "utf-8")
    session.open(tmp_path / "sums.py")
    session.lua("vim.bo.indentexpr, vim.bo.autoindent = '', false")
    session.keys("Go")
    return session


def keep_screen(nvim: Neovim, artefacts: Path, name: str) -> str:
    """The screen, also as an artefact."""
    screen = "\n".join(nvim.screen())
    (artefacts / f"neovim-0.12-{name}.txt").write_text(screen + "\n", "utf-8")
    return screen


def ghost(nvim: Neovim) -> str:
    """Wait for ghost text."""
    return str(nvim.until_lua(GHOST))


def test_ghost_text_appears_and_tab_takes_it(nvim: Neovim, artefacts: Path) -> None:
    nvim.keys("    ret")
    text = ghost(nvim)
    screen = keep_screen(nvim, artefacts, "ghost")
    assert "    ret" + text.split("\n")[0] in screen
    assert nvim.text() == SOURCE + "    ret\n"
    nvim.keys("<Tab>")
    nvim.until(lambda: nvim.text() == SOURCE + "    ret" + text + "\n", "the suggestion is taken")
    column = len(nvim.text().split("\n")[-2].encode())
    assert nvim.lua("return vim.api.nvim_win_get_cursor(0)[2]") == column


def test_typing_into_the_suggestion_keeps_it(nvim: Neovim) -> None:
    nvim.keys("    ret")
    text = ghost(nvim)
    nvim.keys(text[0])
    nvim.until(lambda: ghost(nvim) == text[1:], "the rest stays")


def test_a_word_is_taken(nvim: Neovim, artefacts: Path) -> None:
    nvim.keys("    ret")
    text = ghost(nvim)
    word = re.match(r"\s*\w+|\s*[^\w\s]+", text)
    assert word
    nvim.keys("<M-w>")
    nvim.until(lambda: nvim.text() == SOURCE + "    ret" + word[0] + "\n", "a word is taken")
    keep_screen(nvim, artefacts, "word")


def test_keys_fall_back(nvim: Neovim) -> None:
    """Without a suggestion a key does what it did before: the user's mapping, or Neovim's."""
    nvim.lua("vim.lsp.inline_completion.enable(false, { client_id = Probe.client(0).id })")
    nvim.lua("vim.bo.expandtab = false")
    nvim.keys("<Esc>0C<Tab>x<M-w>")
    nvim.until(lambda: nvim.text() == SOURCE + "\txbefore\n", "a tab and the user's own mapping")
    nvim.lua("vim.lsp.inline_completion.enable(true, { client_id = Probe.client(0).id })")


def test_the_next_edit_lies_over_its_line(nvim: Neovim, artefacts: Path) -> None:
    """A parameter was renamed; where the body still has the old name, the whole line is offered."""
    nvim.keys("<Esc>Gdd4G0f(lcwfirst")
    text = ghost(nvim)
    screen = keep_screen(nvim, artefacts, "next-edit")
    assert text and "first + right" in screen
    typed = SOURCE.replace("add(left", "add(first")
    assert nvim.text() == typed
    nvim.keys("<Tab>")
    expected = typed.replace("left + right", "first + right")
    nvim.until(lambda: nvim.text() == expected, "the next edit is taken")
