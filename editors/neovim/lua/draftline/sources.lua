-- The places that an answer was copied from, as `path:line`, which `gF` opens.
local M = {}

--- A markdown list with a heading; a newline alone without sources.
---@param sources { uri: string, range: lsp.Range }[]
---@return string
function M.listed(sources)
  local seen, lines = {}, {}
  for _, source in ipairs(sources) do
    local path = vim.fn.fnamemodify(vim.uri_to_fname(source.uri), ':.')
    local line = ('- %s:%d'):format(path, source.range.start.line + 1)
    if not seen[line] then
      seen[line] = true
      lines[#lines + 1] = line
    end
  end
  return #lines > 0 and '\n\nSources:\n\n' .. table.concat(lines, '\n') .. '\n' or '\n'
end

return M
