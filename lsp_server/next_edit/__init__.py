"""Next-edit prediction: where the recent edits ask for another one, and what it should be."""
