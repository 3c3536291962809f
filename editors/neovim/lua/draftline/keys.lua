-- Mappings of a buffer for as long as something is shown in it.
local M = {}

--- Map keys in normal mode. Returns a function that restores the buffer's own mappings.
---@param bufnr integer
---@param mappings table<string, { run: fun(), desc: string }> by key
---@return fun()
function M.map(bufnr, mappings)
  local before = {}
  vim.api.nvim_buf_call(bufnr, function()
    for key in pairs(mappings) do
      before[key] = vim.fn.maparg(key, 'n', false, true)
    end
  end)
  for key, mapping in pairs(mappings) do
    vim.keymap.set('n', key, mapping.run, { buffer = bufnr, nowait = true, desc = mapping.desc })
  end
  return function()
    if not vim.api.nvim_buf_is_valid(bufnr) then
      return
    end
    for key in pairs(mappings) do
      pcall(vim.keymap.del, 'n', key, { buffer = bufnr }) -- the user may have unmapped it
      if before[key].buffer == 1 then
        vim.api.nvim_buf_call(bufnr, function()
          vim.fn.mapset('n', false, before[key])
        end)
      end
    end
  end
end

return M
