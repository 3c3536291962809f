"""What every name of a source text refers to, one file a language."""
