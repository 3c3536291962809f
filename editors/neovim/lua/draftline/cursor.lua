-- Tells the server where the cursor is, so that it reads the text there before anything is typed.
local M = {}

---@type { bufnr: integer, row: integer, tick: integer, client: integer }? the latest place
local latest

--- Tell a move to another line or buffer; typing moves the cursor, too.
---@param bufnr integer
function M.moved(bufnr)
  local client = vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr })[1]
  if not client or bufnr ~= vim.api.nvim_get_current_buf() then
    return
  end
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local tick = vim.api.nvim_buf_get_changedtick(bufnr)
  local before = latest
  latest = { bufnr = bufnr, row = row, tick = tick, client = client.id }
  local is_same = before and before.bufnr == bufnr and before.client == client.id
  if is_same and (before.row == row or before.tick ~= tick) then
    return
  end
  local position = require('draftline.problems').position
  client:notify('draftline/cursor', {
    textDocument = { uri = vim.uri_from_bufnr(bufnr) },
    position = position(bufnr, row - 1, column, client.offset_encoding),
  })
end

return M
