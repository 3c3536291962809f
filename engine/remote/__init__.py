"""An engine in another process, here or on another machine: how to find it, and how to ask it.

`any_engine` says what clients need, `address` finds and checks sockets, `messages` maps requests
and events to JSON. `http_engine` is an engine that `draftline serve` offers, here or on another
machine, `remote_engine` that of a language server, `openai_engine` one of OpenAI's protocol.
Nothing here imports torch.
"""
