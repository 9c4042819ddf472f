"""``python -m genalpha``: the command line."""

import sys

from genalpha.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
