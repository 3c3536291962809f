-- Edits by instruction, and the next edit: send the request, show the answer while it is written,
-- and propose its hunks in the buffer or beside it. Nothing here changes the buffer.
local changes = require('draftline.changes')
local draftline = require('draftline')
local edit_files = require('draftline.edit_files')
local hunk_list = require('draftline.hunks')
local job = require('draftline.job')
local preview = require('draftline.preview')
local rename = require('draftline.rename')
local stream = require('draftline.stream')
local text = require('draftline.text')

local M = {}

local CHANGED = 'the buffer changed while the answer was made, so nothing was applied; ask again'

--- Whether the buffer is current and in normal mode.
---@param bufnr integer
---@return boolean
local function is_idle(bufnr)
  return vim.api.nvim_get_current_buf() == bufnr and vim.api.nvim_get_mode().mode == 'n'
end

--- Call `show` once that is so.
---@param bufnr integer
---@param show fun()
local function when_idle(bufnr, show)
  if is_idle(bufnr) then
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
      elseif is_idle(bufnr) then
        vim.schedule(show)
        return true
      end
    end,
  })
end

---@class draftline.Answer
---@field edits lsp.TextEdit[]
---@field version? integer of the buffer that they are for
---@field warning? string what to check before accepting
---@field notes string[] what was seen of it, what a rule did, and what the user should know

