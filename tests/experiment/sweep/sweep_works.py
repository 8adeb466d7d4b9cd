# SPDX-License-Identifier: GPL-2.0-or-later
"""What a worker process is told to do instead of a run, to see what becomes of the others."""

import os
import signal
import threading
import time


def current_thread():
    """Another one in a worker than in the one who asks."""
    return str(threading.get_ident())


def blocked_signals(folder):
    """The process, and what it does not hear of, once another one has been asked, too."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, ())


def die_at_three(task):
    """Kill the process that has to do the third task; do the others."""
    if task.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"verdict": "passed", "number": task.number, "pid": os.getpid()}
