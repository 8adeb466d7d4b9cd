# SPDX-License-Identifier: GPL-2.0-or-later
"""The queue in which the kernel's packets wait for a host's own port: a token bucket.

It holds what sockets of the host send, and what a guest behind the port sends. A sender whose
packets wait there has to wait, too: a socket by its send buffer, a guest by that of its tap
(kernel_host/machine.py). The soft RNIC's packets do not pass it: native/live/port_pace.hpp.
"""

from __future__ import annotations

import contextlib

from softroce_lab.fabric.net import rtnetlink

_AHEAD_S = 250e-6  # sent at once after a pause
_FRAMES_AHEAD = 2  # at least
_LIMIT_BYTES = 16 << 20  # more than the senders' own buffers admit


def hold(ifindex: int, rate_bps: int | None, frame_bytes: int) -> None:
    """Let the port of the calling thread's namespace send no faster; None: as fast as it can.

    OSError if the kernel has no tbf.
    """
    if rate_bps is None:
        with contextlib.suppress(FileNotFoundError):  # there was none
            rtnetlink.request([rtnetlink.no_qdisc(ifindex)])
        return
    burst = max(int(rate_bps / 8 * _AHEAD_S), _FRAMES_AHEAD * frame_bytes)
    rtnetlink.request([rtnetlink.token_bucket(ifindex, rate_bps, burst, _LIMIT_BYTES)])
