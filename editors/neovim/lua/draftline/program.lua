-- The server's program: whether it can be run, and what to do if it cannot.
local M = {}

---@type string? the program that was last reported
local reported

--- The server's program, if there is none of that name.
---@return string?
function M.missing()
  local cmd = (vim.lsp.config.draftline or {}).cmd
  local program = type(cmd) == 'table' and cmd[1] -- else it is a function of the user
  return program and vim.fn.executable(program) == 0 and program or nil
end

--- Name the missing program and the remedy in one line.
---@param program string
function M.report_missing(program)
  local line = ('no program %s: see :checkhealth draftline'):format(program)
  require('draftline').note(line, vim.log.levels.ERROR)
end

--- Whether the server is to be started.
---@return boolean
function M.is_enabled()
  return not vim.lsp.is_enabled or vim.lsp.is_enabled('draftline')
end

--- Report once that the program is missing: Neovim itself only writes that into a log.
function M.report()
  local program = M.is_enabled() and M.missing()
  if program and program ~= reported then
    reported = program
    M.report_missing(program)
  end
end

return M
