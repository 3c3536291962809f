"""Models by name: the built-in ones, known ones, and those of other programs."""
