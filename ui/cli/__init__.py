"""The `draftline` command."""
