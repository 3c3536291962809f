-- Suggestions while typing: ghost text on Neovim 0.12 and newer, the completion menu on 0.11.
-- Options in vim.g.draftline, read when the server attaches:
--   inline = true       ghost text (0.12)
--   keys = {...}        insert-mode keys for it; false disables all of them, or a single one
--   autotrigger = false whether the menu opens by itself (0.11)
local M = {}

local KEYS = { accept = '<Tab>', word = '<M-w>', line = '<M-l>', other = '<M-]>' }

---@param name string
---@param default any
---@return any
local function option(name, default)
  local value = (vim.g.draftline or {})[name]
  if value == nil then
    return default
  end
  return value
end

--- What a key did before: an earlier mapping still applies when there is no suggestion.
---@param key string
---@return fun(): string
local function fallback(key)
  local old = vim.fn.maparg(key, 'i', false, true)
  if old.callback then
    return old.expr == 1 and old.callback
      or function()
        vim.schedule(old.callback)
        return ''
      end
  elseif old.rhs then
    return old.expr == 1 and function()
      return vim.fn.eval(old.rhs)
    end or function()
      return old.rhs
    end
  end
  return function()
    return key
  end
end

---@param text string the suggestion, from the cursor on
---@param unit 'word'|'line'
---@return string
local function first(text, unit)
  if unit == 'line' then
    return text:match('^\n?[^\n]*')
  end
  return text:match('^%s*[%w_\128-\255]+') or text:match('^%s*[^%w%s]+') or text
end

--- Accept the next word or line of a suggestion. Anything but a plain insertion is accepted whole.
---@param unit 'word'|'line'
---@return fun(item: table): table?
local function part(unit)
  return function(item)
    local row, column = unpack(vim.api.nvim_win_get_cursor(0))
    local start_row, start_column = row - 1, column
    if item.range then
      start_row, start_column = item.range:to_extmark()
    end
    local typed = vim.api.nvim_get_current_line():sub(start_column + 1, column)
    local text = item.insert_text
    if type(text) ~= 'string' or start_row ~= row - 1 or not vim.startswith(text, typed) then
      return item
    end
    local piece = first(text:sub(#typed + 1), unit)
    if #typed + #piece >= #text then
      return item
    end
    local lines = vim.split(piece, '\n')
    vim.api.nvim_buf_set_text(0, row - 1, column, row - 1, column, lines)
    local last = #lines == 1 and column + #piece or #lines[#lines]
    vim.api.nvim_win_set_cursor(0, { row + #lines - 1, last })
    local client = assert(vim.lsp.get_client_by_id(item.client_id))
    client:notify('textDocument/didPartiallyAcceptCompletion', {
      item = { insertText = text, command = item.command },
      acceptedLength = vim.str_utfindex(typed .. piece, 'utf-16'),
    })
  end
end

---@param bufnr integer
local function map_keys(bufnr)
  local keys = option('keys', {})
  if not keys then
    return
  end
  keys = vim.tbl_extend('force', KEYS, keys)
  local get = vim.lsp.inline_completion.get
  local function map(name, take, desc)
    local key = keys[name]
    if not key then
      return
    end
    local old = fallback(key)
    local remap = vim.fn.maparg(key, 'i', false, true).noremap == 0
    vim.keymap.set('i', key, function()
      return take() and '' or old()
    end, { buffer = bufnr, expr = true, remap = remap, desc = desc })
  end
  map('accept', get, 'Take the suggestion')
  map('word', function()
    return get({ on_accept = part('word') })
  end, 'Take a word of the suggestion')
  map('line', function()
    return get({ on_accept = part('line') })
  end, 'Take a line of the suggestion')
  map('other', function()
    vim.schedule(vim.lsp.inline_completion.select)
    return true
  end, 'Show another suggestion')
end

---@type table<integer, boolean> buffers with mapped keys
local mapped = {}

---@return boolean
local function is_inline()
  return vim.lsp.inline_completion ~= nil and option('inline', true)
end

--- Ask for ghost text, as after a key in insert mode: while the model was loaded, none came.
---@param client_id integer
function M.ask_again(client_id)
  local bufnr = vim.api.nvim_get_current_buf()
  local inserting = vim.startswith(vim.api.nvim_get_mode().mode, 'i')
  if is_inline() and inserting and vim.lsp.buf_is_attached(bufnr, client_id) then
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = bufnr, modeline = false })
  end
end

--- Neovim 0.11 waits for the answers of clients that have ended, too, unless they are disabled.
---@param client vim.lsp.Client
---@param bufnr integer
function M.detach(client, bufnr)
  if not is_inline() then
    vim.lsp.completion.enable(false, client.id, bufnr)
  end
end

---@param client vim.lsp.Client
---@param bufnr integer
function M.attach(client, bufnr)
  if not is_inline() then
    vim.lsp.completion.enable(
      true,
      client.id,
      bufnr,
      { autotrigger = option('autotrigger', false) }
    )
    return
  end
  -- By buffer: enabled by client, Neovim 0.12 keeps on asking a client that has ended.
  vim.lsp.inline_completion.enable(true, { bufnr = bufnr })
  if not mapped[bufnr] then
    mapped[bufnr] = true
    map_keys(bufnr)
  end
end

return M
