-- A proposal beside its buffer, as a diff. `do` and `dp` move single hunks, as in any diff; `ga`
-- accepts all that remain. Text that the user wrote meanwhile is never overwritten.
local changes = require('draftline.changes')
local draftline = require('draftline')
local keys = require('draftline.keys')
local text = require('draftline.text')

local M = {}

local HINT = ' proposal: ga takes it · dp a hunk · q leaves it '

---@class draftline.Proposal
---@field bufnr integer the buffer to change
---@field window integer that shows the buffer
---@field scratch integer the buffer with the proposal, which the user may edit
---@field known string[] the buffer's lines after the last change made here
---@field was_diff boolean whether the window was in diff mode before

---@type table<integer, draftline.Proposal> by the buffer to change
local proposals = {}

---@param bufnr integer
---@return boolean
function M.is_open(bufnr)
  return proposals[bufnr] ~= nil
end

--- Set a buffer's lines, changing only those that differ, so that marks and folds stay.
---@param bufnr integer
---@param lines string[]
local function put(bufnr, lines)
  local hunks = changes.hunks(text.lines(bufnr), lines)
  for index = #hunks, 1, -1 do
    local hunk = hunks[index]
    vim.api.nvim_buf_set_lines(bufnr, hunk.row, hunk.row + #hunk.old, true, hunk.new)
  end
end

---@param proposal draftline.Proposal
---@return boolean
local function unchanged(proposal)
  return vim.deep_equal(text.lines(proposal.bufnr), proposal.known)
end

---@param proposal draftline.Proposal
local function accept(proposal)
  if not unchanged(proposal) then
    draftline.fail(
      'the buffer changed beside the proposal: take hunks (dp), or leave it (q) and ask again'
    )
    return
  end
  put(proposal.bufnr, text.lines(proposal.scratch))
  vim.api.nvim_buf_delete(proposal.scratch, { force = true })
  draftline.say('taken')
end

---@param proposal draftline.Proposal
local function reject(proposal)
  vim.api.nvim_buf_delete(proposal.scratch, { force = true })
  draftline.say('left; hunks that were taken stay')
end

--- Neovim's own keys for one hunk; their change does not count as the user's.
---@param proposal draftline.Proposal
---@param key 'do'|'dp'
---@return fun()
local function taking(proposal, key)
  return function()
    local clean = unchanged(proposal)
    vim.cmd.normal({ args = { key }, bang = true })
    if clean then
      proposal.known = text.lines(proposal.bufnr)
    end
  end
end

--- Restore windows and mappings when the proposal's buffer is wiped out.
---@param proposal draftline.Proposal
---@param unmap fun()
local function on_close(proposal, unmap)
  vim.api.nvim_create_autocmd('BufWipeout', {
    buffer = proposal.scratch,
    once = true,
    callback = function()
      proposals[proposal.bufnr] = nil
      unmap()
      if vim.api.nvim_win_is_valid(proposal.window) and not proposal.was_diff then
        vim.api.nvim_win_call(proposal.window, vim.cmd.diffoff)
      end
      vim.schedule(function()
        if vim.api.nvim_win_is_valid(proposal.window) then
          vim.api.nvim_set_current_win(proposal.window)
        end
      end)
    end,
  })
end

---@param proposal draftline.Proposal
---@param lines string[]
local function fill(proposal, lines)
  local scratch = proposal.scratch
  vim.api.nvim_buf_set_lines(scratch, 0, -1, false, lines)
  vim.api.nvim_buf_set_name(scratch, ('draftline://%d/proposal'):format(proposal.bufnr))
  vim.bo[scratch].bufhidden = 'wipe'
  vim.bo[scratch].filetype = vim.bo[proposal.bufnr].filetype
  local function map(key, run, desc)
    vim.keymap.set('n', key, run, { buffer = scratch, nowait = true, desc = desc })
  end
  map('ga', function()
    accept(proposal)
  end, 'Take the proposal')
  map('<CR>', function()
    accept(proposal)
  end, 'Take the proposal')
  map('q', function()
    reject(proposal)
  end, 'Leave the proposal')
  map('dp', taking(proposal, 'dp'), 'Take this hunk')
end

--- Show `lines` as a proposal for the buffer in the current window.
---@param bufnr integer
---@param lines string[]
---@param warning? string what to check before accepting
function M.open(bufnr, lines, warning)
  if M.is_open(bufnr) then
    draftline.fail('a proposal for this buffer is open already: take it (ga) or leave it (q) first')
    return
  end
  local window = vim.api.nvim_get_current_win()
  ---@type draftline.Proposal
  local proposal = {
    bufnr = bufnr,
    window = window,
    scratch = vim.api.nvim_create_buf(false, true),
    known = text.lines(bufnr),
    was_diff = vim.wo[window].diff,
  }
  proposals[bufnr] = proposal
  fill(proposal, lines)
  on_close(
    proposal,
    keys.map(bufnr, { ['do'] = { run = taking(proposal, 'do'), desc = 'Take this hunk' } })
  )
  local beside = vim.api.nvim_open_win(proposal.scratch, true, { split = 'right', win = window })
  local check = warning and ('⚠ check this: %s '):format(warning) or ''
  vim.wo[beside][0].statusline = HINT .. check:gsub('%%', '%%%%') -- a winbar would shift its lines
  vim.api.nvim_win_call(window, vim.cmd.diffthis)
  vim.cmd.diffthis()
  vim.api.nvim_win_set_cursor(beside, { 1, 0 })
  local head = vim.api.nvim_get_current_line()
  if vim.api.nvim_buf_get_lines(bufnr, 0, 1, false)[1] == head then
    vim.cmd.normal({ args = { ']c' }, bang = true }) -- to the first hunk
  end
  if warning then
    draftline.tell('check this: ' .. warning, vim.log.levels.WARN)
  else
    draftline.say(vim.trim(HINT))
  end
end

return M
