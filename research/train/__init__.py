"""Training of drafters: heads, weights and corpora."""
