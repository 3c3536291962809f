-- The chat: a markdown split whose last section is the question. `<CR>` sends it with all that was
-- said before; the answer streams into a section of its own, followed by its sources.
local draftline = require('draftline')
local job = require('draftline.job')
local markdown = require('draftline.markdown')
local mentions = require('draftline.mentions')
local sources = require('draftline.sources')
local text = require('draftline.text')

local M = {}

local QUESTION, ANSWER = '# You', '# Draftline'
local HINT = ' <CR> sends · <C-c> stops · g? keys'
local NOT_MODIFIABLE = "the buffer is not modifiable; ':set modifiable' makes it so"
local namespace = vim.api.nvim_create_namespace('draftline.chat')

---@class draftline.Chat
---@field bufnr integer
---@field messages { role: 'user'|'assistant', content: string }[]
---@field mentioned draftline.Mention[] in all questions, in that order
---@field here { bufnr: integer, line: integer } where the user came from last
---@field selection? draftline.Selection
---@field mark integer where the question begins
---@field job? draftline.Job while an answer is written

---@type draftline.Chat? the one chat, if its buffer exists
local chat

--- Write at the end. It cannot be undone: the conversation would not follow.
---@param this draftline.Chat
---@param more string
local function append(this, more)
  local bufnr = this.bufnr
  if not vim.api.nvim_buf_is_valid(bufnr) then
    return
  end
  local last = vim.api.nvim_buf_line_count(bufnr)
  local options, levels = vim.bo[bufnr], vim.bo[bufnr].undolevels
  options.modifiable, options.undolevels = true, -1
  vim.api.nvim_buf_set_text(bufnr, -1, -1, -1, -1, vim.split(more, '\r?\n'))
  options.modifiable, options.undolevels = not this.job, levels
  for _, window in ipairs(vim.fn.win_findbuf(bufnr)) do
    if vim.api.nvim_win_get_cursor(window)[1] == last then -- it follows what is written
      vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(bufnr), 0 })
    end
  end
end

--- Begin the section of the next question.
---@param this draftline.Chat
---@param question string
local function begin_question(this, question)
  local first = vim.api.nvim_buf_line_count(this.bufnr) == 1
  append(this, (first and '' or '\n') .. QUESTION .. '\n\n')
  local row = vim.api.nvim_buf_line_count(this.bufnr) - 1
  this.mark =
    vim.api.nvim_buf_set_extmark(this.bufnr, namespace, row, 0, { right_gravity = false })
  append(this, question)
end

---@param this draftline.Chat
---@return integer row
local function question_row(this)
  return vim.api.nvim_buf_get_extmark_by_id(this.bufnr, namespace, this.mark, {})[1]
end

---@param this draftline.Chat
---@return string
local function question_of(this)
  local lines = vim.api.nvim_buf_get_lines(this.bufnr, question_row(this), -1, false)
  return vim.trim(table.concat(lines, '\n'))
end

--- The chat's client: of the buffer that the user came from, else any.
---@param this draftline.Chat
---@return vim.lsp.Client?
local function client_of(this)
  local of_buffer = vim.api.nvim_buf_is_valid(this.here.bufnr)
    and vim.lsp.get_clients({ name = 'draftline', bufnr = this.here.bufnr })[1]
  return of_buffer
    or vim.lsp.get_clients({ name = 'draftline' })[1]
    or draftline.client(this.bufnr)
end

--- Show the whole answer in place of its streamed parts, and begin the next question.
---@param this draftline.Chat
---@param row integer where the answer begins
---@param answer string
---@param next_question string
local function conclude(this, row, answer, next_question)
  this.job = nil
  if vim.api.nvim_buf_is_valid(this.bufnr) then
    vim.bo[this.bufnr].modifiable = true
    vim.api.nvim_buf_set_lines(this.bufnr, row, -1, false, { '' })
    append(this, answer)
    begin_question(this, next_question)
  end
end

