"""An engine in another process of this machine: how to find it, and how to ask it.

`address` finds and checks sockets, `messages` maps requests and events to JSON, `remote_engine` is
an engine whose work another process does, `engine_server` shares an engine of this one; the
language server shares its own in `lsp_server`. Nothing here imports torch.
"""
