-- The simple commands, and what the other modules share: finding the client, and messages.
local program = require('draftline.program')

local M = {}

---@type table<integer, table> the latest draftline/status, by client
local statuses = {}

--- Echo one line, truncated so that no hit-enter prompt appears.
---@param text string
function M.say(text)
  local line = ('Draftline: ' .. text):gsub('%s+', ' ')
  local room = math.max(vim.v.echospace, 10)
  if vim.fn.strdisplaywidth(line) > room then
    line = vim.fn.strcharpart(line, 0, room - 1) .. '…'
  end
  vim.api.nvim_echo({ { line } }, false, {})
end

--- A message that stays in `:messages`.
---@param text string
---@param level? integer one of vim.log.levels
function M.tell(text, level)
  vim.cmd.redraw() -- a second message before the next redraw would wait for Enter
  vim.notify('Draftline: ' .. text, level or vim.log.levels.INFO)
end

--- A message that nobody waits for, as news of the server: a long one is truncated, so that no
--- hit-enter prompt appears, and complete in `:messages`.
---@param text string
---@param level integer one of vim.log.levels
function M.note(text, level)
  if vim.fn.strdisplaywidth('Draftline: ' .. text) <= vim.v.echospace then
    M.tell(text, level)
    return
  end
  local shortmess = vim.o.shortmess
  vim.cmd.redraw()
  vim.opt.shortmess:append('T')
  vim.cmd.echomsg({ args = { vim.fn.string('Draftline: ' .. text) } }) -- with silent: not kept
  vim.o.shortmess = shortmess
  vim.cmd.redraw()
  M.say(text)
end

---@param text string
function M.fail(text)
  M.tell(text, vim.log.levels.ERROR)
end

--- Report that there is no client, or none yet.
---@param bufnr integer
local function report_missing(bufnr)
  local state, missing = M.status(bufnr), program.missing()
  if missing then
    program.report_missing(missing)
  elseif state == 'starting' then
    M.tell('the server is starting; try again in a moment')
  elseif state == 'stopped' then
    M.fail('the server is not running; :DraftlineRestart starts it')
  else
    M.fail("no server for this buffer; is vim.lsp.enable('draftline') called, and is it a file?")
  end
end

--- The client of a buffer; nil, with a message, if there is none.
---@param bufnr integer
---@return vim.lsp.Client?
function M.client(bufnr)
  local client = vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr })[1]
  if not client then
    report_missing(bufnr)
  end
  return client
end

--- Run a command of the server and pass its result to `done`.
---@param name string
---@param done fun(result: any)
local function execute(name, done)
  local client = vim.lsp.get_clients({ name = 'draftline', bufnr = 0 })[1]
    or vim.lsp.get_clients({ name = 'draftline' })[1]
  if not client then
    report_missing(vim.api.nvim_get_current_buf())
    return
  end
  client:request(
    'workspace/executeCommand',
    { command = name, arguments = {} },
    function(err, result)
      if err then
        M.fail(err.message)
      else
        done(result)
      end
    end
  )
end

---@param value any
---@return boolean
local function known(value)
  return value ~= nil and value ~= vim.NIL
end

--- The question whether a model may be downloaded, while the user is asked; else nil.
---@param status table
---@return string?
local function question(status)
  local models = vim.tbl_map(function(download)
    return download.model
  end, known(status.downloads) and status.downloads or {})
  return #models > 0 and ('download %s?'):format(table.concat(models, ' or ')) or nil
end

