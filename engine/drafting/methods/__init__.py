"""Published drafting methods, one file each."""
