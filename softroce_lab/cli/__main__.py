# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the `lab` command begins: an interrupt ends it quietly while it is still being loaded."""

import sys


def main() -> None:
    """Entry point of the `lab` command, and of `python -m softroce_lab.cli`."""
    try:
        from softroce_lab.cli import app  # it takes a while
    except KeyboardInterrupt:
        sys.exit(130)  # ExitCode.INTERRUPTED
    app.main()


if __name__ == "__main__":
    main()
