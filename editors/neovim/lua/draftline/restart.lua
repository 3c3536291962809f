-- Starts the server again when it ends by itself: after a delay that doubles, until it has ended
-- too often. One short line says so, in place of Neovim's own, which is wider than most screens
-- and would wait for Enter.
local draftline = require('draftline')
local program = require('draftline.program')

local M = {}

local PERIOD_S = 180 -- in which the ends of the server are counted
local MAX_ENDS = 5 -- in that period, until it is not started any more
local FIRST_DELAY_MS = 1000
local PATIENCE_MS = 3000 -- with a server that was asked to end

-- How the server ends when it was asked to: after `shutdown`, or by SIGTERM or SIGINT.
local ASKED_CODES = { [0] = true, [130] = true, [143] = true }
local ASKED_SIGNALS = { [0] = true, [2] = true, [15] = true }

---@type number[] when the server ended by itself, in seconds
local ends = {}
---@type table<integer, 'starting'|'stopped'> by buffer that waits for a server
local waiting = {}
---@type string? how it last did
local last
---@type table<integer, boolean> clients that :DraftlineRestart stopped, by id
local restarting = {}

--- How long to wait before the server is started again; nil if it has ended too often.
---@param times number[] when it ended, in seconds, the latest last
---@return integer? milliseconds
function M.delay_ms(times)
  local recent = vim.tbl_filter(function(each)
    return times[#times] - each < PERIOD_S
  end, times)
  return #recent < MAX_ENDS and FIRST_DELAY_MS * 2 ^ (#recent - 1) or nil
end

--- What becomes of a buffer whose server ended; nil if none did.
---@param bufnr integer
---@return 'starting'|'stopped'|nil
function M.state(bufnr)
  return waiting[bufnr]
end

---@param buffers integer[]
---@param state 'starting'|'stopped'|nil
local function mark(buffers, state)
  for _, bufnr in ipairs(buffers) do
    waiting[bufnr] = state
  end
  draftline.changed({ state = state or 'starting' })
end

--- A client that never starts, so that Neovim stays attached to these buffers while there is no
--- server: it detaches at the first change, and does not report changes to the next server.
---@param buffers integer[]
---@return fun() ends it
local function stay_attached(buffers)
  local closing, id = false, nil
  local function cmd(dispatchers)
    local function terminate()
      closing = true
      dispatchers.on_exit(0, 0)
    end
    return {
      request = function()
        return true, 1
      end,
      notify = function()
        return true
      end,
      is_closing = function()
        return closing
      end,
      terminate = terminate,
    }
  end
  for _, bufnr in ipairs(buffers) do
    if vim.api.nvim_buf_is_loaded(bufnr) then
      id = vim.lsp.start({ name = 'draftline-restart', cmd = cmd }, { bufnr = bufnr })
    end
  end
  return function()
    local client = id and vim.lsp.get_client_by_id(id)
    if client then
      client:stop(true)
    end
  end
end

---@param config vim.lsp.ClientConfig of the client that ended
---@param buffers integer[]
local function start(config, buffers)
  mark(buffers, nil)
  for _, bufnr in ipairs(buffers) do
    if vim.api.nvim_buf_is_loaded(bufnr) then
      vim.lsp.start(config, { bufnr = bufnr }) -- one server for all with the same root
    end
  end
end

--- Leave out the one message with which Neovim reports that a client ended.
local function without_report()
  local notify, done = vim.notify, false
  local function filtered(message, ...)
    if done or not tostring(message):find('^Client draftline quit with exit code') then
      return notify(message, ...)
    end
    done = true
    if vim.notify == filtered then
      vim.notify = notify
    end
  end
  vim.notify = filtered
end

---@param code integer
---@param signal integer
---@return string
local function described(code, signal)
  return signal ~= 0 and ('signal %d'):format(signal) or ('exit code %d'):format(code)
end

--- How the server last ended by itself; nil if it did not.
---@return string?
function M.last_end()
  return last
end

---@param client vim.lsp.Client
---@param buffers integer[]
---@param how string
local function on_crash(client, buffers, how)
  last = how
  ends[#ends + 1] = vim.uv.hrtime() / 1e9
  local delay = M.delay_ms(ends)
  if not delay then
    mark(buffers, 'stopped')
    local text = 'the server ended %d times; see :checkhealth draftline'
    draftline.note(text:format(MAX_ENDS), vim.log.levels.ERROR)
    return
  end
  mark(buffers, 'starting')
  local text = 'the server ended (%s); it starts again in %d s'
  draftline.note(text:format(how, delay / 1000), vim.log.levels.WARN)
  local let_go = stay_attached(buffers)
  vim.defer_fn(function()
    start(client.config, buffers)
    if let_go then
      let_go()
    end
  end, delay)
end

--- The `on_exit` of the client. Runs outside of Neovim's main loop.
---@param code integer
---@param signal integer
---@param client_id integer
function M.on_exit(code, signal, client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  if not client then
    return
  end
  local buffers = vim.tbl_keys(client.attached_buffers)
  if code ~= 0 or (signal ~= 0 and signal ~= 15) then -- then Neovim reports it
    without_report()
  end
  vim.schedule(function()
    if vim.v.exiting ~= vim.NIL then
      return
    elseif restarting[client_id] then
      restarting[client_id] = nil
      start(client.config, buffers)
    elseif not (ASKED_CODES[code] and ASKED_SIGNALS[signal]) then
      on_crash(client, buffers, described(code, signal))
    end
  end)
end

--- `:DraftlineRestart`: stop the server if it runs, and start it.
function M.command()
  ends, last = {}, nil
  local missing = program.missing()
  if missing then
    program.report_missing(missing)
    return
  end
  local clients = vim.lsp.get_clients({ name = 'draftline' })
  for _, client in ipairs(clients) do
    restarting[client.id] = true
    mark(vim.tbl_keys(client.attached_buffers), 'starting')
    client:stop()
    vim.defer_fn(function()
      if not client:is_stopped() then
        client:stop(true)
      end
    end, PATIENCE_MS)
  end
  if #clients == 0 then
    waiting = {}
    vim.lsp.enable('draftline') -- starts it for all files that are open
  end
  draftline.tell('starting the server')
end

return M
