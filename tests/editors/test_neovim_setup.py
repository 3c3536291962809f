"""The first minutes with the plugin in Neovim, without a server: its help, a missing program, and a
model that is still to be downloaded."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.support.neovim import PLUGIN, WITH_PLUGIN, Neovim, Terminal, lua_string

pytestmark = pytest.mark.editors
NEVER_ANSWERS = ["sleep", "600"]  # a server
EDIT = "vim.cmd.edit({ args = { ... } })"
# A server inside Neovim, which says nothing by itself.
SERVER = """
vim.lsp.config('draftline', { cmd = function()
  local function yes() return true end
  local function request(method, params, answer)
    answer(nil, { capabilities = {} })
    return true, 1
  end
  return { request = request, notify = yes, is_closing = yes, terminate = yes }
end })
"""
STATUS = """
local status = { state = 'loading', message = 'loading a', model = 'a', downloads = ... }
local client = vim.lsp.get_clients({ name = 'draftline' })[1]
require('draftline').on_status(client.id, status)
return { require('draftline').describe(client.id), require('draftline').is_asking(client.id) }
"""


def copy_of_plugin(folder: Path) -> Path:
    shutil.copytree(PLUGIN, folder, ignore=shutil.ignore_patterns("tags"))
    return folder


def with_plugin(folder: Path) -> str:
    return f"vim.opt.runtimepath:prepend({lua_string(folder)})"


@pytest.mark.parametrize("name", ["plugin", "plug in"])
def test_the_help_is_found_at_once_and_after_an_update(
    tmp_path: Path, program: Path, name: str
) -> None:
    plugin = copy_of_plugin(tmp_path / name)
    with Neovim(program, tmp_path / "one", NEVER_ANSWERS, {}, with_plugin(plugin)) as nvim:
        nvim.keys(":help draftline-chat<CR>")
        nvim.until_lua("return vim.fn.expand('%:t') == 'draftline.txt'")
        tags = r"E(?:149|150|151|152|153|154|155|426|431|433):"  # of help and of tags
        assert not re.search(tags, nvim.messages())
    with (plugin / "doc" / "draftline.txt").open("a", encoding="utf-8") as help:
        help.write("*draftline-new-tag*\n")
    stale = (plugin / "doc" / "tags").stat().st_mtime - 100
    os.utime(plugin / "doc" / "tags", (stale, stale))
    with Neovim(program, tmp_path / "two", NEVER_ANSWERS, {}, with_plugin(plugin)) as nvim:
        nvim.keys(":help draftline-new-tag<CR>")
        nvim.until_lua("return vim.fn.expand('%:t') == 'draftline.txt'")


def test_a_help_that_cannot_be_written_is_no_error(tmp_path: Path, program: Path) -> None:
    """A file stands where the tags would be written: this holds for every user."""
    plugin = copy_of_plugin(tmp_path / "plugin")
    (plugin / "doc" / "tags").mkdir()
    (plugin / "doc" / "draftline.txt").touch()
    with Neovim(program, tmp_path / "nvim", NEVER_ANSWERS, {}, with_plugin(plugin)) as nvim:
        assert nvim.messages() == ""
        assert nvim.lua("return vim.fn.exists(':DraftlineEdit')") == 2


def test_a_missing_program_is_named_once_with_the_remedy(tmp_path: Path, program: Path) -> None:
    line = "Draftline: no program no-draftline: see :checkhealth draftline"
    for number in range(3):
        (tmp_path / f"{number}.py").write_text("a = 1\n", "utf-8")
    command = ["no-draftline", "lsp"]
    with (
        Neovim(program, tmp_path / "nvim", command, {}, WITH_PLUGIN) as nvim,
        Terminal(nvim) as terminal,
    ):
        for number in range(3):
            nvim.lua(EDIT, f"{tmp_path}/{number}.py")
        said = nvim.said(line).splitlines()
        assert [each for each in said if "draftline" in each] == [line]
        for asked in ("DraftlineEdit x", "DraftlineRestart", "DraftlineStatus"):
            nvim.keys(f":messages clear<CR>:{asked}<CR>")
            nvim.said(line)
        assert nvim.lua("return #vim.lsp.get_clients({ _uninitialized = true })") == 0
        assert "Press ENTER" not in terminal.shown()


def test_a_question_that_waits_is_in_the_statusline(tmp_path: Path, program: Path) -> None:
    """Until it is answered."""
    (tmp_path / "a.py").write_text("a = 1\n", "utf-8")
    offers = [{"model": "small", "bytes": 10}, {"model": "large", "bytes": 0}]
    shown = "return require('draftline').statusline()"
    with Neovim(program, tmp_path / "nvim", NEVER_ANSWERS, {}, WITH_PLUGIN + SERVER) as nvim:
        nvim.lua(EDIT, f"{tmp_path}/a.py")
        nvim.until_lua("return #vim.lsp.get_clients({ name = 'draftline' }) == 1")
        described, is_asking = nvim.lua(STATUS, offers)
        assert is_asking and described.startswith("download small or large?")
        assert nvim.lua(shown) == "Draftline download?"
        for answered in ([], None):
            described, is_asking = nvim.lua(STATUS, answered)
            assert not is_asking and described.startswith("loading (loading a)")
            assert nvim.lua(shown) == "Draftline loading"
