-- Questions: the answer streams into a markdown split, followed by its sources.
local draftline = require('draftline')
local job = require('draftline.job')
local markdown = require('draftline.markdown')
local sources = require('draftline.sources')
local text = require('draftline.text')

local M = {}

---@param bufnr integer
---@param more string
local function append(bufnr, more)
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_set_text(bufnr, -1, -1, -1, -1, vim.split(more, '\r?\n'))
  end
end

--- A split with an empty markdown buffer; `q` closes it.
---@return integer
local function split()
  local bufnr = vim.api.nvim_create_buf(false, true)
  markdown.set_filetype(bufnr)
  vim.bo[bufnr].bufhidden = 'wipe'
  local window = vim.api.nvim_open_win(bufnr, true, { split = 'below', win = 0 })
  vim.wo[window][0].wrap = true
  vim.wo[window][0].linebreak = true
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = bufnr, nowait = true, desc = 'Close' })
  return bufnr
end

--- `:[range]DraftlineAsk [question]`; without a question, the text is explained.
---@param arguments vim.api.keyset.create_user_command.command_args
function M.command(arguments)
  local bufnr = vim.api.nvim_get_current_buf()
  local client = draftline.client(bufnr)
  if not client then
    return
  end
  local asked = arguments.args ~= ''
  local params = {
    textDocument = text.document(bufnr),
    range = text.range(arguments, client.offset_encoding),
    question = asked and arguments.args or nil,
  }
  local answer = split()
  local head = ('# %s\n\n'):format(asked and arguments.args or 'Explanation')
  append(answer, head)
  local running =
    job.start(client, bufnr, asked and 'draftline/ask' or 'draftline/explain', params, {
      label = 'answering',
      on_text = function(more)
        append(answer, more)
      end,
      on_done = function(result)
        if vim.api.nvim_buf_is_valid(answer) then -- the complete answer replaces the streamed parts
          vim.api.nvim_buf_set_lines(answer, 0, -1, false, {})
          append(answer, head .. result.answer .. sources.listed(result.sources))
        end
      end,
      on_fail = function(message)
        append(answer, '\n\n(' .. message .. ')\n')
      end,
    })
  vim.api.nvim_create_autocmd('BufWipeout', {
    buffer = answer,
    once = true,
    callback = function()
      job.cancel(running)
    end,
  })
end

return M
