"""`python -m ui.cli`: the `draftline` command."""

import sys

from ui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
