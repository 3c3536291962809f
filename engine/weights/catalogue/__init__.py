"""Models by name: the built-in ones, and those of other programs."""
