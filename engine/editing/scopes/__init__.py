"""The names of a source text, and what each refers to; one file a language."""
