-- `:DraftlineCommit`: a message for the staged changes.
local draftline = require('draftline')
local job = require('draftline.job')

local M = {}

local GIT_TIMEOUT_MS = 20000
local REPOSITORY = { 'git', 'rev-parse', '--git-dir' } -- without one, `git diff` is another command
-- Diff drivers and the file monitor that a repository's configuration names are not run.
local STAGED = { 'git', '-c', 'core.fsmonitor=false', '--no-pager', 'diff', '--staged', '--no-color' }
vim.list_extend(STAGED, { '--no-ext-diff', '--no-textconv' })

--- The folder whose repository is meant: the working directory for a message that git asks for,
--- else that of the file.
---@param bufnr integer
---@return string
local function folder(bufnr)
  local path = vim.api.nvim_buf_get_name(bufnr)
  if vim.bo[bufnr].filetype ~= 'gitcommit' and vim.bo[bufnr].buftype == '' and path ~= '' then
    local parent = vim.fs.dirname(path)
    if vim.fn.isdirectory(parent) == 1 then
      return parent
    end
  end
  return vim.fn.getcwd()
end

--- The output of git; nil, with a message, if it fails.
---@param command string[]
---@param cwd string
---@return string?
local function output(command, cwd)
  if vim.fn.executable(command[1]) == 0 then
    draftline.fail('there is no program git; install it')
    return nil
  end
  local done = vim.system(command, { cwd = cwd, timeout = GIT_TIMEOUT_MS }):wait()
  if done.code ~= 0 then
    draftline.fail(vim.trim(done.stderr):match('^[^\n]*'))
    return nil
  end
  return done.stdout
end

--- The staged changes; nil, with a message, if there are none.
---@param cwd string
---@return string?
local function staged(cwd)
  local diff = output(REPOSITORY, cwd) and output(STAGED, cwd)
  if diff and vim.trim(diff) == '' then
    draftline.tell('nothing is staged; `git add` the changes first')
    return nil
  end
  return diff
end

--- Where the message goes: this buffer if git waits for it there, else a new split.
---@param bufnr integer
---@return integer
local function target(bufnr)
  if vim.bo[bufnr].filetype == 'gitcommit' then
    return bufnr
  end
  local scratch = vim.api.nvim_create_buf(false, true)
  vim.bo[scratch].bufhidden = 'wipe'
  vim.api.nvim_open_win(scratch, true, { split = 'below', win = 0, height = 10 })
  vim.bo[scratch].filetype = 'gitcommit'
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = scratch, nowait = true, desc = 'Close' })
  return scratch
end

function M.command()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = vim.lsp.get_clients({ name = 'draftline' })[1] or draftline.client(bufnr)
  local diff = client and staged(folder(bufnr))
  if not client or not diff then
    return
  end
  job.start(client, bufnr, 'draftline/commitMessage', { diff = diff }, {
    label = 'writing the commit message',
    on_done = function(result)
      if not vim.api.nvim_buf_is_valid(bufnr) then
        draftline.tell('the buffer is gone; ask again')
        return
      end
      local into = target(bufnr)
      local lines = vim.split(result.text, '\r?\n')
      local empty = vim.api.nvim_buf_get_lines(into, 0, 1, false)[1] == ''
      vim.api.nvim_buf_set_lines(into, 0, empty and 1 or 0, false, lines)
    end,
  })
end

return M
