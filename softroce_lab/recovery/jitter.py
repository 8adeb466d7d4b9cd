# SPDX-License-Identifier: GPL-2.0-or-later
"""Intervals that are synchronised with nothing.

What comes round on the way, such as a link that flaps, would meet each of what is repeated at one
interval. So intervals vary once they have backed off: as good as at random, and the same in every
run, for the number of the repetition is all that they follow from. (Multiples of the golden ratio
would spread intervals more evenly; but any few of them in a row have nearly the same sum, which is
an interval to be synchronised with.)
"""

from __future__ import annotations

from softroce_lab._native import mix64

_MOST_DOUBLINGS = 40  # no interval is as long


def share(whole: int, number: int) -> int:
    """A share of the whole, [0, whole), another one for each number; all are equally likely."""
    mixed: int = mix64(number)
    return mixed * whole >> 64


def backed_off(interval_ns: int, doublings: int, most_ns: int) -> int:
    """The interval, doubled so often, to `most_ns`; then between a half of that and the whole.

    None is shorter than the interval. Where `most_ns` leaves little or no room above that, they
    vary between the interval and half as much again. Without a doubling it is the interval itself.
    """
    if doublings <= 0:
        return interval_ns
    doubled_ns = min(interval_ns << min(doublings, _MOST_DOUBLINGS), most_ns)
    whole_ns = max(doubled_ns, interval_ns + interval_ns // 2)
    least_ns = max(whole_ns // 2, interval_ns)
    return least_ns + share(whole_ns - least_ns, doublings)
