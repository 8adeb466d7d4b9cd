# SPDX-License-Identifier: GPL-2.0-or-later
"""What a worker process is told to do instead of a run, to see what becomes of the others."""

import os
import signal
import threading
import time


def current_thread():
    """Another one in a worker than in the one who asks."""
    return str(threading.get_ident())


def blocked_signals(wait_s):
    """The process, and what it does not hear of; slowly, so that another one is asked, too."""
    time.sleep(wait_s)
    return os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, ())


def die_at_three(task):
    """Kill the process that has to do the third task; do the others."""
    if task.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"verdict": "passed", "number": task.number, "pid": os.getpid()}