---@param result { warnings?: string[], seen?: string, stats?: table, edit: lsp.WorkspaceEdit }
---@return draftline.Answer
local function answer_of(result)
  local _, edits, version = text.only_document(result.edit)
  local warning = table.concat(result.warnings or {}, '; ')
  local stats, notes = result.stats or {}, {}
  if type(stats.rule) == 'string' then
    notes[1] = 'made by rule: ' .. stats.rule
    vim.list_extend(notes, stats.notes or {})
  end
  if warning == '' and type(result.seen) == 'string' and result.seen ~= 'made by rule' then
    notes[#notes + 1] = result.seen
  end
  version = version or result.version -- Neovim 0.11 gets edits without a version
  return { edits = edits, version = version, warning = warning ~= '' and warning or nil, notes = notes }
end

--- Show an answer in its buffer, or beside it, moved to the lines as they are then.
---@param bufnr integer
---@param log draftline.Log followed since the request
---@param answer draftline.Answer
---@param client vim.lsp.Client
---@param go boolean whether to go to the first hunk
local function propose(bufnr, log, answer, client, go)
  local version = answer.version or vim.lsp.util.buf_versions[bufnr]
  local before = vim.api.nvim_buf_is_loaded(bufnr) and changes.lines_at(log, version)
  if not before then
    log.stop()
    draftline.fail(CHANGED)
    return
  end
  local after = text.edited(before, bufnr, answer.edits, client.offset_encoding)
  local function show()
    log.stop()
    local hunks = changes.moved(log, version, changes.hunks(before, after))
    if not hunks or log.is_lost then
      draftline.fail(CHANGED)
    elseif (vim.g.draftline or {}).preview == 'diff' then
      local lines = text.lines(bufnr)
      for index = #hunks, 1, -1 do
        lines = changes.replaced(lines, hunks[index].row, #hunks[index].old, hunks[index].new)
      end
      preview.open(bufnr, lines, answer.warning)
      for _, note in ipairs(answer.notes) do
        draftline.tell(note)
      end
    else
      hunk_list.open(bufnr, hunks, answer.notes, answer.warning, go and is_idle(bufnr))
    end
  end
  if (vim.g.draftline or {}).preview == 'diff' then
    when_idle(bufnr, show) -- a window that opens would take the keys
  else
    show()
  end
end

--- The lines of a range, from 0 and without the one at whose start it ends; without a range all.
---@param bufnr integer
---@param range? lsp.Range
---@return integer first
---@return integer stop the line after the last one
local function rows(bufnr, range)
  if not range then
    return 0, vim.api.nvim_buf_line_count(bufnr)
  end
  local first, stop = range.start.line, range['end'].line
  return first, (range['end'].character > 0 or stop == first) and stop + 1 or stop
end

--- Ask the server.
---@param client vim.lsp.Client
---@param bufnr integer
---@param instruction string
---@param range? lsp.Range
local function request(client, bufnr, instruction, range)
  local log, version = changes.follow(bufnr), vim.lsp.util.buf_versions[bufnr]
  local params = { textDocument = text.document(bufnr), range = range, instruction = instruction }
  local running
  local first, stop = rows(bufnr, range)
  stream.open(bufnr, first, stop, function()
    job.cancel(running)
  end)
  running = job.start(client, bufnr, 'draftline/edit', params, {
    label = 'editing',
    on_text = function(part, restart)
      stream.append(bufnr, part, restart)
    end,
    on_fail = function()
      log.stop()
      stream.close(bufnr)
    end,
    on_done = function(result)
      stream.close(bufnr)
      if not result or not result.edit or result.edit == vim.NIL then
        log.stop()
        local why = result and result.note
        draftline.tell('nothing changed' .. (type(why) == 'string' and ': ' .. why or ''))
        return
      end
      local untouched = version == vim.lsp.util.buf_versions[bufnr]
      propose(bufnr, log, answer_of(result), client, untouched)
    end,
  })
end

--- Propose a rename of another language server, in this buffer or in several files.
---@param bufnr integer
---@param instruction string
---@param renamed draftline.Rename
local function propose_rename(bufnr, instruction, renamed)
  local path, edits = next(renamed.edits)
  local several = next(renamed.edits, path) or path ~= vim.uri_to_fname(vim.uri_from_bufnr(bufnr))
  if several then
    edit_files.present_rename(instruction, renamed)
    return
  end
  local answer = { edits = edits, notes = { renamed.note } }
  propose(bufnr, changes.follow(bufnr), answer, renamed.client, true)
end

--- Ask for a rename first, and the server for all else.
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
  rename.ask(client, bufnr, instruction, range, function(renamed)
    if renamed then
      propose_rename(bufnr, instruction, renamed)
    elseif vim.deep_equal(text.lines(bufnr), before) then
      request(client, bufnr, instruction, range)
    else
      draftline.fail('the buffer changed meanwhile; ask again')
    end
  end)
end

--- The client that may propose an edit of a buffer; nil, with a message, if none may.
---@param bufnr integer
---@return vim.lsp.Client?
local function ready(bufnr)
  local client = draftline.client(bufnr)
  if not client then
    return nil
  elseif preview.is_open(bufnr) or hunk_list.is_open(bufnr) then
    draftline.fail('a proposal for this buffer is open: accept it (ga) or reject it (q) first')
    return nil
  elseif not vim.bo[bufnr].modifiable then
    draftline.fail("the buffer is not modifiable; ':set modifiable' makes it so")
    return nil
  end
  return client
end

--- Edit a buffer, or a range of it. Prompts for the instruction if none is given.
---@param bufnr integer
---@param instruction? string
---@param range? lsp.Range
function M.start(bufnr, instruction, range)
  local client = ready(bufnr)
  if not client then
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

--- Propose code of an answer in place of the lines from `first` to `last`, or where it belongs.
---@param bufnr integer of the current window
---@param first? integer
---@param last? integer
---@param lines string[]
function M.place(bufnr, first, last, lines)
  local client = ready(bufnr)
  if not client then
    return
  end
  local encoding, log = client.offset_encoding, changes.follow(bufnr)
  local range = text.range({ range = first and 2 or 0, line1 = first, line2 = last }, encoding)
  local cursor = vim.lsp.util.make_position_params(0, encoding).position
  job.start(client, bufnr, 'draftline/placeCode', {
    textDocument = text.document(bufnr),
    range = range or { start = cursor, ['end'] = cursor },
    code = table.concat(lines, '\n') .. '\n',
  }, {
    label = 'placing the code',
    on_fail = log.stop,
    on_done = function(result)
      if not result.edit or result.edit == vim.NIL then
        log.stop()
        draftline.say('the buffer has this code already')
      else
        propose(bufnr, log, answer_of(result), client, true)
      end
    end,
  })
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

--- Go to the next edit and show it.
---@param bufnr integer that it was asked for
---@param result table of draftline/nextEdit
---@param client vim.lsp.Client
local function show_next_edit(bufnr, result, client)
  local answer = answer_of(result)
  local target = vim.uri_to_bufnr((text.only_document(result.edit)))
  if answer.version and answer.version ~= vim.lsp.util.buf_versions[target] then
    draftline.fail(CHANGED)
    return
  elseif preview.is_open(target) or hunk_list.is_open(target) then
    draftline.fail('a proposal for that buffer is open: accept it (ga) or reject it (q) first')
    return
  end
  vim.fn.bufload(target)
  if vim.api.nvim_get_current_buf() == bufnr and target ~= bufnr then
    vim.bo[target].buflisted = true
    vim.cmd.buffer({ args = { target } })
  end
  propose(target, changes.follow(target), answer, client, true)
end

---@param place { uri: string, range: lsp.Range, label: string }
---@return string
local function place_name(place)
  local path = vim.fn.fnamemodify(vim.uri_to_fname(place.uri), ':.')
  return ('%s:%d: %s'):format(path, place.range.start.line + 1, place.label)
end

--- `:DraftlineNextEdit`: go to the next change and show it. If it is in another file, a list offers
--- it with the other places.
function M.next_edit()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = draftline.client(bufnr)
  if not client then
    return
  end
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.textDocument = text.document(bufnr)
  job.start(client, bufnr, 'draftline/nextEdit', params, {
    label = 'looking for the next edit',
    on_done = function(result)
      if not result.edit or result.edit == vim.NIL then
        draftline.tell(result.reason)
        return
      elseif vim.uri_to_bufnr(result.location.uri) == bufnr then
        show_next_edit(bufnr, result, client)
        return
      end
      local best = vim.tbl_extend('error', { label = result.reason }, result.location)
      local places = vim.list_extend({ best }, result.others)
      local options = { prompt = 'Draftline, next edits:', format_item = place_name }
      vim.ui.select(places, options, function(place, index)
        if index == 1 then
          show_next_edit(bufnr, result, client)
        elseif place then
          vim.lsp.util.show_document(place, client.offset_encoding, { focus = true })
          M.next_edit()
        end
      end)
    end,
  })
end

return M
