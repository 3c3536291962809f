-- A proposal in its buffer: each hunk's old lines are marked, its new lines are virtual ones below,
-- and its keys are in a line above. The marks move with what is typed around them; a hunk whose
-- lines were changed is not accepted.
local draftline = require('draftline')
local keys = require('draftline.keys')

local M = {}

local namespace = vim.api.nvim_create_namespace('draftline.hunks')

local PRIORITY = 250 -- above syntax and semantic tokens
local CONTEXT = 3 -- lines shown above a hunk that was scrolled to
local KEYS = 'do accept · dr reject · ga accept all · q reject all'

---@class draftline.ShownHunk: draftline.Hunk
---@field mark integer the extmark of its old lines, or of the line that it is inserted before
---@field is_last boolean whether it is inserted after that line, the buffer's last one
---@field above integer virtual lines above its old ones
---@field below integer virtual lines below them

---@class draftline.HunkList
---@field bufnr integer
---@field hunks draftline.ShownHunk[]
---@field notes string[] about the whole proposal
---@field warning? string what to check before accepting
---@field unmap fun()

---@type table<integer, draftline.HunkList> by buffer
local lists = {}

---@param bufnr integer
---@return boolean
function M.is_open(bufnr)
  return lists[bufnr] ~= nil
end

--- Where a hunk is now, and whether its old lines are as they were.
---@param bufnr integer
---@param hunk draftline.ShownHunk
---@return integer row
---@return boolean is_current
local function place(bufnr, hunk)
  local mark =
    vim.api.nvim_buf_get_extmark_by_id(bufnr, namespace, hunk.mark, { details = true })
  local row = (mark[1] or 0) + (hunk.is_last and 1 or 0)
  if #mark == 0 or mark[3].invalid then
    return row, false
  end
  local lines = vim.api.nvim_buf_get_lines(bufnr, row, row + #hunk.old, false)
  return row, vim.deep_equal(lines, hunk.old)
end

--- Draw the lines above and below each hunk.
---@param list draftline.HunkList
local function draw(list)
  local bufnr = list.bufnr
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(bufnr, namespace, 0, -1, {})) do
    local is_hunk = vim.iter(list.hunks):any(function(hunk)
      return hunk.mark == mark[1]
    end)
    if not is_hunk then
      vim.api.nvim_buf_del_extmark(bufnr, namespace, mark[1])
    end
  end
  for index, hunk in ipairs(list.hunks) do
    local above, below = {}, {}
    if index == 1 then
      for _, note in ipairs(list.notes) do
        above[#above + 1] = { { '▏' .. note, 'DraftlineHint' } }
      end
      if list.warning then
        above[#above + 1] = { { '▏⚠ check this: ' .. list.warning, 'DraftlineWarning' } }
      end
    end
    local number = #list.hunks > 1 and ('%d/%d ]c next · '):format(index, #list.hunks) or ''
    above[#above + 1] = { { '▏Draftline ' .. number .. KEYS, 'DraftlineHint' } }
    for _, line in ipairs(hunk.new) do
      below[#below + 1] = { { line == '' and ' ' or line, 'DraftlineNew' } }
    end
    local row = place(bufnr, hunk)
    local function virtual(at, lines, is_above)
      if #lines > 0 then
        at = math.max(0, math.min(at, vim.api.nvim_buf_line_count(bufnr) - 1))
        local options = { virt_lines = lines, virt_lines_above = is_above }
        vim.api.nvim_buf_set_extmark(bufnr, namespace, at, 0, options)
      end
    end
    local is_above = #hunk.old == 0 and not hunk.is_last
    local all = #above + #below
    hunk.above = is_above and all or (#hunk.old > 0 and row > 0) and #above or 0
    hunk.below = all - hunk.above
    if #hunk.old == 0 then
      local at = hunk.is_last and row - 1 or row
      virtual(at, vim.list_extend(above, below), is_above)
    elseif row == 0 then -- Neovim does not show virtual lines above a buffer's first line
      virtual(#hunk.old - 1, vim.list_extend(above, below), false)
    else
      virtual(row, above, true)
      virtual(row + #hunk.old - 1, below, false)
    end
  end
end

--- Scroll virtual lines above the first line into view, which no cursor reaches.
---@param bufnr integer
---@param count integer of these lines
local function show_top(bufnr, count)
  for _, window in ipairs(vim.fn.win_findbuf(bufnr)) do
    vim.api.nvim_win_call(window, function()
      if vim.fn.line('w0') == 1 then
        vim.fn.winrestview({ topline = 1, topfill = count })
      end
    end)
  end
end

--- The row of a hunk in the buffer: of its first old line, or of the line next to an insertion.
---@param list draftline.HunkList
---@param hunk draftline.ShownHunk
---@return integer
local function row_of(list, hunk)
  return math.min(vim.api.nvim_buf_line_count(list.bufnr) - 1, (place(list.bufnr, hunk)))
end

--- Move the cursor to a hunk, and scroll until its virtual lines are in view, too. Where they do
--- not fit, its first lines are.
---@param list draftline.HunkList
---@param hunk draftline.ShownHunk
local function go_to(list, hunk)
  local row = row_of(list, hunk)
  vim.cmd.normal({ args = { "m'" }, bang = true }) -- <C-o> goes back
  vim.api.nvim_win_set_cursor(0, { row + 1, 0 })
  local top, height = vim.fn.line('w0') - 1, vim.api.nvim_win_get_height(0)
  local lines = { start_row = top, end_row = row + math.max(0, #hunk.old - 1) }
  local is_begun = top < row or vim.fn.winsaveview().topfill >= hunk.above
  if is_begun and vim.api.nvim_win_text_height(0, lines).all + hunk.below <= height then
    return
  end
  local room = height - hunk.above - #hunk.old - hunk.below
  local context = math.max(0, math.min(CONTEXT, room, row))
  local topfill = context == 0 and hunk.above or 0
  vim.fn.winrestview({ topline = row + 1 - context, topfill = topfill })
end

--- Say what the keys are, or where the first hunk is if nobody sees it.
---@param list draftline.HunkList
local function announce(list)
  vim.cmd.redraw() -- or the lines in view would be those before the virtual ones
  local row, window = row_of(list, list.hunks[1]), vim.fn.bufwinid(list.bufnr)
  if window ~= -1 and vim.fn.line('w0', window) <= row + 1 and row < vim.fn.line('w$', window) then
    draftline.say(KEYS)
    return
  end
  local is_here = vim.api.nvim_get_current_buf() == list.bufnr
  local name = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(list.bufnr), ':t')
  local of = is_here and '' or (' of %s'):format(name)
  draftline.say(('the proposal is at line %d%s; ]c goes to it'):format(row + 1, of))
end

---@param list draftline.HunkList
local function close(list)
  lists[list.bufnr] = nil
  if vim.api.nvim_buf_is_valid(list.bufnr) then
    list.unmap()
    vim.api.nvim_buf_clear_namespace(list.bufnr, namespace, 0, -1)
  end
end

--- Remove hunks from the list, and draw or close what remains.
---@param list draftline.HunkList
---@param gone table<draftline.ShownHunk, true>
local function remove(list, gone)
  list.hunks = vim.tbl_filter(function(hunk)
    return not gone[hunk]
  end, list.hunks)
  for hunk in pairs(gone) do
    vim.api.nvim_buf_del_extmark(list.bufnr, namespace, hunk.mark)
  end
  if #list.hunks == 0 then
    close(list)
  else
    draw(list)
  end
end

--- The hunk at the cursor, or the next one below it, or the last one.
---@param list draftline.HunkList
---@return draftline.ShownHunk
local function at_cursor(list)
  local line = vim.api.nvim_win_get_cursor(0)[1] - 1
  for _, hunk in ipairs(list.hunks) do
    local row = place(list.bufnr, hunk)
    if line < row + math.max(1, #hunk.old) then
      return hunk
    end
  end
  return list.hunks[#list.hunks]
end

--- Apply hunks in one undo step; those whose lines were changed stay in the list.
---@param list draftline.HunkList
---@param hunks draftline.ShownHunk[]
---@return integer changed how many stay
local function apply(list, hunks)
  local bufnr, gone, changed = list.bufnr, {}, 0
  for index = #hunks, 1, -1 do
    local hunk = hunks[index]
    local row, is_current = place(bufnr, hunk)
    if is_current then
      vim.api.nvim_buf_set_lines(bufnr, row, row + #hunk.old, true, hunk.new)
      gone[hunk] = true
    else
      changed = changed + 1
    end
  end
  remove(list, gone)
  return changed
end

---@param list draftline.HunkList
---@param hunks draftline.ShownHunk[]
local function accept(list, hunks)
  if not vim.bo[list.bufnr].modifiable then
    draftline.fail("the buffer is not modifiable; ':set modifiable' makes it so")
    return
  end
  local changed = apply(list, hunks)
  if changed > 0 then
    local what = changed == 1 and 'a hunk' or changed .. ' hunks'
    draftline.fail(('the lines of %s changed: reject it (dr), or undo that'):format(what))
  elseif #list.hunks == 0 then
    draftline.say('accepted')
  end
end

--- Move the cursor to the next hunk in a direction, around the buffer's end.
---@param list draftline.HunkList
---@param step 1|-1
local function jump(list, step)
  local line = vim.api.nvim_win_get_cursor(0)[1] - 1
  local hunks = list.hunks
  local target = step == 1 and hunks[1] or hunks[#hunks]
  for index = step == 1 and #hunks or 1, step == 1 and 1 or #hunks, -step do
    if (row_of(list, hunks[index]) - line) * step > 0 then
      target = hunks[index]
    end
  end
  go_to(list, target)
end

---@param list draftline.HunkList
---@return fun() unmap
local function map(list)
  return keys.map(list.bufnr, {
    ['do'] = {
      run = function()
        accept(list, { at_cursor(list) })
      end,
      desc = 'Accept this hunk',
    },
    dr = {
      run = function()
        remove(list, { [at_cursor(list)] = true })
      end,
      desc = 'Reject this hunk',
    },
    ga = {
      run = function()
        accept(list, list.hunks)
      end,
      desc = 'Accept all hunks',
    },
    q = {
      run = function()
        close(list)
        draftline.say('rejected; hunks that were accepted stay')
      end,
      desc = 'Reject all hunks',
    },
    [']c'] = {
      run = function()
        jump(list, 1)
      end,
      desc = 'Go to the next hunk',
    },
    ['[c'] = {
      run = function()
        jump(list, -1)
      end,
      desc = 'Go to the previous hunk',
    },
  })
end

--- Show hunks of a loaded buffer as it is now.
---@param bufnr integer
---@param hunks draftline.Hunk[] from the top
---@param notes string[] about the whole proposal
---@param warning? string what to check before accepting
---@param go boolean whether to move the cursor of the current window to the first one
---@param quiet? boolean whether to say nothing
function M.open(bufnr, hunks, notes, warning, go, quiet)
  ---@type draftline.HunkList
  local list = { bufnr = bufnr, hunks = {}, notes = notes, warning = warning }
  local count = vim.api.nvim_buf_line_count(bufnr)
  for _, hunk in ipairs(hunks) do
    local is_last = #hunk.old == 0 and hunk.row >= count
    local row, stop = hunk.row - (is_last and 1 or 0), hunk.row + #hunk.old
    local options = { priority = PRIORITY }
    if #hunk.old > 0 then
      local last = hunk.old[#hunk.old]
      options.end_row, options.end_col = stop, 0
      if stop == count then
        options.end_row, options.end_col = stop - 1, #last
      end
      options.hl_group, options.hl_eol = 'DraftlineOld', true
      options.invalidate, options.undo_restore = true, true
    end
    list.hunks[#list.hunks + 1] = vim.tbl_extend('error', hunk, {
      mark = vim.api.nvim_buf_set_extmark(bufnr, namespace, row, 0, options),
      is_last = is_last,
    })
  end
  lists[bufnr] = list
  list.unmap = map(list)
  vim.api.nvim_create_autocmd('BufUnload', {
    buffer = bufnr,
    once = true,
    callback = function()
      if lists[bufnr] == list then
        close(list)
      end
    end,
  })
  draw(list)
  if go then
    go_to(list, list.hunks[1])
  end
  if hunks[1].row == 0 and #hunks[1].old == 0 then
    show_top(bufnr, list.hunks[1].above)
  end
  if warning and not quiet then
    draftline.tell('check this: ' .. warning, vim.log.levels.WARN)
  elseif not quiet then
    announce(list)
  end
end

--- Accept all hunks of a buffer in one undo step; false if some stay, as their lines changed.
---@param bufnr integer
---@return boolean
function M.accept(bufnr)
  return vim.bo[bufnr].modifiable and apply(lists[bufnr], lists[bufnr].hunks) == 0
end

--- Reject all hunks of a buffer.
---@param bufnr integer
function M.reject(bufnr)
  close(lists[bufnr])
end

return M
