"""Choosing tokens and verifying drafts."""
