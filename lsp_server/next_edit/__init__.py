"""Next edit suggestions."""
