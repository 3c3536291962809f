-- What a question mentions: `@path`, `@"path with spaces"`, `#selection` and `#diagnostics`, as the
-- server's references. Also the lines that were selected, which move with the text around them.
local problems = require('draftline.problems')

local M = {}

local namespace = vim.api.nvim_create_namespace('draftline.selection')

---@class draftline.Selection
---@field bufnr integer
---@field mark integer

---@class draftline.Mention
---@field uri string
---@field selection? draftline.Selection the lines of that file; without one, all of it

---@class draftline.Mentions
---@field mentioned draftline.Mention[]
---@field diagnostics { uri: string, range: lsp.Range, message: string }[]

--- How a file is mentioned: its path from the working directory, quoted if it has spaces.
---@param bufnr integer
---@return string
function M.file(bufnr)
  local path = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(bufnr), ':.')
  return path:find('%s') and ('@"%s"'):format(path) or '@' .. path
end

--- Remember lines as the selection.
---@param bufnr integer
---@param first integer
---@param last integer
---@return draftline.Selection
function M.select(bufnr, first, last)
  local text = vim.api.nvim_buf_get_lines(bufnr, last - 1, last, false)[1]
  local mark = vim.api.nvim_buf_set_extmark(bufnr, namespace, first - 1, 0, {
    end_row = last - 1,
    end_col = #text,
    right_gravity = false, -- what is typed at its ends belongs to it
    end_right_gravity = true,
  })
  return { bufnr = bufnr, mark = mark }
end

--- The lines of a selection; nil if its buffer is gone.
---@param selection draftline.Selection?
---@return integer? first
---@return integer? last
function M.lines(selection)
  if not selection or not vim.api.nvim_buf_is_loaded(selection.bufnr) then
    return nil
  end
  local bufnr = selection.bufnr
  local mark =
    vim.api.nvim_buf_get_extmark_by_id(bufnr, namespace, selection.mark, { details = true })
  return mark[1] and mark[1] + 1, mark[1] and mark[3].end_row + 1
end

--- The file of a mention; nil if there is none. The punctuation of the sentence may follow it.
---@param named string
---@param root? string
---@return string?
local function resolved(named, root)
  local path = named
  while path ~= '' do
    for _, folder in ipairs({ vim.fn.getcwd(), root }) do
      local whole = vim.fs.normalize(path, { expand_env = false })
      whole = whole:sub(1, 1) == '/' and whole or vim.fs.joinpath(folder, whole)
      local stat = vim.uv.fs_stat(whole)
      if (stat and stat.type == 'file') or vim.fn.bufloaded(whole) == 1 then
        return whole
      end
    end
    local shorter = path:gsub('[%p]$', '')
    if shorter == path then
      return nil
    end
    path = shorter
  end
end

--- All of `known`, and what of `more` is not among them.
---@param known draftline.Mention[]
---@param more draftline.Mention[]
---@return draftline.Mention[]
function M.joined(known, more)
  local all = vim.list_extend({}, known)
  for _, each in ipairs(more) do
    if not vim.iter(all):any(function(other)
      return vim.deep_equal(each, other)
    end) then
      all[#all + 1] = each
    end
  end
  return all
end

--- Mentions as the server's references. Selections whose buffer is gone are left out.
---@param mentioned draftline.Mention[]
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return { uri: string, range?: lsp.Range }[]
function M.context(mentioned, encoding)
  local found = {}
  for _, each in ipairs(mentioned) do
    local first, last = M.lines(each.selection)
    if first then
      local stop = problems.position(each.selection.bufnr, last - 1, math.huge, encoding)
      local range = { start = { line = first - 1, character = 0 }, ['end'] = stop }
      found[#found + 1] = { uri = each.uri, range = range }
    elseif not each.selection then
      found[#found + 1] = { uri = each.uri }
    end
  end
  return found
end

--- What a question mentions; nil and the reason if there is something that it cannot mean.
---@param question string
---@param selection? draftline.Selection
---@param here { bufnr: integer, line: integer } where the user came from
---@param client vim.lsp.Client
---@return draftline.Mentions?
---@return string? problem
function M.read(question, selection, here, client)
  local found = { mentioned = {}, diagnostics = {} } ---@type draftline.Mentions
  local spaced, names = ' ' .. question, {}
  for name in spaced:gmatch('%s@"([^"\n]+)"') do
    names[#names + 1] = name
  end
  for name in spaced:gmatch('%s@([^%s"]%S*)') do
    names[#names + 1] = name
  end
  for _, name in ipairs(names) do
    local path = resolved(name, client.root_dir)
    if not path then
      return nil, ('there is no file %s; if it is none, put it in backquotes'):format(name)
    end
    table.insert(found.mentioned, { uri = vim.uri_from_fname(path) })
  end
  local first, last = M.lines(selection)
  if spaced:find('%s#selection') then
    if not selection or not first then
      return nil, "nothing is selected for #selection; select lines, then :'<,'>DraftlineChat"
    end
    local uri = vim.uri_from_bufnr(selection.bufnr)
    table.insert(found.mentioned, { uri = uri, selection = selection })
  end
  if spaced:find('%s#diagnostics') then
    local bufnr = first and selection.bufnr or here.bufnr
    local from, to = first or here.line, last or here.line
    if vim.api.nvim_buf_is_loaded(bufnr) then
      found.diagnostics = problems.named(bufnr, from, to, client.offset_encoding)
    end
    if #found.diagnostics == 0 then
      return nil, ('line %d has no diagnostics for #diagnostics'):format(from)
    end
  end
  return found
end

return M
