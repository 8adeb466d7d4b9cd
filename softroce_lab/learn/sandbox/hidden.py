# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies in the place of each of the lab's own transports where submissions run: no answers.

Names of theirs can be imported, since the registry of transports does; they do nothing.
"""

from softroce_lab.recovery.policy import MessagePolicy


def __getattr__(name: str) -> type[MessagePolicy]:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (MessagePolicy,), {"name": f"hidden_{name}"})
