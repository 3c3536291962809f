-- Renames by the other language servers of a buffer, which are exact and span the workspace.
local draftline = require('draftline')
local text = require('draftline.text')

local M = {}

local PATIENCE_MS = 10000 -- for all answers to one instruction
local METHOD = 'textDocument/rename'

---@class draftline.Rename
---@field client vim.lsp.Client that made it
---@field edits table<string, lsp.TextEdit[]> by path
---@field note string what was done

---@param bufnr integer
---@param position lsp.Position
---@param from 'utf-8'|'utf-16'|'utf-32'
---@param to 'utf-8'|'utf-16'|'utf-32'
---@return lsp.Position
local function converted(bufnr, position, from, to)
  local line = vim.api.nvim_buf_get_lines(bufnr, position.line, position.line + 1, false)[1] or ''
  local byte = vim.str_byteindex(line, from, position.character, false)
  return { line = position.line, character = vim.str_utfindex(line, to, byte, false) }
end

---@param edits lsp.TextEdit[]
---@param at lsp.Position
---@return boolean
local function has(edits, at)
  return vim.iter(edits):any(function(edit)
    return vim.deep_equal(edit.range.start, at)
  end)
end

--- The edits of an answer, by path; nil if there are none, or if it also renames files.
---@param edit any
---@return table<string, lsp.TextEdit[]>?
local function usable(edit)
  if type(edit) ~= 'table' then
    return nil
  end
  for _, change in ipairs(edit.documentChanges or {}) do
    if change.kind then
      return nil
    end
  end
  local edits = text.by_path(edit)
  return next(edits) and edits
end

---@param wanted { old: string, new: string }
---@param edits table<string, lsp.TextEdit[]>
---@return string
local function described(wanted, edits)
  local count, files = 0, vim.tbl_count(edits)
  for _, each in pairs(edits) do
    count = count + #each
  end
  local where = files > 1 and (' of %d files'):format(files) or ''
  local places = count == 1 and '1 place' or count .. ' places'
  return ('`%s` renamed to `%s` in %s%s'):format(wanted.old, wanted.new, places, where)
end

--- Ask one client at each place that no edit has reached yet.
---@param other vim.lsp.Client
---@param bufnr integer
---@param wanted { old: string, new: string, places: lsp.Range[] }
---@param encoding 'utf-8'|'utf-16'|'utf-32' of the places
---@param done fun(edits?: table<string, lsp.TextEdit[]>)
local function ask_one(other, bufnr, wanted, encoding, done)
  local path = vim.uri_to_fname(vim.uri_from_bufnr(bufnr))
  local found = {} ---@type table<string, lsp.TextEdit[]>
  local function ask_at(index)
    local place = wanted.places[index]
    if not place then
      done(found)
      return
    end
    local at = converted(bufnr, place.start, encoding, other.offset_encoding)
    if has(found[path] or {}, at) then
      ask_at(index + 1)
      return
    end
    local params = { textDocument = text.document(bufnr), position = at, newName = wanted.new }
    local sent = other:request(METHOD, params, function(err, edit)
      local edits = not err and usable(edit)
      if not edits then
        done(nil)
        return
      end
      for each, more in pairs(edits) do
        found[each] = vim.list_extend(found[each] or {}, more)
      end
      ask_at(index + 1)
    end, bufnr)
    if not sent then
      done(nil)
    end
  end
  ask_at(1)
end

--- Have the rename that an instruction asks for made by another client. `done` gets nothing if the
--- instruction asks for anything else, if none makes it, or if the buffer changes meanwhile.
---@param client vim.lsp.Client Draftline's
---@param bufnr integer
---@param instruction string
---@param range? lsp.Range
---@param done fun(rename?: draftline.Rename)
function M.ask(client, bufnr, instruction, range, done)
  local others = vim.tbl_filter(function(each)
    return each.id ~= client.id
  end, vim.lsp.get_clients({ bufnr = bufnr, method = METHOD }))
  if #others == 0 then
    done(nil)
    return
  end
  local version, ended = vim.lsp.util.buf_versions[bufnr], false
  local function finish(rename)
    if not ended then
      ended = true
      done(version == vim.lsp.util.buf_versions[bufnr] and rename or nil)
    end
  end
  vim.defer_fn(finish, PATIENCE_MS)
  local params = { textDocument = text.document(bufnr), range = range, instruction = instruction }
  client:request('draftline/renamePlaces', params, function(err, wanted)
    if err or type(wanted) ~= 'table' then
      finish(nil)
      return
    end
    draftline.say(('renaming %s …'):format(wanted.old))
    local function try(index)
      local other = others[index]
      if not other then
        finish(nil)
        return
      end
      ask_one(other, bufnr, wanted, client.offset_encoding, function(edits)
        if not edits then
          try(index + 1)
          return
        end
        local note = ('By %s: %s'):format(other.name, described(wanted, edits))
        finish({ client = other, edits = edits, note = note })
      end)
    end
    try(1)
  end, bufnr)
end

return M
