-- The tests' half inside Neovim: runs Lua that a test sends, and keeps what happens between calls.
-- The plugin is used as a person would: from 'runtimepath', with `vim.lsp.enable`.
Probe = { answers = {}, progress = {} }

--- Run a piece of Lua with arguments; the answer is JSON: { ok, value }.
---@param code string
---@param arguments any[]
---@return string
function Probe.run(code, arguments)
  local run, problem = load(code)
  if not run then
    return vim.json.encode({ ok = false, value = problem })
  end
  local ok, value = xpcall(run, debug.traceback, unpack(arguments))
  return vim.json.encode({ ok = ok, value = value == nil and vim.NIL or value })
end

---@param bufnr? integer
---@return vim.lsp.Client
function Probe.client(bufnr)
  return vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr })[1]
end

--- Send a request; its answer is later found in Probe.answers[name].
---@param name string
---@param method string
---@param params table
function Probe.request(name, method, params)
  Probe.client(0):request(method, params, function(err, result)
    Probe.answers[name] =
      { err = err and { code = err.code, message = err.message }, result = result }
  end)
end

--- The screen as a person sees it, one string a line.
---@return string[]
function Probe.screen()
  vim.cmd.redraw({ bang = true })
  local rows = {}
  for row = 1, vim.o.lines do
    local cells = {}
    for column = 1, vim.o.columns do
      cells[column] = vim.fn.screenstring(row, column)
    end
    rows[row] = table.concat(cells)
  end
  return rows
end

vim.api.nvim_create_autocmd('LspProgress', {
  callback = function(event)
    local params = event.data.params
    if type(params.value) == 'table' and params.value.kind then -- not a part of the answer
      table.insert(Probe.progress, { token = params.token, kind = params.value.kind })
    end
  end,
})
