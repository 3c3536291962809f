"""Published drafting methods, one module each, and what they share."""
