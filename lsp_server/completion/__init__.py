"""Inline completions."""
