"""One engine for many clients.

The relay of each window, the engine's own methods, consent to downloads, and second models.
"""
