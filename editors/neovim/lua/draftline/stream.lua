-- An answer while it is written: the lines that it will replace are dimmed, and the new text grows
-- below them as virtual lines. The buffer does not change.
local keys = require('draftline.keys')

local M = {}

local namespace = vim.api.nvim_create_namespace('draftline.stream')

local DIM_PRIORITY = 250 -- above syntax and semantic tokens
local HINT = '▏Draftline is writing · <Esc> cancels'

---@class draftline.Stream
---@field bufnr integer
---@field text string
---@field region integer the extmark of the old lines
---@field shown integer the extmark of the new lines
---@field cancel fun()
---@field unmap fun()

---@type table<integer, draftline.Stream> by buffer
local streams = {}

--- The first lines of a window that a stream of this buffer may cover: half of its height.
---@param bufnr integer
---@return integer first line that is visible, from 0
---@return integer height
local function view(bufnr)
  local window = vim.fn.bufwinid(bufnr)
  if window < 0 then
    return 0, vim.o.lines
  end
  return vim.fn.line('w0', window) - 1, vim.api.nvim_win_get_height(window)
end

--- Draw the text so far: its last lines, in view even where the old lines fill the window.
---@param stream draftline.Stream
local function draw(stream)
  local mark = vim.api.nvim_buf_get_extmark_by_id(
    stream.bufnr,
    namespace,
    stream.region,
    { details = true }
  )
  if #mark == 0 then
    return
  end
  local top, height = view(stream.bufnr)
  local half = math.max(4, math.floor(height / 2))
  local lines = vim.split(stream.text, '\r?\n')
  local cut = math.max(0, #lines - half)
  local virtual = { { { HINT, 'DraftlineHint' } } }
  for index = cut + 1, #lines do
    local line = (cut > 0 and index == cut + 1) and '…' or lines[index]
    virtual[#virtual + 1] = { { line == '' and ' ' or line, 'DraftlineNew' } }
  end
  local first = mark[1]
  local last = math.max(first, mark[3].end_row - 1)
  local row = math.max(first, math.min(last, top + height - half - 2))
  row = math.min(row, vim.api.nvim_buf_line_count(stream.bufnr) - 1)
  stream.shown = vim.api.nvim_buf_set_extmark(stream.bufnr, namespace, row, 0, {
    id = stream.shown,
    virt_lines = virtual,
  })
end

--- Start a stream in place of lines of a buffer.
---@param bufnr integer
---@param first integer the first line, from 0
---@param stop integer the line after the last one
---@param cancel fun() called on <Esc>, and by a stream that replaces this one; closes it
function M.open(bufnr, first, stop, cancel)
  if streams[bufnr] then
    streams[bufnr].cancel()
  end
  local count = vim.api.nvim_buf_line_count(bufnr)
  stop = math.min(stop, count)
  local last = vim.api.nvim_buf_get_lines(bufnr, stop - 1, stop, false)[1] or ''
  local at_end = stop == count
  ---@type draftline.Stream
  local stream = {
    bufnr = bufnr,
    text = '',
    cancel = cancel,
    region = vim.api.nvim_buf_set_extmark(bufnr, namespace, first, 0, {
      end_row = at_end and stop - 1 or stop,
      end_col = at_end and #last or 0,
      hl_group = 'DraftlineDim',
      priority = DIM_PRIORITY,
    }),
    unmap = keys.map(bufnr, { ['<Esc>'] = { run = cancel, desc = 'Cancel the edit' } }),
  }
  streams[bufnr] = stream
  draw(stream)
end

--- Append to a buffer's stream; `restart` if it begins anew.
---@param bufnr integer
---@param text string
---@param restart? boolean
function M.append(bufnr, text, restart)
  local stream = streams[bufnr]
  if stream and vim.api.nvim_buf_is_valid(bufnr) then
    stream.text = (restart and '' or stream.text) .. text
    draw(stream)
  end
end

--- Remove a buffer's stream.
---@param bufnr integer
function M.close(bufnr)
  local stream = streams[bufnr]
  streams[bufnr] = nil
  if stream and vim.api.nvim_buf_is_valid(bufnr) then
    stream.unmap()
    vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  end
end

return M
