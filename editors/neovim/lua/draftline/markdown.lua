-- Markdown buffers and their fenced code blocks.
local M = {}

--- Make a buffer a markdown one. Neovim's own plugin for these fails, with a prompt for Enter, where
--- the parser is missing; then the buffer has no highlighting.
---@param bufnr integer
function M.set_filetype(bufnr)
  vim.api.nvim_buf_call(bufnr, function()
    local mods = { silent = true, emsg_silent = true }
    vim.cmd.setlocal({ args = { 'filetype=markdown' }, mods = mods })
  end)
end

--- The lines of the code block around a line, without its fences; nil outside of one.
---@param lines string[]
---@param at integer
---@return string[]?
function M.around(lines, at)
  local fence, first ---@type string?, integer
  for number, line in ipairs(lines) do
    local indent, ticks, info = line:match('^( ? ? ?)([`~]+)(.*)$')
    if fence then
      local closes = ticks and #ticks >= #fence and ticks:sub(1, 1) == fence:sub(1, 1)
      if closes and vim.trim(info) == '' then
        if at >= first - 1 and at <= number then
          return vim.list_slice(lines, first, number - 1)
        end
        fence = nil
      end
    elseif indent and #ticks >= 3 and ticks == ticks:sub(1, 1):rep(#ticks) then
      fence, first = ticks, number + 1
    end
    if not fence and number >= at then
      return nil
    end
  end
  return fence and at >= first - 1 and vim.list_slice(lines, first) or nil -- it is being written
end

return M
