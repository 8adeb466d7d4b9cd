# SPDX-License-Identifier: GPL-2.0-or-later
"""Every timer, bound and weight of the recovery policies, in one place.

All of it is this project's definition (docs/protocols.md says what the literature states). Times
are nanoseconds. The bounds are derived in docs/retry-bounds.md.
"""

from __future__ import annotations

import dataclasses

MILLISECOND_NS = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Timers and bounds shared by the datagram policies."""

    initial_rtt_ns: int = 2 * MILLISECOND_NS
    """Stands for the RTT until a report has measured it."""

    t_min_ns: int = 4 * MILLISECOND_NS
    """No look, and no retransmission timer, is shorter. It has to be longer than what the machine
    adds to a round trip: an engine that shares two cores with all others answers up to 4 ms late
    once in a hundred times. With 1 ms `ud_rto` sends 3 to 8 % of all packets in vain."""

    t_max_ns: int = 40 * MILLISECOND_NS
    """No look is longer; also the pause after NOT_STARTED and after a receiver was not ready."""

    first_look_ns: int = 20 * MILLISECOND_NS
    """From the post of the oldest receive without any packet to the first look at it."""

    srtt_weight: int = 1
    """a of T = a*SRTT + b*RTTVAR + expected remaining transfer time."""

    rttvar_weight: int = 1
    """b of the same. Small, as a look that comes too early costs one small packet and no data: the
    sender knows what is still on its way."""

    lost_rttvar_weight: int = 4
    """A packet is lost that was sent SRTT + this * RTTVAR ago; 4 as in RFC 6298."""

    rto_srtt: int = 3
    """Multiple of SRTT that `ud_rto` waits (the "SR RTO" of arXiv 2505.05366, section 5)."""

    tell_least_ns: int = 1 * MILLISECOND_NS
    """`ud_rto`'s receiver tells its bitmaps a quarter of SRTT apart, not closer than this."""

    ack_delay_most_ns: int = 1 * MILLISECOND_NS
    """Acknowledgements wait a quarter of SRTT for company, at most this long."""

    acks_in_batch: int = 16
    """A batch of this many acknowledgements does not wait."""

    alive_ns: int = 10 * MILLISECOND_NS
    """Silence of a peer, with work outstanding, after which it is asked for a sign of life."""

    alive_most_ns: int = 30 * MILLISECOND_NS
    """From one question to the next; they begin `alive_ns` apart, and the distance doubles."""

    fruitless_rounds: int = 40
    """Unanswered questions in a row after which the peer is dead: IBV_WC_RETRY_EXC_ERR."""

    eager_rounds: int = 3
    """Looks (or timeouts) in a row that may bring nothing; then the interval doubles, to T_max."""

    most_attempts: int = 200
    """Sends of one packet after which its message fails, although the peer is alive."""

    rnr_retry: int = 7
    """Receiver-not-ready answers taken; 7 is without end, as in verbs (IBA 9.7.5.2.8)."""


DEFAULT_TIMING = Timing()
