-- `:checkhealth draftline`: the version of Neovim, the configuration, the program, and the servers
-- that run.
local draftline = require('draftline')
local program = require('draftline.program')
local restart = require('draftline.restart')

local M = {}

local VERSION_TIMEOUT_MS = 20000
-- of vim.g.draftline
local OPTIONS = {
  inline = true,
  keys = true,
  autotrigger = true,
  preview = true,
  server = true,
  engine = true,
}
local INSTALL = {
  "Install it: in Draftline's source folder, `pipx install .` or `uv tool install .`",
  "If it is not on your PATH: vim.lsp.config('draftline', { cmd = { '/path/to/draftline', 'lsp' } })",
}

local function check_neovim()
  vim.health.start('Neovim')
  local version = tostring(vim.version())
  if vim.lsp.inline_completion then
    vim.health.ok(version .. ': ghost text')
  else
    vim.health.ok(version)
    vim.health.info('Ghost text needs 0.12; here completions come in the menu (CTRL-X CTRL-O)')
  end
end

local function check_options()
  vim.health.start('Configuration')
  if program.is_enabled() then
    vim.health.ok('The server is enabled')
  else
    vim.health.warn('The server is not enabled', "Call vim.lsp.enable('draftline') in init.lua")
  end
  local unknown = vim.tbl_filter(function(name)
    return not OPTIONS[name]
  end, vim.tbl_keys(vim.g.draftline or {}))
  if #unknown > 0 then
    local known = table.concat(vim.fn.sort(vim.tbl_keys(OPTIONS)), ', ')
    local names = table.concat(vim.fn.sort(unknown), ', ')
    vim.health.warn('vim.g.draftline has no option ' .. names, 'The options are ' .. known)
  end
end

--- Run the program with `--version`, as the server is run.
local function check_program()
  vim.health.start('Program')
  local cmd = (vim.lsp.config.draftline or {}).cmd
  if type(cmd) ~= 'table' then
    vim.health.info('The server is started by a function of yours')
    return
  end
  local shown = table.concat(cmd, ' ')
  if program.missing() then
    vim.health.error(('There is no program %s'):format(cmd[1]), INSTALL)
    return
  end
  local command = vim.list_extend(vim.list_extend({}, cmd), { '--version' })
  local done = vim.system(command, { text = true, timeout = VERSION_TIMEOUT_MS }):wait()
  if done.code == 0 then
    vim.health.ok(('%s: %s'):format(shown, vim.trim(done.stdout)))
  else
    local said = vim.trim(done.stderr ~= '' and done.stderr or done.stdout)
    vim.health.error(('%s: exit code %d: %s'):format(shown, done.code, said), INSTALL)
  end
end

local function check_servers()
  vim.health.start('Servers')
  local clients = vim.lsp.get_clients({ name = 'draftline' })
  for _, client in ipairs(clients) do
    local where = client.root_dir or 'files outside of a project'
    local text = ('%s: %s'):format(where, draftline.describe(client.id))
    local report = draftline.failed(client.id) and vim.health.error or vim.health.ok
    report(text)
  end
  if #clients == 0 then
    vim.health.info('None is running; one starts with the first file')
  end
  local last = restart.last_end()
  if last then
    local log = vim.lsp.log.get_filename()
    vim.health.warn(
      ('A server ended by itself (%s)'):format(last),
      { 'Its last words may be in ' .. log, 'If none is running, :DraftlineRestart starts one' }
    )
  end
end

function M.check()
  check_neovim()
  check_options()
  check_program()
  check_servers()
end

return M
