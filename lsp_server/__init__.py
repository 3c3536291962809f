"""The language server: Draftline inside an editor. `python -m lsp_server` or `draftline lsp`."""
