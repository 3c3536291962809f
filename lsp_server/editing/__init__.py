"""Edits by instruction: requests, code actions, workspace edits."""
