"""Neovim 0.11 with the real server and the default model: what a person types is typed, what a
person reads is read. Not here: how good the model's answers are. They are compared with the
server's own answers, applied by an obvious oracle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.neovim import PLUGIN, Neovim, applied, edits_of, lua_string, pinned

pytestmark = pytest.mark.editors
SOURCE = '''"""Sums. 😋 é"""


def add(left, right):
    smile = "😋"; return left + right


def twice(left):
    return add(left, left)
'''
INSTRUCTION = "In this code, rename the function add to plus."  # not made by rule


@pytest.fixture(scope="module")
def program() -> Path:
    return pinned()


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory,
    program: Path,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    """One Neovim and one server for all tests: loading the model takes long."""
    folder = tmp_path_factory.mktemp("neovim")
    with Neovim(program, folder / "nvim", server_command, server_environment) as nvim:
        yield nvim


@pytest.fixture
def nvim(session: Neovim, artefacts: Path, request: pytest.FixtureRequest) -> Iterator[Neovim]:
    """The session, its last screen kept as an artefact."""
    yield session
    screen = "\n".join(session.screen()) + "\n\n" + session.messages() + "\n"
    name = re.sub(r"\W+", "_", request.node.name)
    (artefacts / f"neovim-{name}.txt").write_text(screen, "utf-8")
    session.keys("<C-\\><C-N>")
    session.lua("vim.cmd('silent! only! | silent! %bwipeout!')")


@pytest.fixture
def opened(nvim: Neovim, tmp_path: Path) -> Neovim:
    (tmp_path / "sums.py").write_text(SOURCE, "utf-8")
    nvim.open(tmp_path / "sums.py")
    return nvim


def document(nvim: Neovim) -> dict[str, Any]:
    found: dict[str, Any] = nvim.lua(
        "local bufnr = vim.fn.bufnr()\n"
        "return { uri = vim.uri_from_bufnr(0), version = vim.lsp.util.buf_versions[bufnr] }"
    )
    return found


def answer_of(nvim: Neovim, instruction: str, **more: Any) -> str:
    """The buffer's text as the server's own answer to draftline/edit makes it."""
    params = {"textDocument": document(nvim), "instruction": instruction} | more
    answer = nvim.request("draftline/edit", params)
    assert answer["result"]["edit"], answer
    text = nvim.text()
    changed = applied(text, edits_of(answer["result"]["edit"]))
    assert changed != text
    return changed


def preview(nvim: Neovim) -> None:
    """Wait for the proposal in the buffer."""
    nvim.until_lua("return require('draftline.hunks').is_open(vim.fn.bufnr())")


def preview_beside(nvim: Neovim) -> None:
    """Wait for the proposal's window."""
    nvim.until_lua("return vim.wo.diff and vim.bo.buftype == 'nofile'")


def closed(nvim: Neovim) -> bool:
    """Whether the proposal is gone without a trace."""
    return bool(
        nvim.lua(
            "return #vim.api.nvim_list_wins() == 1 and not vim.wo.diff"
            " and vim.fn.maparg('do', 'n') == '' and vim.fn.maparg('<Esc>', 'n') == ''"
            " and not require('draftline.hunks').is_open(vim.fn.bufnr())"
        )
    )


@pytest.fixture
def beside(nvim: Neovim) -> Iterator[None]:
    """Proposals are shown as a diff."""
    nvim.lua("vim.g.draftline = { preview = 'diff' }")
    yield
    nvim.lua("vim.g.draftline = nil")


def test_attaches_in_utf_8(opened: Neovim) -> None:
    found = opened.lua(
        "local c = Probe.client(0)\n"
        "return { c.offset_encoding, c.server_capabilities.inlineCompletionProvider ~= nil,"
        " #vim.lsp.get_clients() }"
    )
    assert found == ["utf-8", True, 1]