--- Send the question of the last section.
---@param this draftline.Chat
local function send(this)
  if this.job then
    draftline.say('an answer is being written; <C-c> stops it')
    return
  end
  local question, client = question_of(this), client_of(this)
  if not client then
    return
  elseif question == '' then
    draftline.say('type a question below the last heading')
    return
  end
  local found, problem = mentions.read(question, this.selection, this.here, client)
  if not found then
    draftline.fail(problem --[[@as string]])
    return
  end
  local mentioned = mentions.joined(this.mentioned, found.mentioned)
  local messages = vim.list_extend({}, this.messages)
  messages[#messages + 1] = { role = 'user', content = question }
  append(this, ('\n\n%s\n\n'):format(ANSWER))
  local row, written = vim.api.nvim_buf_line_count(this.bufnr) - 1, ''

  --- Keep the question and its answer for the next ones.
  local function keep(answer)
    messages[#messages + 1] = { role = 'assistant', content = answer }
    this.messages, this.mentioned = messages, mentioned
  end

  local ended = false
  vim.bo[this.bufnr].modifiable = false
  local bufnr = vim.api.nvim_buf_is_valid(this.here.bufnr) and this.here.bufnr or this.bufnr
  local running = job.start(client, bufnr, 'draftline/chat', {
    messages = messages,
    context = mentions.context(mentioned, client.offset_encoding),
    diagnostics = #found.diagnostics > 0 and found.diagnostics or nil,
  }, {
    label = 'answering',
    on_text = function(more)
      written = written .. more
      append(this, more)
    end,
    on_done = function(result)
      ended = true
      keep(result.text)
      conclude(this, row, result.text .. sources.listed(result.citations), '')
    end,
    on_fail = function(message)
      ended = true
      if vim.trim(written) == '' then
        conclude(this, row, ('(%s)\n'):format(message), question) -- to be sent again
      else
        keep(written)
        conclude(this, row, ('%s\n\n(%s)\n'):format(written, message), '')
      end
    end,
  })
  this.job = not ended and running or nil
end

---@param this draftline.Chat
local function stop(this)
  if this.job then
    job.cancel(this.job)
  end
end

--- Go to a window with the buffer that the user came from; false, with a message, if it is gone.
---@param this draftline.Chat
---@param bufnr integer
---@return boolean
local function leave_to(this, bufnr)
  if not vim.api.nvim_buf_is_valid(bufnr) or bufnr == this.bufnr then
    draftline.fail('the buffer that the chat was opened from is gone')
    return false
  end
  local window = vim.fn.bufwinid(bufnr)
  if window ~= -1 then
    vim.api.nvim_set_current_win(window)
  else
    vim.api.nvim_open_win(bufnr, true, { split = 'left', win = 0 })
  end
  return true
end

--- The code block under the cursor; nil, with a message, if there is none.
---@param this draftline.Chat
---@return string[]?
local function block_here(this)
  local lines = markdown.around(text.lines(this.bufnr), vim.api.nvim_win_get_cursor(0)[1])
  if not lines then
    draftline.say('no code block under the cursor')
  end
  return lines
end

---@param this draftline.Chat
local function yank(this)
  local lines = block_here(this)
  if lines then
    vim.fn.setreg(vim.v.register, lines, 'V')
    draftline.say(('%d lines yanked'):format(#lines))
  end
end

--- Insert the code block below the cursor of the buffer that the user came from.
---@param this draftline.Chat
local function put(this)
  local lines = block_here(this)
  if not lines or not leave_to(this, this.here.bufnr) then
    return
  elseif not vim.bo.modifiable then
    draftline.fail(NOT_MODIFIABLE)
    return
  end
  vim.api.nvim_put(lines, 'l', true, false)
end

--- Propose the code block in place of the selection, or where the server finds that it belongs.
---@param this draftline.Chat
local function apply(this)
  local lines = block_here(this)
  local first, last = mentions.lines(this.selection)
  local bufnr = first and this.selection.bufnr or this.here.bufnr
  if lines and leave_to(this, bufnr) then
    require('draftline.edit').place(bufnr, first, last, lines)
  end
end

--- Open the source under the cursor where the user came from.
---@param this draftline.Chat
local function open_source(this)
  local path, line = vim.api.nvim_get_current_line():match('^%- (.+):(%d+)$')
  if not path then
    draftline.say('no source under the cursor')
  elseif leave_to(this, this.here.bufnr) then
    local opened, problem = pcall(vim.cmd.edit, { args = { path }, magic = { file = false } })
    if not opened then
      draftline.fail(tostring(problem):match('E%d+: .*') or tostring(problem))
      return
    end
    local last = vim.api.nvim_buf_line_count(0) -- the file may be shorter now
    vim.api.nvim_win_set_cursor(0, { math.min(tonumber(line), last), 0 })
  end
end

---@return draftline.Chat
local function create()
  local bufnr = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(bufnr, 'draftline://chat')
  markdown.set_filetype(bufnr)
  ---@type draftline.Chat
  local this = {
    bufnr = bufnr,
    messages = {},
    mentioned = {},
    here = { bufnr = bufnr, line = 1 },
    mark = 0,
  }
  local keys = {
    ['<CR>'] = { send, 'Send the question' },
    ['<C-c>'] = { stop, 'Stop the answer' },
    gy = { yank, 'Yank the code block' },
    gp = { put, 'Put the code block where you came from' },
    ga = { apply, 'Apply the code block' },
    gf = { open_source, 'Open the source' },
    gF = { open_source, 'Open the source' },
  }
  for key, mapped in pairs(keys) do
    vim.keymap.set('n', key, function()
      mapped[1](this)
    end, { buffer = bufnr, nowait = true, desc = mapped[2] })
  end
  vim.keymap.set('n', 'g?', '<Cmd>help draftline-chat<CR>', { buffer = bufnr, desc = 'Help' })
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = bufnr, nowait = true, desc = 'Close' })
  vim.keymap.set('i', '<C-s>', function()
    vim.cmd.stopinsert()
    send(this)
  end, { buffer = bufnr, desc = 'Send the question' })
  vim.api.nvim_create_autocmd('BufWipeout', {
    buffer = bufnr,
    once = true,
    callback = function()
      chat = nil
      vim.schedule(function()
        stop(this)
      end)
    end,
  })
  begin_question(this, '')
  return this
end

--- Show the chat beside the current window.
---@param this draftline.Chat
local function show(this)
  local window = vim.fn.bufwinid(this.bufnr)
  if window ~= -1 then
    vim.api.nvim_set_current_win(window)
    return
  end
  window = vim.api.nvim_open_win(this.bufnr, true, { split = 'right', win = 0 })
  local options = vim.wo[window][0]
  options.wrap, options.linebreak, options.winbar = true, true, HINT
end

--- Forget the conversation.
---@param this draftline.Chat
local function reset(this)
  stop(this)
  this.messages, this.mentioned = {}, {}
  vim.api.nvim_buf_set_lines(this.bufnr, 0, -1, false, {})
  begin_question(this, '')
end

--- What the next question is about: the selected lines, or the file if it was not mentioned yet.
---@param this draftline.Chat
---@param arguments vim.api.keyset.create_user_command.command_args
---@return string mention
local function come_from_here(this, arguments)
  local bufnr = vim.api.nvim_get_current_buf()
  this.here = { bufnr = bufnr, line = vim.api.nvim_win_get_cursor(0)[1] }
  if arguments.range > 0 then
    this.selection = mentions.select(bufnr, arguments.line1, arguments.line2)
    return '#selection '
  end
  this.selection = nil
  local known = vim.iter(this.mentioned):any(function(each)
    return each.uri == vim.uri_from_bufnr(bufnr) and not each.selection
  end)
  return known and '' or mentions.file(bufnr) .. ' '
end

--- The command of the code actions "Explain": ask about a range and the problems in it.
---@param bufnr integer
---@param range lsp.Range
---@param problems { message: string }[]
function M.explain(bufnr, range, problems)
  local first = range.start.line + 1
  local last = range['end'].line + (range['end'].character > 0 and 1 or 0)
  last = math.max(first, math.min(last, vim.api.nvim_buf_line_count(bufnr)))
  local question = problems[1] and 'Explain this problem: ' .. problems[1].message
    or 'Explain what this code does and how.'
  if vim.api.nvim_get_mode().mode:match('^[vV\22]') then -- a code action leaves the selection on
    vim.cmd.normal({ args = { vim.keycode('<Esc>') }, bang = true })
  end
  M.command({ args = '#selection ' .. question, range = 2, line1 = first, line2 = last })
end

--- `:[range]DraftlineChat[!] [question]`: go to the chat, with `!` to a new one. A question is sent
--- at once; without one it is begun with what it is about.
---@param arguments vim.api.keyset.create_user_command.command_args
function M.command(arguments)
  local bufnr = vim.api.nvim_get_current_buf()
  local inside = chat ~= nil and bufnr == chat.bufnr
  if not inside and not draftline.client(bufnr) then
    return
  end
  chat = chat or create()
  if arguments.bang then
    reset(chat)
  end
  local begun = chat.job == nil and question_of(chat) or ''
  local mention = inside and '' or come_from_here(chat, arguments)
  show(chat)
  if chat.job then
    draftline.say('an answer is being written; <C-c> stops it')
    return
  end
  if begun:find(vim.trim(mention), 1, true) or arguments.args:find('[@#]') then
    mention = ''
  end
  local more = mention .. arguments.args
  append(chat, (begun ~= '' and more ~= '' and ' ' or '') .. more)
  vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(chat.bufnr), 0 })
  if arguments.args ~= '' then
    send(chat)
  else
    vim.cmd.startinsert({ bang = true })
  end
end

return M
