# SPDX-License-Identifier: GPL-2.0-or-later
"""Text of a policy file that delivers, for tests that need one of a user's."""

from softroce_lab.paths import PROJECT_ROOT

SACK_TIMER = (PROJECT_ROOT / "examples" / "transports" / "sack_timer.py").read_text()


def named(name, body="    pass\n"):
    """The tutorial's sender-driven policy as a class of this name."""
    return f"{SACK_TIMER}\n\nclass {name}(SackTimer):\n{body}"
