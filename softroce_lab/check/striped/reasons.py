# SPDX-License-Identifier: GPL-2.0-or-later
"""What permits a retransmission of the transports whose receivers answer packets (BY_FEEDBACK)."""

from __future__ import annotations

import dataclasses

import numpy as np

from softroce_lab.check.striped.acknowledgements import Acknowledgements
from softroce_lab.check.striped.controls import (
    BY_TIME,
    DCP,
    FALCON,
    IRN,
    MRC,
    NDP,
    UCCL,
    UET_ROD,
    UET_RUD,
)
from softroce_lab.check.striped.losses import Understood
from softroce_lab.check.striped.messages import Stream, Striped
from softroce_lab.transports.defaults import MILLISECOND_NS

_FALCON_FIRST_NS = 2 * MILLISECOND_NS  # its first timeout, backed off: at most 1.5 ms
_NDP_FIRST_NS = 20 * MILLISECOND_NS
_LEAST = {
    DCP: ("restart_timeout", 8 * MILLISECOND_NS),
    NDP: ("least_timeout", 5 * MILLISECOND_NS),
}
"""The options and their defaults."""
_UET_LONGEST_NS = 80 * MILLISECOND_NS
_LONGEST_NS = 40 * MILLISECOND_NS  # SelectiveRepeat::kLongestWait
_LEAST_SPACING = 0.5  # SRTTs of the header: `uccl` decided by an SRTT before


@dataclasses.dataclass(frozen=True, slots=True)
class Timers:
    """Of a stream, ns (docs/explanation/transports.md)."""

    least_ns: int  # no timer is shorter
    longest_ns: int  # nor any wait longer

    @classmethod
    def of(cls, transport: str, view: Striped) -> Timers:
        """RTO_low and RTO_high, SRNIC's 10 base RTTs, or the timeout that a user set for all.

        Of `dcp`, until a message starts again; of `ndp`, until a packet leaves without a pull.

        Those of BY_TIME follow the measured RTT: no capture shows how short they may be.
        """
        if transport in _LEAST:
            least_ns = view.least_timeout_ns(*_LEAST[transport])
            first_ns = _NDP_FIRST_NS if transport == NDP else least_ns
            return cls(least_ns, 2 * max(least_ns, first_ns, view.timing.t_max_ns))
        if transport in BY_TIME:
            first_ns = _FALCON_FIRST_NS if transport == FALCON else view.irn_rto_ns[1]
            if transport in (UET_RUD, UET_ROD):
                first_ns = max(_UET_LONGEST_NS, 16 * (view.timing.fixed_rto_ns or 0))
            return cls(0, max(first_ns, 2 * view.timing.t_max_ns))
        fixed_ns = view.timing.fixed_rto_ns
        low_ns, high_ns = (fixed_ns, fixed_ns) if fixed_ns else view.irn_rto_ns
        least_ns = low_ns if transport == IRN else fixed_ns or 10 * view.timing.initial_rtt_ns
        return cls(least_ns - view.late_ns, max(high_ns, min(16 * high_ns, _LONGEST_NS)))


def counts_psns(lab: Understood, stream: Stream) -> bool:
    """Whether the PSNs of the connection decide what may be retransmitted."""
    transport = lab.controls.transports[stream.number]
    return transport in (MRC, UCCL) or (
        transport == UET_RUD and bool(lab.view.options.get("sleek"))
    )


def why_not(lab: Understood, number: int, *, strict: bool) -> str | None:
    """What forbids this retransmission; None: a rule of the transport may permit it.

    `strict`: the timers are known, for the capture lies in its run directory.
    """
    view = lab.view
    one = view.transmissions[number]
    acks = lab.acknowledgements(int(one["message"]))
    if acks.heeded_ns(int(one["index"])) < view.time_ns(int(one["at"])) - acks.way_ns:
        return "a report that it had arrived had reached its sender"
    if not strict:
        return None
    transport = lab.controls.transports[view.stream(one).number]
    before_ns = int(view.time_ns(int(view.transmissions["at"][number - 1])))
    if transport in (UET_RUD, UET_ROD):
        return _of_uet(lab, number, before_ns, goes_back=transport == UET_ROD)
    if transport in _LEAST:
        return _of_trimming(view, acks, one, before_ns, transport)
    if transport == MRC:
        return _of_mrc(lab, number, before_ns)
    if transport == UCCL:
        return _of_uccl(lab, number, before_ns)
    return None if transport in BY_TIME else _of_gaps(view, acks, one, before_ns, transport)


