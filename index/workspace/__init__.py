"""The workspace index: files as segments of suffix automata, kept up to date."""
