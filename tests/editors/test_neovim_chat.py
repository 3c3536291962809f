"""The chat, commit messages and edits of several files in Neovim, with the real server. Not here:
how good the model's answers are."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.neovim import WITH_PLUGIN, Neovim, Terminal

pytestmark = pytest.mark.editors
SOURCE = '''"""Sums. 😋 é"""


def add(left, right):
    return left + right
'''
USER = '''"""Uses sums."""

from sums import add


def twice(left):
    return add(left, left)
'''
MODEL = (
    "vim.lsp.config('draftline', { settings = { draftline = { model = 'qwen2.5-coder-0.5b' } } })\n"
)
CHAT = """
local chat = vim.fn.bufnr('draftline://chat')
return chat == -1 and '' or table.concat(vim.api.nvim_buf_get_lines(chat, 0, -1, false), '\\n')
"""


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory,
    program: Path,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("chat")
    with Neovim(
        program, folder / "nvim", server_command, server_environment, MODEL + WITH_PLUGIN
    ) as nvim:
        yield nvim


@pytest.fixture(scope="module")
def project(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is a root, so that the server indexes it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").touch()
    return folder


@pytest.fixture
def nvim(
    session: Neovim, project: Path, artefacts: Path, request: pytest.FixtureRequest
) -> Iterator[Neovim]:
    """The session in a project with two files, the first one open."""
    session.keys("<C-\\><C-N>")
    session.lua(
        "vim.cmd('silent! only! | silent! %bwipeout!')\nvim.cmd.cd({ args = { ... } })",
        str(project),
    )
    (project / "sums.py").write_text(SOURCE, "utf-8")
    (project / "use.py").write_text(USER, "utf-8")
    session.open(project / "sums.py")
    yield session
    screen = "\n".join(session.screen()) + "\n\n" + session.messages() + "\n"
    name = re.sub(r"\W+", "_", request.node.name)
    (artefacts / f"neovim-{name}.txt").write_text(screen, "utf-8")


def answered(nvim: Neovim, count: int = 1) -> str:
    """Wait until so many answers are complete: a new question begins. All of the chat."""
    nvim.until(lambda: nvim.lua(CHAT).count("# You") == count + 1, f"{count} answers")
    return str(nvim.lua(CHAT))


def test_a_question_about_the_file_and_a_follow_up(nvim: Neovim, artefacts: Path) -> None:
    with Terminal(nvim) as terminal:
        nvim.keys(":DraftlineChat<CR>")
        nvim.until_lua("return vim.api.nvim_get_mode().mode == 'i'")
        assert nvim.lua(CHAT) == "# You\n\n@sums.py "
        nvim.keys("What does add do?<C-s>")
        chat = answered(nvim)
        assert chat.startswith("# You\n\n@sums.py What does add do?\n\n# Draftline\n\n")
        assert len(chat.split("# Draftline\n\n")[1].split("# You")[0].strip()) > 10
        nvim.keys("GAAnd in one word?<Esc><CR>")
        chat = answered(nvim, 2)
        assert "# You\n\nAnd in one word?\n\n# Draftline\n\n" in chat
        shown = "\n".join(nvim.screen())
        (artefacts / "neovim-chat.txt").write_text(shown, "utf-8")
        assert "Press ENTER" not in terminal.shown()
    sent = nvim.lua("return #Probe.client().requests")
    assert sent == 0
    nvim.keys("u")  # the conversation cannot be undone
    nvim.said("Already at oldest change")
    assert nvim.lua(CHAT) == chat
    nvim.keys(":DraftlineChat!<CR><Esc>")
    nvim.until(lambda: nvim.lua(CHAT) == "# You\n\n", "a new chat")


def test_the_selection_is_sent_and_an_answer_stops(nvim: Neovim) -> None:
    nvim.lua(
        "Sent = nil\nlocal client = Probe.client(0)\nlocal request = client.request\n"
        "client.request = function(self, method, params, ...)\n"
        "  if method == 'draftline/chat' then Sent = vim.deepcopy(params) end\n"
        "  return request(self, method, params, ...)\nend"
    )
    nvim.lua(  # at its first part: an answer may be short
        "vim.api.nvim_create_autocmd('LspProgress', { callback = function(event)\n"
        "  if event.data.params.value.text then\n"
        "    vim.api.nvim_feedkeys(vim.keycode('<C-c>'), 'm', false)\n    return true\n"
        "  end\nend })"
    )
    nvim.keys(":4,5DraftlineChat Explain each word of this in twenty sentences<CR>")
    nvim.until(lambda: nvim.lua("return Sent"), "sent")
    chat = answered(nvim)
    sent = nvim.lua("return Sent")
    uri = (Path(nvim.lua("return vim.fn.getcwd()")) / "sums.py").as_uri()
    lines = {"start": {"line": 3, "character": 0}, "end": {"line": 4, "character": 23}}
    assert sent["context"] == [{"uri": uri, "range": lines}]
    assert sent["messages"][-1]["content"].startswith("#selection Explain each word")
    assert "(cancelled)" in chat
    assert nvim.text() == chat + "\n"


def test_what_is_not_there_is_named(nvim: Neovim) -> None:
    nvim.keys(":DraftlineChat What is in @none.py?<CR>")
    nvim.said("there is no file none.py?")
    nvim.keys(":messages clear<CR>:DraftlineChat! #selection please<CR>")
    nvim.said("nothing is selected for #selection")
    nvim.keys(":messages clear<CR>:DraftlineChat! #diagnostics please<CR>")
    nvim.said("has no diagnostics")


def test_code_of_an_answer_is_yanked_put_and_applied(nvim: Neovim) -> None:
    nvim.keys(":4,5DraftlineChat!<CR>")
    nvim.until_lua("return vim.api.nvim_get_mode().mode == 'i'")
    nvim.keys("<Esc>")
    nvim.until_lua("return vim.api.nvim_get_mode().mode == 'n'")
    nvim.lua(
        "local chat = vim.fn.bufnr('draftline://chat')\n"
        "vim.api.nvim_buf_set_lines(chat, -1, -1, false, { '```python', 'def plus(left, right):',"
        " '    return left + right', '```' })\n"
        "vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(0) - 1, 0 })"
    )
    block = "def plus(left, right):\n    return left + right\n"
    nvim.keys("gy")
    nvim.until(lambda: nvim.lua("return vim.fn.getreg('\"')") == block, "yanked")
    nvim.keys("ga")
    nvim.until_lua("return require('draftline.hunks').is_open(vim.fn.bufnr('sums.py'))")
    nvim.keys("ga")
    nvim.until(lambda: nvim.text() == SOURCE.replace("add", "plus"), "applied")
    nvim.keys("u")
    nvim.until(lambda: nvim.text() == SOURCE, "one undo")
    nvim.keys("gg<C-w>lgp")
    nvim.until(lambda: nvim.text() == SOURCE.replace("\n", "\n" + block, 1), "put below the cursor")


def test_code_of_an_answer_is_applied_where_it_belongs(nvim: Neovim) -> None:
    """Nothing is selected: the definition of the same name is replaced, the import goes up."""
    nvim.keys(":DraftlineChat<CR>")
    nvim.until_lua("return vim.api.nvim_get_mode().mode == 'i'")
    nvim.keys("<Esc>")
    nvim.until_lua("return vim.api.nvim_get_mode().mode == 'n'")
    nvim.lua(
        "local chat = vim.fn.bufnr('draftline://chat')\n"
        "vim.api.nvim_buf_set_lines(chat, -1, -1, false, { '```python', 'import operator', '',"
        " 'def add(left, right):', '    return operator.add(left, right)', '```' })\n"
        "vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(0) - 1, 0 })"
    )
    nvim.keys("ga")
    nvim.until_lua("return require('draftline.hunks').is_open(vim.fn.bufnr('sums.py'))")
    nvim.keys("ga")
    head, _, _ = SOURCE.partition("\n\n\n")
    added = "def add(left, right):\n    return operator.add(left, right)\n"
    wanted = f"{head}\n\nimport operator\n\n\n{added}"
    nvim.until(lambda: nvim.text() == wanted, "applied")


def test_explain_is_a_code_action(nvim: Neovim) -> None:
    nvim.keys("4GVj")
    kind = "refactor.draftline.explain"
    nvim.lua("vim.lsp.buf.code_action({ context = { only = { ... } }, apply = true })", kind)
    chat = answered(nvim)
    assert "#selection Explain what this code does" in chat


def test_explain_and_fix_a_diagnostic(nvim: Neovim) -> None:
    nvim.lua(
        "local space = vim.api.nvim_create_namespace('probe')\n"
        "vim.diagnostic.set(space, 0, { { lnum = 4, col = 11, end_lnum = 4, end_col = 15,"
        " message = 'undefined name left', severity = 1 } })"
    )
    nvim.keys("5G")
    nvim.lua(
        "vim.lsp.buf.code_action({ context = { only = { ... } }, apply = true })",
        "quickfix.draftline.explain",
    )
    chat = answered(nvim)
    assert "Explain this problem: undefined name left" in chat
    nvim.keys(":DraftlineChat! #diagnostics Why?<CR>")
    answered(nvim)


def commit_all(folder: Path) -> None:
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Begin"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_a_commit_message(nvim: Neovim, project: Path) -> None:
    nvim.keys(":DraftlineCommit<CR>")
    nvim.said("not a git repository")
    commit_all(project)
    nvim.keys(":messages clear<CR>:DraftlineCommit<CR>")
    nvim.said("nothing is staged")
    (project / "sums.py").write_text(SOURCE.replace("add", "plus"), "utf-8")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    ran = project.parent / "ran by git"
    for name in ("core.fsmonitor", "diff.external", "diff.own.textconv", "core.pager"):
        program = f"touch '{ran}'; false"
        subprocess.run(["git", "config", name, program], cwd=project, check=True)
    (project / ".git" / "info" / "attributes").write_text("*.py diff=own\n")
    nvim.keys(":DraftlineCommit<CR>")
    nvim.until_lua("return vim.bo.filetype == 'gitcommit' and vim.fn.getline(1) ~= ''")
    assert nvim.lua("return vim.bo.buftype") == "nofile"
    nvim.keys("q:edit .git/COMMIT_EDITMSG<CR>")
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, { '', '# Please enter' })")
    nvim.keys(":DraftlineCommit<CR>")
    nvim.until_lua("return vim.fn.getline(1) ~= ''")
    assert nvim.text().endswith("\n# Please enter\n")
    nvim.keys("u:set nomodified<CR>")
    assert not ran.exists()


def chosen(nvim: Neovim, instruction: str) -> list[str]:
    """Ask for an edit of files; the lines of the list that is shown."""
    nvim.keys(f":DraftlineEditFiles {instruction}<CR>")
    nvim.until_lua("return vim.bo.buftype == 'acwrite'")
    return nvim.text().splitlines()


def text_of(nvim: Neovim, name: str) -> str:
    lines = nvim.lua("return vim.api.nvim_buf_get_lines(vim.fn.bufnr(...), 0, -1, false)", name)
    return "\n".join([*lines, ""])


def test_files_are_edited_and_accepted(nvim: Neovim, project: Path, artefacts: Path) -> None:
    with Terminal(nvim) as terminal:
        listed = chosen(nvim, "Rename the function add to plus")
        assert listed[0] == "sums.py"
        nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'sums.py', 'none.py' })")
        nvim.keys("<CR>")
        nvim.said("there is no file none.py")
        nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'sums.py', 'use.py' })")
        nvim.keys(":w<CR>")
        nvim.until_lua("return vim.bo.buftype == 'quickfix'")
        shown = "\n".join(nvim.screen())
        (artefacts / "neovim-edit-files.txt").write_text(shown, "utf-8")
        assert "use.py|3| from sums import add → from sums import plus" in shown
        assert "Press ENTER" not in terminal.shown()
    assert (text_of(nvim, "sums.py"), text_of(nvim, "use.py")) == (SOURCE, USER)
    nvim.keys(":DraftlineAccept<CR>")
    nvim.until(lambda: text_of(nvim, "use.py") == USER.replace("add", "plus"), "accepted")
    assert text_of(nvim, "sums.py") == SOURCE.replace("add", "plus")
    assert (project / "use.py").read_text("utf-8") == USER, "not written"
    nvim.lua("vim.api.nvim_buf_call(vim.fn.bufnr('use.py'), function() vim.cmd('silent undo') end)")
    assert text_of(nvim, "use.py") == USER


def test_files_are_rejected_or_accepted_one_by_one(nvim: Neovim) -> None:
    chosen(nvim, "Rename the function add to plus")
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'sums.py', 'use.py' })")
    nvim.keys("<CR>")
    nvim.until_lua("return vim.bo.buftype == 'quickfix'")
    nvim.keys("<CR>")
    nvim.until_lua("return vim.fn.expand('%:t') == 'sums.py'")
    nvim.keys("ga")
    nvim.until(lambda: text_of(nvim, "sums.py") == SOURCE.replace("add", "plus"), "accepted")
    nvim.keys(":DraftlineReject<CR>")
    nvim.until_lua("return not require('draftline.hunks').is_open(vim.fn.bufnr('use.py'))")
    assert text_of(nvim, "use.py") == USER


def test_a_file_that_changes_meanwhile_is_left(nvim: Neovim, project: Path) -> None:
    """Between the answer and its arrival, which no test can time: from the answer's own handler."""
    nvim.lua(
        "local review = require('draftline.review')\n"
        "local client = Probe.client(0)\nlocal request, path = client.request, ...\n"
        "client.request = function(self, method, params, handler, ...)\n"
        "  if method ~= 'draftline/editFiles' then\n"
        "    return request(self, method, params, handler, ...)\n  end\n"
        "  return request(self, method, params, function(...)\n"
        "    vim.fn.writefile({ 'mine' }, path)\n"
        "    return handler(...)\n  end, ...)\nend",
        str(project / "use.py"),
    )
    chosen(nvim, "Rename the function add to plus")
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'sums.py', 'use.py' })")
    nvim.keys("<CR>")
    nvim.until_lua("return vim.bo.buftype == 'quickfix'")
    assert "it changed meanwhile; ask again" in nvim.text()
    nvim.keys(":DraftlineReject<CR>")


def test_next_edits_in_another_file_are_offered(nvim: Neovim, project: Path) -> None:
    nvim.lua("vim.ui.select = function(items, options, done) Items = items; done(items[1], 1) end")
    reindexed = nvim.lua(
        "return Probe.client(0):request_sync('workspace/executeCommand',"
        " { command = 'draftline.reindex' }, 60000).result"
    )
    assert reindexed["files"] == 3
    nvim.keys(":4s/add/plus/<CR>:DraftlineNextEdit<CR>")
    nvim.until(
        lambda: (
            nvim.lua("return vim.fn.expand('%:t')") == "use.py" or "next edit" in nvim.messages()
        ),
        "a place in the other file",
    )
    assert nvim.lua("return vim.fn.expand('%:t')") == "use.py", nvim.messages()
    nvim.until_lua("return require('draftline.hunks').is_open(vim.fn.bufnr('use.py'))")
