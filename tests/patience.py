# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs on the real clock need where others have the processors of a machine for a while.

By default half a second of silence ends a queue pair of `rc`. Where its timer is not the subject of
a test, this one bears two seconds.
"""

from softroce_lab.experiment.transports.transport import Transport

TIMEOUT = "268ms"  # eight tries
ATTEMPTS = 3
RC = f"{{name: rc, timeout: {TIMEOUT}, label: rc}}"


def patient(name):
    """What a file has for the transport of this name."""
    return RC if name == "rc" else name


def transport(name, congestion_control=None):
    """The same as a value."""
    knobs = (("timeout", TIMEOUT),) if name == "rc" else ()
    return Transport(name, name, congestion_control, set_knobs=knobs)


def undisturbed(run, disturbed, attempts=ATTEMPTS):
    """What `run()` gives; again while `disturbed` of it says that the machine was busy."""
    for _ in range(attempts):
        found = run()
        if not disturbed(found):
            break
    return found


def emulator_drops(run):
    """Frames that the emulator lost in a run, as it does on a busy machine."""
    return sum(link["emulator_drops"] for link in run.links)
