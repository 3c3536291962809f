"""Applies edits to text files."""
