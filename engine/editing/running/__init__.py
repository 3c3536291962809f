"""Running programs on an edit: the user's command, and the linters of the workspace."""
