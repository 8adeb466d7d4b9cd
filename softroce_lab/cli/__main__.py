# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the `lab` command begins: an interrupt ends it quietly while it is still being loaded."""

import os
import signal
import sys
import threading


def main() -> None:
    """Entry point of the `lab` command, and of `python -m softroce_lab.cli`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing is begun. After a KeyboardInterrupt inside of a text that is evaluated, as
        # dataclasses do, CPython ends by SIGINT, whatever the exit status.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # ExitCode.INTERRUPTED
    from softroce_lab.cli import app  # it takes a while

    try:
        app.main()
    except SystemExit as leave:
        _leave_threads(leave.code)
        raise
    _leave_threads(0)


def ssh() -> None:
    """Entry point of `lab-ssh`: `lab ssh` as one word, for launchers that take one file."""
    sys.argv.insert(1, "ssh")
    main()


def _leave_threads(code: object) -> None:
    """End now if a policy of the user's left threads: Python would wait for them for ever."""
    others = [each for each in threading.enumerate() if each is not threading.main_thread()]
    if any(not each.daemon for each in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else code is not None)


if __name__ == "__main__":
    main()
