-- User commands, and the autocommand for when the server attaches to a buffer.
if vim.g.loaded_draftline then
  return
end
vim.g.loaded_draftline = true

if vim.fn.has('nvim-0.11') == 0 then
  vim.notify('Draftline needs Neovim 0.11 or newer', vim.log.levels.ERROR)
  return
end

--- Make the tags of the help, where no plugin manager does. A folder that is read-only has none.
local function make_tags()
  local plugin = vim.fs.dirname(vim.fs.dirname(debug.getinfo(1, 'S').source:sub(2)))
  local doc = vim.fs.joinpath(plugin, 'doc')
  local help = vim.uv.fs_stat(vim.fs.joinpath(doc, 'draftline.txt'))
  local tags = vim.uv.fs_stat(vim.fs.joinpath(doc, 'tags'))
  local is_old = help and (not tags or tags.mtime.sec < help.mtime.sec)
  if is_old and vim.uv.fs_access(doc, 'W') then
    pcall(vim.cmd.helptags, { args = { doc }, magic = { file = false } })
  end
end

make_tags()

---@param name string
---@param run fun(arguments: vim.api.keyset.create_user_command.command_args)
---@param options? vim.api.keyset.user_command
local function command(name, run, options)
  vim.api.nvim_create_user_command(name, run, options or {})
end

command('DraftlineEdit', function(arguments)
  require('draftline.edit').command(arguments)
end, { nargs = '*', range = true, desc = 'Rewrite the lines, or the buffer, by instruction' })

command('DraftlineEditFiles', function(arguments)
  require('draftline.edit_files').command(arguments)
end, { nargs = '*', desc = 'Edit several files by instruction' })

command('DraftlineAccept', function()
  require('draftline.review').accept()
end, { desc = 'Accept the proposals for all files' })

command('DraftlineReject', function()
  require('draftline.review').reject()
end, { desc = 'Reject the proposals for all files' })

command('DraftlineNextEdit', function()
  require('draftline.edit').next_edit()
end, { desc = 'Show what should change next after the recent edits' })

command('DraftlineAsk', function(arguments)
  require('draftline.ask').command(arguments)
end, { nargs = '*', range = true, desc = 'Ask about the lines, or the buffer' })

command('DraftlineChat', function(arguments)
  require('draftline.chat').command(arguments)
end, { nargs = '*', range = true, bang = true, desc = 'Open the chat, or a new one' })

command('DraftlineCommit', function()
  require('draftline.commit').command()
end, { desc = 'Write a message for the staged changes' })

command('DraftlineCancel', function()
  require('draftline').cancel()
end, { desc = 'Cancel running requests' })

command('DraftlineStatus', function()
  require('draftline').show_status()
end, { desc = 'Show the state of the server' })

command('DraftlineWhy', function()
  require('draftline').why()
end, { desc = 'Show why a suggestion was or was not offered' })

command('DraftlineRestart', function()
  require('draftline.restart').command()
end, { desc = 'Restart the server' })

command('DraftlineToggle', function()
  require('draftline').toggle()
end, { desc = 'Turn completions on or off' })

for name, link in pairs({
  DraftlineDim = 'Comment', -- lines that are being rewritten
  DraftlineOld = 'DiffDelete',
  DraftlineNew = 'DiffAdd',
  DraftlineHint = 'Comment', -- keys and notes
  DraftlineWarning = 'DiagnosticWarn',
}) do
  vim.api.nvim_set_hl(0, name, { link = link, default = true })
end

local group = vim.api.nvim_create_augroup('draftline', {})
vim.api.nvim_create_autocmd('LspAttach', {
  group = group,
  callback = function(args)
    local client = vim.lsp.get_client_by_id(args.data.client_id)
    if client and client.name == 'draftline' and vim.tbl_count(client.attached_buffers) == 1 then
      require('draftline.problems').share(client) -- once: for its first buffer
    end
  end,
})
vim.api.nvim_create_autocmd('FileType', { -- for which the server is started
  group = group,
  callback = vim.schedule_wrap(function()
    require('draftline.program').report()
  end),
})
vim.api.nvim_create_autocmd({ 'LspAttach', 'BufEnter', 'CursorMoved' }, {
  group = group,
  callback = function(args)
    require('draftline.cursor').moved(args.buf)
  end,
})
for event, method in pairs({ LspAttach = 'attach', LspDetach = 'detach' }) do
  vim.api.nvim_create_autocmd(event, {
    group = group,
    callback = function(args)
      local client = vim.lsp.get_client_by_id(args.data.client_id)
      if client and client.name == 'draftline' then
        require('draftline.suggest')[method](client, args.buf)
      end
    end,
  })
end
