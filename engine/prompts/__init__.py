"""Requests to token ids and back: tokenizer, chat templates, fill in the middle."""
