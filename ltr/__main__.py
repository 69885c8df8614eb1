"""`python -m ltr` is the command `ltr`, for an environment whose scripts are not in the path."""

import sys

from ltr.cli import main

if __name__ == "__main__":
    sys.exit(main())
