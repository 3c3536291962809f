"""`python -m lsp_server`: what `draftline lsp` does."""

import os
import sys

# Python looks for modules in the working folder first, and editors start a server in the user's
# workspace: a numbers.py there would run in place of Python's own.
if sys.path and sys.path[0] in ("", os.getcwd()):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.realpath(sys.path[0] or os.getcwd()) != os.path.realpath(here):
        del sys.path[0]

from lsp_server.cli import main

if __name__ == "__main__":
    sys.exit(main())
