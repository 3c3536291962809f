-- Edits across files: the instruction, the files that the server finds for it in a buffer to be
-- changed, one request, and the review of its proposals.
local draftline = require('draftline')
local hunk_list = require('draftline.hunks')
local job = require('draftline.job')
local preview = require('draftline.preview')
local rename = require('draftline.rename')
local review = require('draftline.review')
local text = require('draftline.text')

local M = {}

local HINT = ' files to edit: <CR> or :w goes on · dd leaves one out · q cancels '
local MAX_HEIGHT = 12 -- of the list of files, in lines
local namespace = vim.api.nvim_create_namespace('draftline.files')

---@param path string
---@return string? stamp that changes with the file; nil if there is none
local function stamp(path)
  local stat = vim.uv.fs_stat(path)
  return stat and ('%d.%d %d'):format(stat.mtime.sec, stat.mtime.nsec, stat.size)
end

--- What is known of a file when the request is sent, to see whether it changed meanwhile.
---@param path string
---@return { lines?: string[], stamp?: string }
local function state(path)
  if vim.fn.bufloaded(path) == 1 then
    return { lines = text.lines(vim.fn.bufadd(path)) }
  end
  return { stamp = stamp(path) }
end

--- The proposal for a file, which is loaded, hidden, if it is not open; nil and the reason if it
--- cannot be made any more.
---@param path string
---@param edits lsp.TextEdit[]
---@param was { lines?: string[], stamp?: string }
---@param client vim.lsp.Client
---@return draftline.FileProposal?
---@return string? problem
local function proposal_for(path, edits, was, client)
  local bufnr = vim.fn.bufadd(path)
  local loaded = pcall(vim.fn.bufload, bufnr)
  if not loaded or not vim.api.nvim_buf_is_loaded(bufnr) then
    return nil, 'it cannot be opened'
  end
  if hunk_list.is_open(bufnr) or preview.is_open(bufnr) then
    return nil, 'a proposal for it is open: accept or reject it, and ask again'
  elseif vim.bo[bufnr].modified and not vim.lsp.buf_is_attached(bufnr, client.id) then
    return nil, 'it has changes that the server does not see; write it and ask again'
  end
  local before = text.lines(bufnr)
  local same = was.lines and vim.deep_equal(before, was.lines)
    or was.stamp ~= nil and was.stamp == stamp(path)
  if not same then
    return nil, 'it changed meanwhile; ask again'
  end
  local after = text.edited(before, bufnr, edits, client.offset_encoding)
  return { bufnr = bufnr, before = before, after = after, notes = {} }
end

---@param value any
---@return string?
local function known(value)
  return type(value) == 'string' and value ~= '' and value or nil
end

