# SPDX-License-Identifier: GPL-2.0-or-later
"""`rc` for runs on the real clock whose subject is not its timer.

By default half a second of silence ends a queue pair, and other work may have the processors of a
busy machine for as long. This one bears two seconds.
"""

from softroce_lab.experiment.transports.transport import Transport

TIMEOUT = "268ms"  # eight tries
RC = f"{{name: rc, timeout: {TIMEOUT}, label: rc}}"


def patient(name):
    """What a file has for the transport of this name."""
    return RC if name == "rc" else name


def transport(name, congestion_control=None):
    """The same as a value."""
    knobs = (("timeout", TIMEOUT),) if name == "rc" else ()
    return Transport(name, name, congestion_control, set_knobs=knobs)
