"""`python -m cruise`: the same as the `cruise` command."""

import sys

from cruise.cli import main

if __name__ == "__main__":
    sys.exit(main())
