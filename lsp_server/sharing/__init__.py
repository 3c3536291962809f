"""One engine for many clients.

The relay of each window, the engine's own methods, and consent to downloads.
"""