def _of_gaps(
    view: Striped, acks: Acknowledgements, one: np.void, before_ns: int, transport: str
) -> str | None:
    """None: `irn` or `srnic` saw a gap, or its timer ran out."""
    at = int(one["at"])
    least_ns = Timers.of(transport, view).least_ns
    if acks.gap(int(one["index"]), at):
        return None
    if acks.may_have_run_out(before_ns, int(view.time_ns(at)), least_ns):
        return None
    return "no packet behind it was known to have arrived, and no timer ran out"


def _of_trimming(
    view: Striped, acks: Acknowledgements, one: np.void, before_ns: int, transport: str
) -> str | None:
    """None: the packet was reported as trimmed. Or the message of `dcp` started again, or the
    packet's timer of `ndp` ran out.
    """
    packet, at = int(one["index"]), int(one["at"])
    now_ns = int(view.time_ns(at))
    least_ns = Timers.of(transport, view).least_ns
    if acks.wants(packet, packet, before_ns, at):
        return None
    if transport == NDP and now_ns - before_ns >= least_ns:
        return None
    if transport == DCP and acks.may_have_restarted(before_ns, now_ns, least_ns):
        return None
    return "no report that it was trimmed had come, and no timer ran out"


def _of_uet(lab: Understood, number: int, before_ns: int, *, goes_back: bool) -> str | None:
    """The same of `uet_rud` and `uet_rod`, whose senders act on NACKs and timers."""
    view = lab.view
    if not view.options or view.timing.rto_rttvar_weight:
        return None
    one = view.transmissions[number]
    if view.options.get("sleek"):
        return lab.sleek(view.stream(one).number).why_not.get(number)
    acks = lab.acknowledgements(int(one["message"]))
    packet, at = int(one["index"]), int(one["at"])
    first, since_ns = packet, before_ns
    if goes_back:  # to a packet before it, which was sent at any time
        first, since_ns = 0, before_ns - acks.way_ns
        before_ns = int(acks.sent_ns.min())
    asked = acks.wants(first, packet, since_ns, at)
    if asked or view.time_ns(at) - before_ns >= view.uet_rto_ns:
        return None
    return "no NACK asked for it, and no timer ran out"


def _of_uccl(lab: Understood, number: int, before_ns: int) -> str | None:
    """None: enough duplicate acknowledgements had come, or the connection's timer ended.

    Either retransmits all missing packets with a packet behind them that arrived, or the oldest.
    """
    view = lab.view
    one = view.transmissions[number]
    connection = lab.connection(view.stream(one).number)
    psn, now_ns = connection.psn_of(one), int(view.time_ns(int(one["at"])))
    is_base = psn <= connection.base(now_ns)
    if not is_base and not np.any(connection.reported_ns[psn + 1 :] <= now_ns):
        return "it was not the oldest packet, and none behind it was known to have arrived"
    # The sender decided it at any time since the packet was sent before.
    if connection.was_base_ns(before_ns, now_ns) >= view.uccl_rto_ns:
        return None
    needed = int(view.options.get("duplicates", 32))
    least, most = connection.duplicates(before_ns, now_ns)
    if not np.any(most >= needed):
        return f"fewer than {needed} duplicate acknowledgements had come, and no timer ran out"
    if not view.options.get("spaced", True) or np.any((least <= needed) & (most >= needed)):
        return None
    srtt_ns = int(view.column("lab_srtt_ns", view.data[view.begins[[number]]])[0])
    if now_ns - before_ns >= _LEAST_SPACING * srtt_ns - view.late_ns:
        return None
    return "it had been sent less than an SRTT ago, and no timer ran out"


def _of_mrc(lab: Understood, number: int, before_ns: int) -> str | None:
    """None: a packet far enough behind it had arrived, it was trimmed, or its timer ended.

    Packets of all messages to the peer count.
    """
    view = lab.view
    one = view.transmissions[number]
    stream, packet, at = view.stream(one).number, int(one["index"]), int(one["at"])
    now_ns = int(view.time_ns(at))
    connection = lab.connection(stream)
    behind_ns = connection.reported_ns[connection.psn_of(one) + view.mrc_distance :]
    if (
        np.any(behind_ns <= now_ns)
        or connection.acks[int(one["message"])].wants(packet, packet, before_ns, at)
        or now_ns - before_ns >= view.mrc_timeout_ns(stream)
    ):
        return None
    return "none far enough behind it had arrived, it was not trimmed, and its timer had not ended"
