"""One engine for many clients: the relay of each window, the engine's own methods, and consent to
downloads."""
