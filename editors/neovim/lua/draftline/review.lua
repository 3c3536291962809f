-- Proposals for several files: shown in their buffers, and their hunks in the quickfix list.
local changes = require('draftline.changes')
local draftline = require('draftline')
local hunk_list = require('draftline.hunks')

local M = {}

---@class draftline.FileProposal
---@field bufnr integer loaded
---@field before string[]
---@field after string[]
---@field notes string[] what a rule did, and what the user should know
---@field warning? string what to check before accepting

---@type integer[] the buffers of the latest proposals
local reviewed = {}

--- A hunk in one line: what becomes of its first line.
---@param hunk draftline.Hunk
---@return string
local function described(hunk)
  local old, new = hunk.old[1], hunk.new[1]
  local more = math.max(#hunk.old, #hunk.new) - 1
  local tail = more > 0 and (' … %d more'):format(more) or ''
  if not old then
    return 'add: ' .. vim.trim(new) .. tail
  elseif not new then
    return 'remove: ' .. vim.trim(old) .. tail
  end
  return ('%s → %s%s'):format(vim.trim(old), vim.trim(new), tail)
end

--- List proposals in a new quickfix list, and show them in their buffers.
---@param title string
---@param proposals draftline.FileProposal[]
---@param problems { path: string, text: string }[] files that are left as they are, and why
function M.open(title, proposals, problems)
  local items = {} ---@type vim.quickfix.entry[]
  reviewed = {}
  for _, each in ipairs(proposals) do
    local hunks = changes.hunks(each.before, each.after)
    for index, hunk in ipairs(hunks) do
      local check = index == 1 and each.warning
      items[#items + 1] = {
        bufnr = each.bufnr,
        lnum = math.max(1, math.min(hunk.row + 1, #each.before)),
        text = (check and ('[check this: %s] '):format(check) or '') .. described(hunk),
        type = check and 'W' or '',
      }
    end
    vim.bo[each.bufnr].buflisted = true
    hunk_list.open(each.bufnr, hunks, each.notes, each.warning, false, true)
    reviewed[#reviewed + 1] = each.bufnr
  end
  for _, problem in ipairs(problems) do
    items[#items + 1] = { filename = problem.path, lnum = 1, text = problem.text, type = 'E' }
  end
  vim.fn.setqflist({}, ' ', { title = title, items = items })
  vim.cmd.copen({ mods = { split = 'botright' } })
end

--- The buffers whose proposals are still open.
---@return integer[]
local function open_ones()
  return vim.tbl_filter(hunk_list.is_open, reviewed)
end

--- `:DraftlineAccept`: accept the hunks that are left in all files; one undo a file.
function M.accept()
  local buffers, left = open_ones(), {}
  for _, bufnr in ipairs(buffers) do
    if not hunk_list.accept(bufnr) then
      left[#left + 1] = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(bufnr), ':t')
    end
  end
  if #buffers == 0 then
    draftline.say('no proposals for several files are open')
  elseif #left > 0 then
    local names = table.concat(left, ', ')
    draftline.fail(('lines changed in %s: their hunks are left, the rest is accepted'):format(names))
  else
    draftline.say(('%d files accepted; :wa writes them'):format(#buffers))
  end
end

--- `:DraftlineReject`: reject the hunks that are left in all files.
function M.reject()
  local buffers = open_ones()
  vim.iter(buffers):each(hunk_list.reject)
  draftline.say(
    #buffers == 0 and 'no proposals for several files are open'
      or ('%d files rejected; hunks that were accepted stay'):format(#buffers)
  )
end

return M