def test_completion_is_offered_and_taken(opened: Neovim) -> None:
    opened.lua("vim.o.completeopt = 'menuone,noselect'")
    opened.keys("Go<CR>def half(left):<CR>    return <Esc>")
    opened.keys("A")
    opened.lua("vim.lsp.completion.get()")
    opened.until_lua("return vim.fn.pumvisible() == 1")
    before = opened.text()
    item = opened.lua("return vim.fn.complete_info({ 'items' }).items[1].word")
    opened.keys("<C-n><C-y><Esc>")
    after = opened.text()
    assert item and after != before
    assert item.splitlines()[0] in after[len(SOURCE) :]


def test_inline_completion_by_a_raw_request(opened: Neovim) -> None:
    line = '    smile = "😋"; return '
    opened.keys(f"Go<CR>def half(left):<CR>{line.strip()} <Esc>")
    opened.until_lua("return vim.lsp.util.buf_versions[vim.fn.bufnr()] > 1")
    last = opened.lua("return vim.fn.line('$') - 1")
    answer = opened.request(
        "textDocument/inlineCompletion",
        {
            "textDocument": document(opened),
            "position": {"line": last, "character": len(line.encode())},
            "context": {"triggerKind": 1},
        },
    )
    items = answer["result"]["items"]
    assert items
    assert all(each["command"]["command"] == "draftline.accepted" for each in items)


def test_code_action_is_resolved_and_applied(opened: Neovim) -> None:
    kind = "refactor.rewrite.draftline.docstring"
    opened.keys("8G")
    start = {"line": 7, "character": 0}
    listed = opened.request(
        "textDocument/codeAction",
        {
            "textDocument": document(opened),
            "range": {"start": start, "end": start},
            "context": {"diagnostics": [], "only": [kind]},
        },
    )
    (action,) = [each for each in listed["result"] if each["kind"] == kind]
    assert "edit" not in action
    resolved = opened.request("codeAction/resolve", action)["result"]
    expected = applied(SOURCE, edits_of(resolved["edit"]))
    assert expected != SOURCE
    opened.lua("vim.lsp.buf.code_action({ context = { only = { ... } }, apply = true })", kind)
    opened.until(lambda: opened.text() == expected, "the action is applied")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_edit_is_shown_and_taken(
    nvim: Neovim, tmp_path: Path, artefacts: Path, end: str
) -> None:
    path = tmp_path / "sums.py"
    path.write_bytes(SOURCE.replace("\n", end).encode())
    nvim.open(path)
    expected = answer_of(nvim, INSTRUCTION)
    nvim.keys(f":DraftlineEdit {INSTRUCTION}<CR>")
    preview(nvim)
    screen = "\n".join(nvim.screen())
    assert "ga accept all" in screen and "def plus" in screen and "def add" in screen
    (artefacts / "neovim-preview.txt").write_text(screen, "utf-8")
    nvim.keys("ga")
    nvim.until(lambda: closed(nvim), "the preview closes")
    assert nvim.text() == expected
    nvim.keys(":silent write<CR>")
    nvim.until_lua("return not vim.bo.modified")  # meanwhile there may be no file
    assert path.read_bytes() == expected.encode(), "written as it was, but for the edit"
    nvim.keys("u")
    nvim.until(lambda: nvim.text() == SOURCE.replace("\n", end), "one undo takes it back")


def test_an_edit_of_a_range_with_a_question_for_the_instruction(opened: Neovim) -> None:
    lines = {"start": {"line": 3, "character": 0}, "end": {"line": 5, "character": 0}}
    expected = answer_of(opened, INSTRUCTION, range=lines)
    opened.keys("4GVj:DraftlineEdit<CR>")
    opened.until_lua("return vim.api.nvim_get_mode().mode == 'c'")
    opened.keys(f"{INSTRUCTION}<CR>")
    preview(opened)
    opened.keys("ga")
    opened.until(lambda: closed(opened), "the preview closes")
    assert opened.text() == expected
    assert opened.text().split("\n")[5:] == SOURCE.split("\n")[5:]


