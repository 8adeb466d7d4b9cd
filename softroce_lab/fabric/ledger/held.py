# SPDX-License-Identifier: GPL-2.0-or-later
"""Start of a process that the ledger owns: wait for the go byte, then exec.

Run as a script, `held.py GO_FD NETNS_FD TOKEN -- ARGV...`, by `process.spawn` only. The
starter writes one byte to the pipe behind GO_FD once the ledger records this process; if it dies
before, the pipe ends and so does this process, having done nothing. NETNS_FD is the namespace to
work in, or -1. TOKEN is there to be seen in a process listing. The standard library only: it
starts in milliseconds with `python -I -S`.
"""

import ctypes
import os
import signal
import sys

CLONE_NEWNET = 0x40000000
NOT_FOUND = 127  # as in a shell


def hold(arguments: list[str]) -> int:
    """Wait for the byte and become the program; returns the exit status if that fails."""
    go_fd, netns_fd = int(arguments[0]), int(arguments[1])
    command = arguments[4:]
    if os.read(go_fd, 1) != b"g":
        return 0
    os.close(go_fd)
    if netns_fd >= 0:
        if ctypes.CDLL(None).setns(netns_fd, CLONE_NEWNET) != 0:
            return 1
        os.close(netns_fd)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
    return NOT_FOUND


if __name__ == "__main__":
    sys.exit(hold(sys.argv[1:]))
