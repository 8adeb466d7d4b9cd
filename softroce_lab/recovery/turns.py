# SPDX-License-Identifier: GPL-2.0-or-later
"""Repetitions that keep step with nothing.

What comes round on the way, an outage or the loss of each nth packet, would meet a repetition in
the same order, or after the same interval, each time. Turns of the golden ratio (Knuth, TAOCP
volume 3, 6.4) go everywhere, and are the same in every run: nothing is drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN_RATIO_32 = 0x9E3779B9  # 2**32 / 1.618
_MOST_DOUBLINGS = 32  # no interval is as long


def share(whole: int, number: int) -> int:
    """A share of the whole, [0, whole), another one for each number; none of it for 0."""
    return (number * _GOLDEN_RATIO_32 % (1 << 32)) * whole >> 32


def in_turn(packets: npt.NDArray[np.uint32], resends: int) -> npt.NDArray[np.uint32]:
    """The same packets, begun elsewhere with each resend, and in the end at each of them.

    If they went out in the same order each time, a queue shorter than they are would drop the last
    of them each time, and what loses each nth packet of a link the same ones.
    """
    return np.roll(packets, -share(len(packets), resends))


def backed_off(interval_ns: int, doublings: int, most_ns: int) -> int:
    """The interval, doubled so often, to `most_ns`; then between a half of that and the whole.

    But for the first, which is the interval itself, as none is shorter. At its most an interval
    would else be the same each time, and an outage that comes round in it would meet every one.
    """
    whole_ns = max(min(interval_ns << min(doublings, _MOST_DOUBLINGS), most_ns), interval_ns)
    least_ns = max(whole_ns // 2, interval_ns)
    return least_ns + share(whole_ns - least_ns, doublings)
