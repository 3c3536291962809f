"""LSP for one client: framing, dispatch, text synchronisation, positions."""