@pytest.mark.usefixtures("beside")
def test_an_edit_is_shown_beside_the_buffer(opened: Neovim) -> None:
    expected = answer_of(opened, INSTRUCTION)
    opened.keys(f":DraftlineEdit {INSTRUCTION}<CR>")
    preview_beside(opened)
    assert "ga takes it" in "\n".join(opened.screen())
    opened.keys("<CR>")
    opened.until(lambda: closed(opened), "the preview closes")
    assert opened.text() == expected


def test_a_rejected_edit_changes_nothing(opened: Neovim) -> None:
    tick = opened.lua("return vim.b.changedtick")
    opened.keys(f":DraftlineEdit {INSTRUCTION}<CR>")
    preview(opened)
    opened.keys("q")
    opened.until(lambda: closed(opened), "the preview closes")
    assert (opened.text(), opened.lua("return vim.b.changedtick")) == (SOURCE, tick)


def running(nvim: Neovim, instruction: str = INSTRUCTION) -> None:
    """Start an edit that runs long, and wait until its progress shows."""
    nvim.lua("Probe.progress = {}")
    nvim.keys(f":DraftlineEdit {instruction}<CR>")
    nvim.until_lua(
        "return vim.iter(Probe.progress):any(function(each) return each.kind == 'begin' end)"
    )


def long_file(nvim: Neovim, tmp_path: Path) -> str:
    """A file whose edit takes seconds, and which is not too long for an edit of the whole."""
    text = "".join(SOURCE.replace("add", f"add_{number}") for number in range(8))
    (tmp_path / "long.py").write_text(text, "utf-8")
    nvim.open(tmp_path / "long.py")
    return text


def test_progress_is_told_and_ends(opened: Neovim) -> None:
    running(opened)
    preview(opened)
    tokens = opened.lua("return Probe.progress")
    ours = [each["kind"] for each in tokens if str(each["token"]).startswith("draftline.nvim/")]
    assert ours[0] == "begin" and ours[-1] == "end" and ours.count("begin") == 1
    assert "report" in ours
    opened.until_lua("return next(Probe.client().progress.pending) == nil")  # the index's, too


def test_an_edit_is_refused_where_its_lines_changed(nvim: Neovim, tmp_path: Path) -> None:
    text = long_file(nvim, tmp_path)
    running(nvim)
    nvim.keys("4GAmine 😋<Esc>")
    nvim.until(lambda: re.search("Draftline: .*changed", nvim.messages()), "refused")
    assert nvim.text() == text.replace("right):", "right):mine 😋", 1)
    assert closed(nvim)


def test_a_running_edit_is_cancelled(nvim: Neovim, tmp_path: Path) -> None:
    text = long_file(nvim, tmp_path)
    running(nvim)
    nvim.keys(":DraftlineCancel<CR>")
    nvim.said("Draftline: editing: cancelled")
    assert nvim.text() == text
    nvim.until_lua("return next(Probe.client(0).requests) == nil")  # the server answered, too
    nvim.until_lua("return require('draftline').status() == 'ready'")
    assert closed(nvim)
    nvim.keys(":messages clear<CR>:DraftlineCancel<CR>")
    nvim.said("nothing was running")


def test_the_short_commands_answer(opened: Neovim) -> None:
    opened.keys(":DraftlineStatus<CR>")
    opened.said("Draftline: ready")
    opened.keys(":DraftlineWhy<CR>")
    opened.until(lambda: len(opened.messages().splitlines()) > 1, "why")
    opened.keys(":DraftlineToggle<CR>")
    opened.said("completions are off")
    opened.keys(":DraftlineToggle<CR>")
    opened.said("completions are on")