---@param status table
---@return string
local function described(status)
  local parts = { status.state }
  local asked = question(status)
  if asked then
    return asked .. ' Answer the question, here or in the window that asks'
  elseif known(status.message) and status.message ~= '' then
    parts[1] = ('%s (%s)'):format(status.state, status.message)
  end
  if known(status.model) then
    parts[#parts + 1] = known(status.device) and ('%s on %s'):format(status.model, status.device)
      or status.model
  end
  if known(status.tokensPerSecond) then
    parts[#parts + 1] = ('%.1f tokens/s'):format(status.tokensPerSecond)
  end
  if known(status.acceptedShare) then
    parts[#parts + 1] = ('%.0f %% of the drafts accepted'):format(100 * status.acceptedShare)
  end
  if known(status.files) and known(status.tokens) then
    parts[#parts + 1] = ('%d files, %d tokens'):format(status.files, status.tokens)
  end
  return table.concat(parts, ' · ')
end

--- A client's latest status in words, for `:checkhealth`.
---@param client_id integer
---@return string
function M.describe(client_id)
  return statuses[client_id] and described(statuses[client_id]) or 'starting'
end

--- Whether a client waits for the user's answer to the question of a download.
---@param client_id integer
---@return boolean
function M.is_asking(client_id)
  return statuses[client_id] ~= nil and question(statuses[client_id]) ~= nil
end

---@param client_id integer
---@return boolean
function M.failed(client_id)
  return statuses[client_id] ~= nil and statuses[client_id].state == 'error'
end

--- The latest draftline/status of a buffer's client, if there is one.
---@param bufnr? integer
---@return table?
local function latest(bufnr)
  local client = vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr or 0 })[1]
  return client and statuses[client.id]
end

--- The state of a buffer's server: "starting", "loading" (the model), "ready", "busy", "off",
--- "error", "stopped" (it ended too often), or "" if there is none.
---@param bufnr? integer
---@return string
function M.status(bufnr)
  local status = latest(bufnr)
  if status then
    return status.state
  end
  bufnr = (bufnr or 0) == 0 and vim.api.nvim_get_current_buf() or bufnr --[[@as integer]]
  -- A private filter: without it, a client that is starting is not found, and the state is "".
  local all = vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr, _uninitialized = true })
  return #all > 0 and 'starting' or require('draftline.restart').state(bufnr) or ''
end

--- A component for a statusline: the state and, once it is known, the speed; "" where there is no
--- server. It has no percent sign.
---@return string
function M.statusline()
  local state, status = M.status(), latest()
  if state == '' then
    return ''
  end
  local speed = status and known(status.tokensPerSecond) and status.tokensPerSecond
  local shown = state == 'ready' and '' or ' ' .. state
  if status and question(status) then
    shown = ' download?'
  end
  return 'Draftline' .. shown .. (speed and (' %.0f tok/s'):format(speed) or '')
end

--- Let statuslines show a new state.
---@param status { state: string } a draftline/status, or the state alone where no server sent it
function M.changed(status)
  vim.api.nvim_exec_autocmds('User', { pattern = 'DraftlineStatus', data = status })
  vim.cmd.redrawstatus({ bang = true })
end

--- The server's notification `draftline/status`.
---@param client_id integer
---@param status table
function M.on_status(client_id, status)
  local before = statuses[client_id]
  statuses[client_id] = status
  if status.state == 'error' and not (before and before.state == 'error') then
    M.note(status.message, vim.log.levels.ERROR)
  end
  local waited = not before or before.state == 'loading' or before.state == 'error'
  if waited and status.state == 'ready' then
    require('draftline.suggest').ask_again(client_id)
  end
  M.changed(status)
end

function M.show_status()
  execute('draftline.status', function(status)
    M.tell(described(status))
  end)
end

function M.why()
  execute('draftline.why', function(result)
    M.tell(result.why)
  end)
end

function M.toggle()
  execute('draftline.toggle', function(result)
    M.tell(result.enabled and 'completions are on' or 'completions are off')
  end)
end

--- Cancel this editor's edits and questions or, if there are none, everything on the server.
function M.cancel()
  if require('draftline.job').cancel_all() == 0 then
    execute('draftline.cancel', function(result)
      M.tell(result.cancelled == 0 and 'nothing was running' or 'cancelled')
    end)
  end
end

return M
