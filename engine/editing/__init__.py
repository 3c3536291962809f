"""Edits of text files, and their checks."""
