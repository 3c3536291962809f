-- Edits by instruction, and the next edit: send the request, check that the buffer has not changed,
-- and open the proposal in the preview. Nothing here changes the buffer.
local draftline = require('draftline')
local job = require('draftline.job')
local preview = require('draftline.preview')
local text = require('draftline.text')

local M = {}

local CHANGED = 'the buffer changed while the answer was made, so nothing was applied; ask again'

--- Call `show` once the buffer is current and in normal mode.
---@param bufnr integer
---@param show fun()
local function when_idle(bufnr, show)
  local function idle()
    return vim.api.nvim_get_current_buf() == bufnr and vim.api.nvim_get_mode().mode == 'n'
  end
  if idle() then
    show()
    return
  end
  draftline.tell(
    ('the proposal for %s waits until you are there in normal mode'):format(
      vim.fn.fnamemodify(vim.api.nvim_buf_get_name(bufnr), ':t')
    )
  )
  vim.api.nvim_create_autocmd({ 'BufEnter', 'ModeChanged' }, {
    callback = function()
      if not vim.api.nvim_buf_is_valid(bufnr) then
        return true -- deletes the autocommand
      elseif idle() then
        vim.schedule(show)
        return true
      end
    end,
  })
end

--- Preview edits of a buffer whose lines were `before` at the time of the request.
---@param bufnr integer
---@param before string[]
---@param edits lsp.TextEdit[]
---@param client vim.lsp.Client
---@param warning? string what to check before accepting
local function propose(bufnr, before, edits, client, warning)
  when_idle(bufnr, function()
    if not vim.deep_equal(text.lines(bufnr), before) then
      draftline.fail(CHANGED)
      return
    end
    preview.open(bufnr, text.edited(before, bufnr, edits, client.offset_encoding), warning)
  end)
end

---@param client vim.lsp.Client
---@param bufnr integer
---@param before string[]
---@param instruction string
---@param range? lsp.Range
local function send(client, bufnr, before, instruction, range)
  if not vim.deep_equal(text.lines(bufnr), before) then
    draftline.fail('the buffer changed while the instruction was typed; ask again')
    return
  end
  local params = { textDocument = text.document(bufnr), range = range, instruction = instruction }
  job.start(client, bufnr, 'draftline/edit', params, {
    label = 'editing',
    on_done = function(result)
      if not result or not result.edit or result.edit == vim.NIL then
        local why = result and result.note
        draftline.tell('nothing changed' .. (type(why) == 'string' and ': ' .. why or ''))
        return
      end
      local _, edits = text.only_document(result.edit)
      local warning = table.concat(result.warnings or {}, '; ')
      propose(bufnr, before, edits, client, warning ~= '' and warning or nil)
    end,
  })
end

--- Edit a buffer, or a range of it. Prompts for the instruction if none is given.
---@param bufnr integer
---@param instruction? string
---@param range? lsp.Range
function M.start(bufnr, instruction, range)
  local client = draftline.client(bufnr)
  if not client then
    return
  elseif preview.is_open(bufnr) then
    draftline.fail('a proposal for this buffer is open: take it (ga) or leave it (q) first')
    return
  elseif not vim.bo[bufnr].modifiable then
    draftline.fail("the buffer is not modifiable; ':set modifiable' makes it so")
    return
  end
  if vim.api.nvim_get_mode().mode:match('^[vV\22]') then -- a code action leaves the selection on
    vim.cmd.normal({ args = { vim.keycode('<Esc>') }, bang = true })
  end
  local before = text.lines(bufnr)
  if instruction and instruction ~= '' then
    send(client, bufnr, before, instruction, range)
    return
  end
  vim.ui.input({ prompt = 'Draftline, what to change: ' }, function(typed)
    if typed and vim.trim(typed) ~= '' then
      send(client, bufnr, before, typed, range)
    end
  end)
end

--- `:[range]DraftlineEdit [instruction]`; without a range, the whole buffer.
---@param arguments vim.api.keyset.create_user_command.command_args
function M.command(arguments)
  local bufnr = vim.api.nvim_get_current_buf()
  local client = draftline.client(bufnr)
  if client then
    M.start(bufnr, arguments.args, text.range(arguments, client.offset_encoding))
  end
end

--- `:DraftlineNextEdit`: go to the next change and show it.
function M.next_edit()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = draftline.client(bufnr)
  if not client then
    return
  end
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.textDocument = text.document(bufnr)
  local versions = vim.tbl_extend('force', {}, vim.lsp.util.buf_versions)
  job.start(client, bufnr, 'draftline/nextEdit', params, {
    label = 'looking for the next edit',
    on_done = function(result)
      if not result.edit or result.edit == vim.NIL then
        draftline.tell(result.reason)
        return
      end
      local uri, edits = text.only_document(result.edit)
      local target = vim.uri_to_bufnr(uri)
      if versions[target] and versions[target] ~= vim.lsp.util.buf_versions[target] then
        draftline.fail(CHANGED)
        return
      end
      vim.fn.bufload(target)
      if vim.api.nvim_get_current_buf() == bufnr and target ~= bufnr then
        vim.bo[target].buflisted = true
        vim.cmd.buffer({ args = { target } })
      end
      propose(target, text.lines(target), edits, client)
    end,
  })
end

return M
