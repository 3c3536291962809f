"""The entry point of `python -m lsp_server`, which does what `draftline lsp` does."""

import os
import sys

# Python imports from the working folder first, and editors start the server in the workspace, where
# a numbers.py would replace the standard module.
if sys.path and sys.path[0] in ("", os.getcwd()):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.realpath(sys.path[0] or os.getcwd()) != os.path.realpath(here):
        del sys.path[0]

from lsp_server.cli import main

if __name__ == "__main__":
    sys.exit(main())
