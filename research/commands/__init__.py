"""Commands that the entry points `draftline.commands` of this package add."""
