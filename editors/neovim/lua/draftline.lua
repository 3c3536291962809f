-- The simple commands, and what the other modules share: finding the client, and messages.
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
  vim.notify('Draftline: ' .. text, level or vim.log.levels.INFO)
end

---@param text string
function M.fail(text)
  M.tell(text, vim.log.levels.ERROR)
end

--- The client of a buffer; nil, with an error message, if there is none.
---@param bufnr integer
---@return vim.lsp.Client?
function M.client(bufnr)
  local client = vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr })[1]
  if not client then
    M.fail("no server for this buffer; is vim.lsp.enable('draftline') called, and is it a file?")
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
    M.fail("no server runs; call vim.lsp.enable('draftline') and open a file")
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

---@param status table
---@return string
local function described(status)
  local parts = { status.state }
  if known(status.message) and status.message ~= '' then
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

--- For a statusline: "ready", "busy", ..., or "" if no server is running.
---@param bufnr? integer
---@return string
function M.status(bufnr)
  local client = vim.lsp.get_clients({ name = 'draftline', bufnr = bufnr or 0 })[1]
  local status = client and statuses[client.id]
  return status and status.state or ''
end

--- The server's notification `draftline/status`.
---@param client_id integer
---@param status table
function M.on_status(client_id, status)
  local before = statuses[client_id]
  statuses[client_id] = status
  if status.state == 'error' and not (before and before.state == 'error') then
    M.fail(status.message)
  end
  vim.api.nvim_exec_autocmds('User', { pattern = 'DraftlineStatus', data = status })
  vim.cmd.redrawstatus({ bang = true })
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
