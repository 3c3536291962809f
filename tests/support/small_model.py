"""Tests run the small model where none is named, in half the time. Import it before `engine`."""

import os

os.environ.setdefault("DRAFTLINE_MODEL", "qwen2.5-coder-0.5b")
