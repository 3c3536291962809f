"""Renames in Neovim by another language server: a table of Lua functions in Neovim itself, which
has columns in utf-8 and renames what it was told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.editors.test_neovim_stream import PROPOSED, session
from tests.support.command import FENCE
from tests.support.neovim import Neovim

pytestmark = pytest.mark.editors
TEXT = "s = '😋'; x=1\nprint(x)\n"
OTHER = "from app import x\n"
RENAMED = TEXT.replace("x", "total")
START = """
local answers = ...
Asked = {}
local function request(method, params, callback)
  if method == 'initialize' then
    callback(nil, { capabilities = { renameProvider = true, positionEncoding = 'utf-8' } })
  elseif method == 'textDocument/rename' then
    table.insert(Asked, params)
    local answer = answers[math.min(#Asked, #answers)]
    vim.schedule(function() callback(answer.err, answer.edit) end)
  else
    vim.schedule(function() callback(nil, nil) end)
  end
  return true, 1
end
local stopped = false
vim.lsp.start({
  name = 'other',
  cmd = function()
    return {
      request = request,
      notify = function() return true end,
      is_closing = function() return stopped end,
      terminate = function() stopped = true end,
    }
  end,
})
"""


@pytest.fixture(scope="module")
def neovim(
    program: Path,
    tmp_path_factory: pytest.TempPathFactory,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("rename")
    with session(folder, program, ("x=9", FENCE), server_command, server_environment) as nvim:
        yield nvim


def opened(nvim: Neovim, folder: Path, *answers: dict[str, Any]) -> Neovim:
    """A file with another language server, which answers so."""
    nvim.keys("<C-\\><C-N>")
    nvim.lua(
        "for _, each in ipairs(vim.lsp.get_clients({ name = 'other' })) do each:stop(true) end"
    )
    nvim.lua("vim.cmd('silent! only! | silent! %bwipeout!')")
    (folder / "app.py").write_text(TEXT, "utf-8")
    (folder / "other.py").write_text(OTHER, "utf-8")
    nvim.open(folder / "app.py")
    if answers:
        nvim.lua(START, list(answers))
        nvim.until_lua("return #vim.lsp.get_clients({ name = 'other', bufnr = 0 }) == 1")
    return nvim


def replacement(line: int, start: int, text: str = "total") -> dict[str, Any]:
    ends = ({"line": line, "character": at} for at in (start, start + 1))
    return {"range": dict(zip(("start", "end"), ends, strict=True)), "newText": text}


def whole(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {(folder / "app.py").as_uri(): [replacement(0, 12), replacement(1, 6)]}


def test_the_other_server_is_asked_and_named(neovim: Neovim, tmp_path: Path) -> None:
    nvim = opened(neovim, tmp_path, {"edit": {"changes": whole(tmp_path)}})
    nvim.keys(":DraftlineEdit Rename x to total<CR>")
    nvim.until_lua(PROPOSED)
    screen = "\n".join(nvim.screen())
    assert "▏By other: `x` renamed to `total` in 2 places" in screen
    (asked,) = nvim.lua("return Asked")  # once: the first answer has the second place, too
    assert asked["position"] == {"line": 0, "character": 12}  # bytes
    assert asked["newName"] == "total"
    assert nvim.text() == TEXT
    nvim.keys("ga")
    nvim.until(lambda: nvim.text() == RENAMED, "the rename is accepted")


def test_each_place_that_was_not_reached_is_asked_for(neovim: Neovim, tmp_path: Path) -> None:
    uri = (tmp_path / "app.py").as_uri()
    places = ((0, 12), (1, 6))
    answers = [{"edit": {"changes": {uri: [replacement(*place)]}}} for place in places]
    nvim = opened(neovim, tmp_path, *answers)
    nvim.keys(":DraftlineEdit Rename x to total<CR>")
    nvim.until_lua(PROPOSED)
    assert len(nvim.lua("return Asked")) == 2
    nvim.keys("ga")
    nvim.until(lambda: nvim.text() == RENAMED, "the rename is accepted")


@pytest.mark.parametrize("command", ["DraftlineEdit", "DraftlineEditFiles"])
def test_other_files_are_reviewed_with_it(neovim: Neovim, tmp_path: Path, command: str) -> None:
    changes = whole(tmp_path) | {(tmp_path / "other.py").as_uri(): [replacement(0, 16)]}
    nvim = opened(neovim, tmp_path, {"edit": {"changes": changes}})
    nvim.keys(f":{command} Rename x to total<CR>")
    nvim.until_lua("return #vim.fn.getqflist() == 2")
    assert (tmp_path / "other.py").read_text("utf-8") == OTHER
    nvim.keys(":DraftlineAccept<CR>")
    nvim.until(lambda: "2 files accepted" in "\n".join(nvim.screen()), "both are accepted")
    nvim.keys(":wa<CR>")
    wanted = {"app.py": RENAMED, "other.py": OTHER.replace("x", "total")}
    for name, text in wanted.items():
        nvim.until(lambda n=name, t=text: (tmp_path / n).read_text("utf-8") == t, name)


@pytest.mark.parametrize(
    "answers",
    [
        [],  # no such server
        [{"err": {"code": -32803, "message": "no"}}],
        [{"edit": {"changes": {}}}],
        [{"edit": {"documentChanges": [{"kind": "rename", "oldUri": "a", "newUri": "b"}]}}],
    ],
    ids=["none", "an error", "nothing", "renames a file"],
)
def test_else_it_is_made_by_rule(
    neovim: Neovim, tmp_path: Path, answers: list[dict[str, Any]]
) -> None:
    nvim = opened(neovim, tmp_path, *answers)
    nvim.keys(":DraftlineEdit Rename x to total<CR>")
    nvim.until_lua(PROPOSED)
    assert "▏made by rule: `x` renamed to `total` in 2 places" in "\n".join(nvim.screen())


def test_what_is_no_rename_is_not_asked_for(neovim: Neovim, tmp_path: Path) -> None:
    nvim = opened(neovim, tmp_path, {"edit": {"changes": whole(tmp_path)}})
    nvim.keys(":1DraftlineEdit make it nine<CR>")
    nvim.until_lua(PROPOSED)
    assert not nvim.lua("return Asked")
