"""The `stalloc` command, as installed with the package."""

import os
import sys


def main() -> None:
    """Become the command."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin", "stalloc")
    if not os.path.exists(program):
        sys.exit("stalloc: this installation has no command; install the package with `pip install .`")
    os.execv(program, ["stalloc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