--- What a rule did, and what the user should know.
---@param file { rule?: string, note?: string }
---@return string[]
local function notes_of(file)
  local notes = {}
  if known(file.rule) then
    notes[1] = 'made by rule: ' .. file.rule
  end
  notes[#notes + 1] = known(file.note)
  return notes
end

--- Open the review of an answer.
---@param instruction string
---@param result table of draftline/editFiles
---@param states table<string, { lines?: string[], stamp?: string }> by path
---@param client vim.lsp.Client
local function present(instruction, result, states, client)
  local by_path = text.by_path(result.edit)
  local proposals, problems, note = {}, {}, nil
  for _, file in ipairs(result.files) do
    local path = vim.uri_to_fname(file.uri)
    local proposal, problem = nil, known(file.error)
    if not problem and by_path[path] then
      proposal, problem = proposal_for(path, by_path[path], states[path] or {}, client)
    end
    if proposal then
      proposal.warning = known(table.concat(file.warnings or {}, '; '))
      proposal.notes = notes_of(file)
      proposals[#proposals + 1] = proposal
    elseif problem then
      problems[#problems + 1] = { path = path, text = problem }
    else
      note = note or known(file.note)
    end
  end
  if #proposals == 0 and #problems == 0 then
    draftline.tell('nothing changed' .. (note and ': ' .. note or ''))
    return
  end
  review.open('Draftline: ' .. instruction, proposals, problems)
  local failed = #problems > 0 and (', %d not'):format(#problems) or ''
  draftline.say(
    ('%d of %d files to change%s; <CR> shows one, :DraftlineAccept accepts all'):format(
      #proposals,
      #result.files,
      failed
    )
  )
end

--- Open the review of a rename that another language server made.
---@param instruction string
---@param renamed draftline.Rename
function M.present_rename(instruction, renamed)
  local edits, states, files = {}, {}, {}
  local paths = vim.tbl_keys(renamed.edits)
  table.sort(paths)
  for index, path in ipairs(paths) do
    local uri = vim.uri_from_fname(path)
    edits[uri], states[path] = renamed.edits[path], state(path)
    files[index] = { uri = uri, note = renamed.note }
  end
  present(instruction, { edit = { changes = edits }, files = files }, states, renamed.client)
end

---@param client vim.lsp.Client
---@param bufnr integer
---@param instruction string
---@param paths string[]
local function send(client, bufnr, instruction, paths)
  local states = {}
  for _, path in ipairs(paths) do
    states[path] = state(path)
  end
  local params = { instruction = instruction, files = vim.tbl_map(vim.uri_from_fname, paths) }
  job.start(client, bufnr, 'draftline/editFiles', params, {
    label = ('editing %d files'):format(#paths),
    on_done = function(result)
      present(instruction, result, states, client)
    end,
  })
end

--- The files of a list's lines; nil and the reason if one does not exist.
---@param lines string[]
---@param root? string
---@return string[]?
---@return string? problem
local function paths_of(lines, root)
  local paths, seen = {}, {}
  for _, line in ipairs(lines) do
    local named = vim.trim(line)
    if named ~= '' then
      local path = vim.fs.normalize(named, { expand_env = false })
      if path:sub(1, 1) ~= '/' then
        local here, there = vim.fs.joinpath(vim.fn.getcwd(), path), root and root .. '/' .. path
        path = vim.uv.fs_stat(here) and here or there or here
      end
      local stat = vim.uv.fs_stat(path)
      if not stat or stat.type ~= 'file' then
        return nil, ('there is no file %s; correct the line, or delete it'):format(named)
      end
      if not seen[path] then
        seen[path] = true
        paths[#paths + 1] = path
      end
    end
  end
  if #paths == 0 then
    return nil, 'no files are left; write one a line, or cancel with q'
  end
  return paths
end

--- Show the files, one a line, to be changed and accepted.
---@param client vim.lsp.Client
---@param bufnr integer
---@param instruction string
---@param files { uri: string, reason: string }[]
local function choose(client, bufnr, instruction, files)
  local list = vim.api.nvim_create_buf(false, true)
  local lines = vim.tbl_map(function(file)
    return vim.fn.fnamemodify(vim.uri_to_fname(file.uri), ':.')
  end, files)
  vim.api.nvim_buf_set_lines(list, 0, -1, false, lines)
  for index, file in ipairs(files) do
    vim.api.nvim_buf_set_extmark(list, namespace, index - 1, 0, {
      virt_text = { { file.reason, 'Comment' } },
      invalidate = true, -- with its line
    })
  end
  vim.api.nvim_buf_set_name(list, ('draftline://%d/files'):format(list))
  vim.bo[list].buftype, vim.bo[list].bufhidden, vim.bo[list].modified = 'acwrite', 'wipe', false
  local height = math.max(2, math.min(#files + 1, MAX_HEIGHT))
  vim.api.nvim_open_win(list, true, { split = 'below', win = 0, height = height })
  vim.wo[0][0].statusline = HINT
  local function close()
    vim.bo[list].modified = false
    vim.cmd.close()
  end
  local function go_on()
    local paths, problem = paths_of(text.lines(list), client.root_dir)
    if not paths then
      draftline.fail(problem --[[@as string]])
      return
    end
    close()
    send(client, bufnr, instruction, paths)
  end
  vim.keymap.set('n', '<CR>', go_on, { buffer = list, nowait = true, desc = 'Edit these files' })
  vim.keymap.set('n', 'q', close, { buffer = list, nowait = true, desc = 'Cancel' })
  vim.api.nvim_create_autocmd('BufWriteCmd', {
    buffer = list,
    callback = function()
      vim.schedule(go_on) -- a window cannot be closed here
    end,
  })
end

--- Let the user choose among the files that the server finds.
---@param client vim.lsp.Client
---@param bufnr integer
---@param instruction string
local function find(client, bufnr, instruction)
  local params = { instruction = instruction, textDocument = text.document(bufnr) }
  job.start(client, bufnr, 'draftline/findFiles', params, {
    label = 'looking for files',
    on_done = function(result)
      local files = result.files
      if #files == 0 then
        files = { { uri = vim.uri_from_bufnr(bufnr), reason = 'this file; no others were found' } }
      end
      choose(client, bufnr, instruction, files)
    end,
  })
end

--- Ask for a rename first, and the server for all else.
---@param client vim.lsp.Client
---@param bufnr integer
---@param instruction string
local function start(client, bufnr, instruction)
  rename.ask(client, bufnr, instruction, nil, function(renamed)
    if renamed then
      M.present_rename(instruction, renamed)
    else
      find(client, bufnr, instruction)
    end
  end)
end

--- `:DraftlineEditFiles [instruction]`.
---@param arguments vim.api.keyset.create_user_command.command_args
function M.command(arguments)
  local bufnr = vim.api.nvim_get_current_buf()
  local client = draftline.client(bufnr)
  if not client then
    return
  elseif arguments.args ~= '' then
    start(client, bufnr, arguments.args)
    return
  end
  vim.ui.input({ prompt = 'Draftline, what to change: ' }, function(typed)
    if typed and vim.trim(typed) ~= '' then
      start(client, bufnr, typed)
    end
  end)
end

return M
