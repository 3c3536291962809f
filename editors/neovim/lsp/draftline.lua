-- Neovim's own way to start the server: `vim.lsp.enable('draftline')` reads this file from
-- 'runtimepath'. A `vim.lsp.config('draftline', {...})` of yours is merged over it.
---@type vim.lsp.Config
return {
  cmd = { 'draftline', 'lsp' },
  root_markers = { '.git', 'pyproject.toml', 'package.json', 'Cargo.toml', 'go.mod' },
  -- No `filetypes`: every file. The server's setting `languages` narrows that.
  settings = {}, -- { draftline = { model = ..., maxTokens = ... } }
  capabilities = {
    experimental = { draftline = { status = true, instructionBox = true } },
  },
  handlers = {
    ['draftline/status'] = function(_, status, context)
      require('draftline').on_status(context.client_id, status)
    end,
  },
  commands = {
    -- The code action "Edit with instruction..." asks through us.
    ['draftline.editWithInstruction'] = function(command, context)
      require('draftline.edit').start(context.bufnr, nil, command.arguments[1].range)
    end,
  },
}
