"""Models made for next edits: what they are shown, and what their answers change.

`formats` has the formats by name; `sweep` and `zeta` build one format's prompts and read its
answers; `answer` rejects what must not be shown. Pure functions: none runs a model.
"""
