-- The server's configuration, which `vim.lsp.enable('draftline')` reads from 'runtimepath'. The
-- user's `vim.lsp.config('draftline', {...})` is merged over it.
local restart = require('draftline.restart') -- here: where it is called, nothing can be loaded
local options = vim.g.draftline or {}
local cmd = { 'draftline', 'lsp' }
for _, name in ipairs({ 'server', 'engine' }) do
  if options[name] then
    vim.list_extend(cmd, { '--' .. name, options[name] })
  end
end

---@type vim.lsp.Config
return {
  cmd = cmd,
  root_markers = { '.git', 'pyproject.toml', 'package.json', 'Cargo.toml', 'go.mod' },
  -- No `filetypes`, so every file; restrict it with the server's setting `languages`.
  settings = {}, -- { draftline = { model = ..., maxTokens = ... } }
  capabilities = {
    experimental = { draftline = { status = true, instructionBox = true, chat = true } },
  },
  on_exit = restart.on_exit,
  handlers = {
    ['draftline/status'] = function(_, status, context)
      require('draftline').on_status(context.client_id, status)
    end,
  },
  commands = {
    -- The code action "Edit with instruction..." prompts in the editor.
    ['draftline.editWithInstruction'] = function(command, context)
      require('draftline.edit').start(context.bufnr, nil, command.arguments[1].range)
    end,
    -- The code actions "Explain" ask in the chat.
    ['draftline.explain'] = function(command, context)
      local asked = command.arguments[1]
      require('draftline.chat').explain(context.bufnr, asked.range, asked.diagnostics)
    end,
  },
}
