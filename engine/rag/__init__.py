"""Answers about documents with citations, and summaries."""