def test_a_question_is_answered_in_a_split(opened: Neovim) -> None:
    opened.keys(":DraftlineAsk What does twice do?<CR>")
    opened.until_lua("return vim.bo.filetype == 'markdown'")
    shown = "return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n')"
    head = "# What does twice do?\n\n"
    opened.until(lambda: len(opened.lua(shown)) > len(head), "an answer comes")
    opened.until_lua("return next(Probe.client().requests) == nil")
    assert opened.lua(shown).startswith(head)
    opened.keys("q")
    opened.until_lua("return #vim.api.nvim_list_wins() == 1")


@pytest.mark.usefixtures("beside")
def test_a_proposal_waits_until_the_user_is_back(opened: Neovim) -> None:
    """It opens no window in front of somebody who types elsewhere."""
    # All at once: an answer that is known from before may come sooner than the next keys.
    opened.keys(f":DraftlineEdit {INSTRUCTION}<CR>:enew<CR>ielsewhere")
    opened.said("waits until you are there")
    assert opened.lua("return { vim.api.nvim_get_mode().mode, #vim.api.nvim_list_wins() }") == [
        "i",
        1,
    ]
    opened.keys("<Esc>:buffer sums.py<CR>")
    preview_beside(opened)
    opened.keys("q")
    opened.until(lambda: closed(opened), "the preview closes")


def test_the_code_action_asks_for_an_instruction(opened: Neovim) -> None:
    """The server's action runs the plugin's command, with the action's range."""
    kind = "refactor.rewrite.draftline.edit"
    opened.keys("4GVj")
    opened.lua("vim.lsp.buf.code_action({ context = { only = { ... } }, apply = true })", kind)
    opened.until_lua("return vim.api.nvim_get_mode().mode == 'c'")
    opened.keys(f"{INSTRUCTION}<CR>")
    preview(opened)
    opened.keys("ga")
    opened.until(lambda: closed(opened), "the preview closes")
    assert opened.text() != SOURCE
    assert opened.text().split("\n")[5:] == SOURCE.split("\n")[5:]


def test_the_next_edit_is_shown(opened: Neovim, artefacts: Path) -> None:
    opened.keys(":8s/left/first/<CR>:DraftlineNextEdit<CR>")
    preview(opened)
    screen = "\n".join(opened.screen())
    (artefacts / "neovim-next-edit.txt").write_text(screen, "utf-8")
    opened.keys("ga")
    opened.until(lambda: closed(opened), "the preview closes")
    changed = SOURCE.replace("twice(left)", "twice(first)").replace("left, left", "first, first")
    assert opened.text() == changed


def test_without_a_server_one_line_says_so(nvim: Neovim) -> None:
    nvim.lua("vim.cmd('enew | messages clear')")
    nvim.keys(":DraftlineEdit x<CR>")
    nvim.said("no server for this buffer")
    assert len(nvim.messages().splitlines()) == 1


def test_the_readme_s_lines_are_enough(
    tmp_path: Path, program: Path, server_command: list[str], server_environment: dict[str, str]
) -> None:
    """The first block of the README, as it stands, with only the command's path changed."""
    readme = (PLUGIN / "README.md").read_text("utf-8")
    block = readme.split("```lua\n")[1].split("```")[0]
    assert len(block.splitlines()) <= 6 and "{ 'draftline', 'lsp' }" in block
    command = "{" + ", ".join(map(lua_string, server_command)) + "}"
    init = block.replace("{ 'draftline', 'lsp' }", command)
    (tmp_path / "sums.py").write_text(SOURCE, "utf-8")
    with Neovim(program, tmp_path / "nvim", ["unused"], server_environment, init) as nvim:
        nvim.open(tmp_path / "sums.py", ready=False)
        nvim.keys("Go<CR>def half(left):<CR>    return <C-x><C-o>")
        answer = nvim.request("workspace/executeCommand", {"command": "draftline.status"})
        assert answer["result"]["state"] in {"loading", "ready", "busy"}
