"""The index of a workspace: files to segments of suffix automata, kept fresh."""
