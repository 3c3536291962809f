"""Answers to edited texts, and text files."""
