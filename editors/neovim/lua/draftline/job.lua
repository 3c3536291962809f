-- A long-running request: its progress on the command line, its streamed text, and its end, which is
-- reported exactly once, be it an answer, an error or a cancellation.
local draftline = require('draftline')

local M = {}

local CANCELLED = -32800 -- LSP's RequestCancelled

---@class draftline.Job
---@field client vim.lsp.Client
---@field token string of its $/progress; partial results use token .. '/text'
---@field label string
---@field id? integer of the request
---@field on_text? fun(text: string, restart?: boolean) `restart`: the parts so far are void
---@field on_done fun(result: any) not called if the job failed or was cancelled
---@field on_fail? fun(message: string)

---@type table<string, draftline.Job> the running ones, by token
local running = {}
local count = 0

---@param job draftline.Job
---@param err? { code: integer, message: string }
---@param result any
local function finish(job, err, result)
  if not running[job.token] then
    return
  end
  running[job.token] = nil
  if not err then
    draftline.say(job.label .. ': done')
    job.on_done(result)
    return
  end
  local cancelled = err.code == CANCELLED
  local message = cancelled and 'cancelled' or err.message
  draftline.tell(job.label .. ': ' .. message, not cancelled and vim.log.levels.ERROR or nil)
  if job.on_fail then
    job.on_fail(message)
  end
end

---@param job draftline.Job
---@param value table
local function show(job, value)
  local parts = { job.label }
  if value.kind == 'end' then
    return
  end
  if value.percentage then
    parts[#parts + 1] = ('%d %%'):format(value.percentage)
  end
  parts[#parts + 1] = value.message
  draftline.say(table.concat(parts, ' · ') .. ' (:DraftlineCancel stops it)')
end

local group = vim.api.nvim_create_augroup('draftline.job', {})

vim.api.nvim_create_autocmd('LspProgress', {
  group = group,
  callback = function(event)
    local token, value = event.data.params.token, event.data.params.value
    local job = running[token] or running[tostring(token):gsub('/text$', '')]
    if not job or job.client.id ~= event.data.client_id then
      return
    elseif token == job.token then
      show(job, value)
    elseif job.on_text then
      job.on_text(value.text, value.restart)
    end
  end,
})

-- Neovim 0.11 does not call the handler of a cancelled request, so completed requests are watched.
vim.api.nvim_create_autocmd('LspRequest', {
  group = group,
  callback = function(event)
    if event.data.request.type ~= 'complete' then
      return
    end
    for _, job in pairs(running) do
      if job.id == event.data.request_id and job.client.id == event.data.client_id then
        vim.schedule(function()
          finish(job, { code = CANCELLED, message = 'cancelled' })
        end)
      end
    end
  end,
})

vim.api.nvim_create_autocmd('LspDetach', {
  group = group,
  callback = function(event)
    for _, job in pairs(running) do
      if job.client.id == event.data.client_id and job.client:is_stopped() then
        vim.schedule(function() -- an error here would be the autocommand's, with a prompt for Enter
          finish(job, { code = 0, message = 'the server ended' })
        end)
      end
    end
  end,
})

--- Send a request about a buffer. Adds progress tokens to `params`.
---@param client vim.lsp.Client
---@param bufnr integer
---@param method string
---@param params table
---@param job draftline.Job without client, token and id, which are set here
---@return draftline.Job
function M.start(client, bufnr, method, params, job)
  count = count + 1
  local token = 'draftline.nvim/' .. count
  job.client, job.token = client, token
  params.workDoneToken = token
  params.partialResultToken = job.on_text and token .. '/text' or nil
  running[token] = job
  local waits = draftline.is_asking(client.id)
  draftline.say(job.label .. (waits and ' waits: may a model be downloaded?' or ' …'))
  local sent, id = client:request(method, params, function(err, result)
    finish(job, err, result)
  end, bufnr)
  job.id = id
  if not sent then
    finish(job, { code = 0, message = 'the server has ended' })
  end
  return job
end

--- Cancel a job if it is running, and report that at once.
---@param job draftline.Job
function M.cancel(job)
  if running[job.token] then
    job.client:cancel_request(job.id)
    finish(job, { code = CANCELLED, message = 'cancelled' })
  end
end

--- Cancel all jobs; returns how many were running.
---@return integer
function M.cancel_all()
  local jobs = vim.tbl_values(running)
  vim.iter(jobs):each(M.cancel)
  return #jobs
end

return M
