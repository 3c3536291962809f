-- What a buffer's user changes while an answer is made: so an answer for an older version can be
-- moved to the present one. Nothing here changes a buffer.
local M = {}

---@class draftline.Hunk
---@field row integer the first line to replace, from 0
---@field old string[]
---@field new string[]

---@class draftline.Change
---@field version integer that it made
---@field row integer from 0
---@field old string[] the lines before
---@field count integer of the lines that replaced them

---@class draftline.Log
---@field lines string[] the buffer's, as they are now
---@field changes draftline.Change[]
---@field is_lost boolean the buffer was reloaded, so nothing is known about its changes
---@field stop fun()

--- Follow a buffer until `stop` is called.
---@param bufnr integer
---@return draftline.Log
function M.follow(bufnr)
  ---@type draftline.Log
  local log =
    { lines = vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), changes = {}, is_lost = false }
  local stopped = false
  log.stop = function()
    stopped = true
  end
  local function lost()
    log.is_lost = true
  end
  local attached = vim.api.nvim_buf_attach(bufnr, false, {
    on_lines = function(_, _, version, first, last, new_last)
      if stopped then
        return true -- detaches
      end
      local new = vim.api.nvim_buf_get_lines(bufnr, first, new_last, false)
      local old = vim.list_slice(log.lines, first + 1, last)
      table.insert(log.changes, { version = version, row = first, old = old, count = #new })
      log.lines = M.replaced(log.lines, first, #old, new)
    end,
    on_reload = lost,
    on_detach = lost,
  })
  log.is_lost = not attached
  return log
end

--- Lines with `new` in place of `count` lines from `row` on.
---@param lines string[]
---@param row integer from 0
---@param count integer
---@param new string[]
---@return string[]
function M.replaced(lines, row, count, new)
  local result = vim.list_slice(lines, 1, row)
  vim.list_extend(result, new)
  return vim.list_extend(result, lines, row + count + 1)
end

--- The lines of a version; nil if they are not known.
---@param log draftline.Log
---@param version integer
---@return string[]?
function M.lines_at(log, version)
  if log.is_lost then
    return nil
  end
  local lines = log.lines
  for index = #log.changes, 1, -1 do
    local change = log.changes[index]
    if change.version > version then
      lines = M.replaced(lines, change.row, change.count, change.old)
    end
  end
  return lines
end

--- The hunks between two texts, from the top.
---@param before string[]
---@param after string[]
---@return draftline.Hunk[]
function M.hunks(before, after)
  local diff = vim.text and vim.text.diff or vim.diff
  local function joined(lines)
    return table.concat(lines, '\n') .. '\n'
  end
  local found = diff(joined(before), joined(after), { result_type = 'indices' })
  ---@cast found integer[][]
  return vim.tbl_map(function(each)
    local first, removed, other, added = unpack(each)
    return {
      row = removed == 0 and first or first - 1,
      old = vim.list_slice(before, first, first + removed - 1),
      new = vim.list_slice(after, other, other + added - 1),
    }
  end, found)
end

--- Hunks of a version, moved to the present one; nil if one of their lines was changed since.
---@param log draftline.Log
---@param version integer
---@param hunks draftline.Hunk[]
---@return draftline.Hunk[]?
function M.moved(log, version, hunks)
  for _, change in ipairs(log.changes) do
    if change.version > version then
      for _, hunk in ipairs(hunks) do
        local start, stop = change.row, change.row + #change.old
        local is_above = stop <= hunk.row
        if not is_above and start < hunk.row + #hunk.old then
          return nil
        elseif is_above and not (start == stop and start == hunk.row and #hunk.old == 0) then
          hunk.row = hunk.row + change.count - #change.old
        end
      end
    end
  end
  return hunks
end

return M
