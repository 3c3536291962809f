-- A buffer's text in the protocol's terms: lines, ranges and edits, byte for byte: carriage returns
-- inside lines are kept. Nothing here changes a buffer.
local M = {}

---@param bufnr integer
---@return string[]
function M.lines(bufnr)
  return vim.api.nvim_buf_get_lines(bufnr, 0, -1, false)
end

---@param bufnr integer
---@return { uri: string, version: integer }
function M.document(bufnr)
  return { uri = vim.uri_from_bufnr(bufnr), version = vim.lsp.util.buf_versions[bufnr] }
end

--- A command's range in the protocol's terms, up to the start of the following line; nil if the
--- command has none.
---@param arguments vim.api.keyset.create_user_command.command_args
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return lsp.Range?
function M.range(arguments, encoding)
  if arguments.range == 0 then
    return nil
  end
  local first, last = arguments.line1, arguments.line2
  local stop = { line = last, character = 0 }
  if last >= vim.api.nvim_buf_line_count(0) then
    local text = vim.api.nvim_buf_get_lines(0, last - 1, last, false)[1]
    stop = { line = last - 1, character = vim.str_utfindex(text, encoding) }
  end
  return { start = { line = first - 1, character = 0 }, ['end'] = stop }
end

--- The edits of the one document that a WorkspaceEdit changes.
---@param edit lsp.WorkspaceEdit
---@return string uri
---@return lsp.TextEdit[]
---@return integer? version that the edits are for
function M.only_document(edit)
  local changes = edit.documentChanges
  if changes then
    assert(#changes == 1 and changes[1].edits, 'Draftline: the edit is not of one document')
    local name = changes[1].textDocument
    return name.uri, changes[1].edits, name.version ~= vim.NIL and name.version or nil
  end
  local uri, edits = next(edit.changes)
  assert(uri and not next(edit.changes, uri), 'Draftline: the edit is not of one document')
  return uri, edits
end

--- The edits of all documents that a WorkspaceEdit changes, by path.
---@param edit? lsp.WorkspaceEdit
---@return table<string, lsp.TextEdit[]>
function M.by_path(edit)
  local found = {}
  for _, change in ipairs(edit and edit.documentChanges or {}) do
    found[vim.uri_to_fname(change.textDocument.uri)] = change.edits
  end
  for uri, edits in pairs(edit and edit.changes or {}) do
    found[vim.uri_to_fname(uri)] = edits
  end
  return found
end

--- A buffer's lines after edits. vim.lsp.util.apply_text_edits would drop carriage returns.
---@param lines string[] of the buffer at the time of the request
---@param bufnr integer whose options apply
---@param edits lsp.TextEdit[]
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return string[]
function M.edited(lines, bufnr, edits, encoding)
  local starts, length = {}, 0 -- byte offset of each line
  for index, line in ipairs(lines) do
    starts[index] = length
    length = length + #line + 1
  end
  local options = vim.bo[bufnr]
  local ended = options.endofline -- as Neovim sends it to the server
  local text = table.concat(lines, '\n') .. (ended and '\n' or '')

  local function offset(position)
    local line = lines[position.line + 1]
    if not line then
      return #text
    end
    return starts[position.line + 1] + vim.str_byteindex(line, encoding, position.character, false)
  end
  local cuts = {} ---@type { start: integer, stop: integer, index: integer, text: string }[]
  local line_end = options.fileformat == 'dos' and '\r\n'
    or options.fileformat == 'mac' and '\r'
    or '\n'
  for index, edit in ipairs(edits) do
    cuts[index] = {
      start = offset(edit.range.start),
      stop = offset(edit.range['end']),
      index = index, -- keeps insertions at one position in order
      text = edit.newText:gsub(line_end, '\n'),
    }
  end
  table.sort(cuts, function(one, other)
    if one.start ~= other.start then
      return one.start > other.start
    end
    return one.index > other.index
  end)
  for _, cut in ipairs(cuts) do
    text = text:sub(1, cut.start) .. cut.text .. text:sub(cut.stop + 1)
  end
  local result = vim.split(text, '\n', { plain = true })
  if ended and #result > 1 and result[#result] == '' then
    result[#result] = nil
  end
  return result
end

return M
