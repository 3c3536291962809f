"""Inline completions: prompts, post-processing and caching."""
