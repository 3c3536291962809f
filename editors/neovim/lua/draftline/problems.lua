-- Diagnostics in the protocol's terms, from all servers and linters of a buffer.
local M = {}

local MAX_DIAGNOSTICS = 20 -- of one question or list of code actions

--- A position in the buffer; columns past the line's end are its end.
---@param bufnr integer
---@param row integer
---@param column integer in bytes
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return lsp.Position
function M.position(bufnr, row, column, encoding)
  local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
  return { line = row, character = vim.str_utfindex(line, encoding, math.min(column, #line)) }
end

--- The diagnostics of lines.
---@param bufnr integer
---@param first integer
---@param last integer
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return lsp.Diagnostic[]
local function within(bufnr, first, last, encoding)
  local found = {}
  for _, each in ipairs(vim.diagnostic.get(bufnr)) do
    local end_row, end_column = each.end_lnum or each.lnum, each.end_col or each.col
    if each.lnum < last and end_row >= first - 1 and #found < MAX_DIAGNOSTICS then
      found[#found + 1] = {
        range = {
          start = M.position(bufnr, each.lnum, each.col, encoding),
          ['end'] = M.position(bufnr, end_row, end_column, encoding),
        },
        severity = each.severity,
        message = each.message,
        source = each.source,
      }
    end
  end
  return found
end

--- The diagnostics of lines, as draftline/chat has them.
---@param bufnr integer
---@param first integer
---@param last integer
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return { uri: string, range: lsp.Range, message: string }[]
function M.named(bufnr, first, last, encoding)
  local uri = vim.uri_from_bufnr(bufnr)
  return vim.tbl_map(function(each)
    return { uri = uri, range = each.range, message = each.message }
  end, within(bufnr, first, last, encoding))
end

--- Let a client's code actions be about the diagnostics of all sources. Neovim sends each client
--- only its own, and this one has none.
---@param client vim.lsp.Client
function M.share(client)
  local request = client.request
  client.request = function(self, method, params, handler, bufnr)
    if method == 'textDocument/codeAction' then
      local where = vim.uri_to_bufnr(params.textDocument.uri)
      local first, last = params.range.start.line + 1, params.range['end'].line + 1
      params = vim.deepcopy(params)
      params.context.diagnostics = within(where, first, last, self.offset_encoding)
    end
    return request(self, method, params, handler, bufnr)
  end
end

return M
