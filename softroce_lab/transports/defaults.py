# SPDX-License-Identifier: GPL-2.0-or-later
"""Every timer, bound and weight of sessions, transports and users' policies, in one place.

All of it is this project's definition. Times are nanoseconds. The defaults are made for an emulator
that shares its cores; `for_rtt` derives the same set for hardware that answers in a round trip,
`on_machine` one for an emulated fabric that is slow itself. tests/transports/test_bounds.py
computes what they bound.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from softroce_lab import _native

if TYPE_CHECKING:
    from softroce_lab._native import MessageConfig

MICROSECOND_NS, MILLISECOND_NS = 1_000, 1_000_000
MACHINE_RTT_NS = 2 * MILLISECOND_NS
"""What an emulator that shares its cores is taken to add to a fabric's round trip."""
BLACKOUT_NS = 1000 * MILLISECOND_NS
"""The longest outage that costs no work request by default."""

_MACHINE_LIFETIME_NS = 1000 * MILLISECOND_NS
"""What an emulator may hold a frame for besides: an engine that gets no time leaves its frames in
the rings of its socket."""

_RTO_LOW_NS, _RTO_HIGH_NS, _RTO_RTT_NS = 100_000, 320_000, 24_000
"""RTO_low, RTO_high and the RTT of the longest path of Mittal et al., SIGCOMM 2018, section 4.1."""

_KEEPALIVE_PROBES = 40
_KEEPALIVE_BACKOFF_MOST = 4
"""`keepalive_interval_most_ns`, in `keepalive_interval_ns`."""
_KEEPALIVES_SPAN = (
    sum(
        _native.backed_off(1 << 20, n, _KEEPALIVE_BACKOFF_MOST << 20)
        for n in range(_KEEPALIVE_PROBES - 1)
    )
    >> 20
)
"""From the first keepalive to the last, in `keepalive_interval_ns`, rounded down."""


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Timers and bounds shared by all striped transports."""

    initial_rtt_ns: int = MACHINE_RTT_NS
    """Stands for the RTT until a report has measured it."""

    t_min_ns: int = 4 * MILLISECOND_NS
    """No interval between loss checks, and no RTO, is shorter. It has to be longer than what the
    machine adds to a round trip: an engine that shares two cores with all others answers up to 4 ms
    late once in a hundred times. With 1 ms `ud_rto` has 3 to 8 % spurious retransmissions."""

    clock_granularity_ns: int = 4 * MILLISECOND_NS
    """G of RFC 6298: no RTO that is measured is shorter than SRTT + this. On an emulator it is what
    the machine adds to a round trip, as of `t_min_ns`; otherwise 1 us."""

    t_max_ns: int = 40 * MILLISECOND_NS
    """No interval between loss checks is longer, but for half as much again once it has backed off;
    also the first pause after NOT_STARTED, which doubles up to `keepalive_interval_ns` where that
    is longer, and the pause after a receiver was not ready."""

    srtt_weight: int = 1
    """a of T = a*SRTT + b*RTTVAR + expected remaining transfer time."""

    rttvar_weight: int = 1
    """b of the same. Small, as a premature NACK costs one small packet and no data: the
    sender knows what is still on its way."""

    lost_rttvar_weight: int = 4
    """A packet is lost that was sent SRTT + this * RTTVAR ago; 4 as in RFC 6298."""

    rto_srtt: int = 3
    """Multiple of SRTT that `ud_rto` waits (the "SR RTO" of arXiv 2505.05366, section 5)."""

    fixed_rto_ns: int | None = None
    """RTO of `ud_rto` and `sdr_sr` before any back-off. None: by SRTT and T_min."""

    rto_rttvar_weight: int | None = None
    """`timeout: measured` makes it 4: the RTO is SRTT + this * RTTVAR (RFC 6298), and no shorter
    than T_max before the RTT has been measured. None: the transport's own RTO."""

    reordering_window_least_ns: int = 50_000
    """A packet may take longer than one sent after it on another path: by RTTVAR / 2, and never
    less than this."""

    sack_interval_least_ns: int = 1 * MILLISECOND_NS
    """`ud_rto`'s receiver sends SACKs a quarter of SRTT apart, not closer than this."""

    ack_delay_most_ns: int = 1 * MILLISECOND_NS
    """Acknowledgements wait a quarter of SRTT for company, at most this long."""

    acks_in_batch: int = 16
    """A batch of this many acknowledgements does not wait."""

    keepalive_interval_ns: int = 10 * MILLISECOND_NS
    """Silence of a peer, with work outstanding, after which a keepalive is sent to it."""

    keepalive_interval_most_ns: int = _KEEPALIVE_BACKOFF_MOST * 10 * MILLISECOND_NS
    """From one keepalive to the next; they begin `keepalive_interval_ns` apart, and the distance
    doubles, and varies between a half of that and all of it."""

    keepalive_probes: int = _KEEPALIVE_PROBES
    """Unanswered keepalives in a row after which the peer is dead: IBV_WC_RETRY_EXC_ERR."""

    eager_rounds: int = 3
    """Loss checks (or timeouts) in a row without progress; then the interval doubles, to T_max."""

    most_attempts: int = 200
    """Sends of one packet after which its message fails, although the peer responds."""

    rnr_retry: int = 7
    """Receiver-not-ready answers taken; 7 is without end, as in verbs (IBA 9.7.5.2.8)."""

    def backed_off_ns(self, interval_ns: int, timeouts: int) -> int:
        """The interval after so many timeouts in a row without progress: doubled, to T_max."""
        backed: int = _native.backed_off(interval_ns, timeouts - self.eager_rounds, self.t_max_ns)
        return backed

    def apply(self, config: MessageConfig) -> None:
        """Set these in an engine's configuration, where 0 stands for None."""
        values = dataclasses.asdict(self)
        del values["initial_rtt_ns"]  # the engine's own, too: `EngineTiming`
        for name, value in values.items():
            setattr(config.timing, name, value or 0)

    @classmethod
    def for_rtt(cls, base_rtt_ns: int, *, blackout_ns: int = BLACKOUT_NS) -> Timing:
        """What suits hosts that answer at once, on a fabric of this base RTT.

        The base RTT is that of an unloaded fabric: propagation, serialisation, switches, hosts.
        `blackout_ns` is the longest outage that is to cost no work request; a peer is given up
        after 1.06 times that, but not before 237 base RTTs, of silence. Raises ValueError unless
        both are positive.
        """
        if base_rtt_ns <= 0 or blackout_ns <= 0:
            raise ValueError("a base RTT and a blackout are longer than 0 ns")
        t_max_ns = max(min(64 * base_rtt_ns, 40 * MILLISECOND_NS), 4 * base_rtt_ns)
        keepalive_interval_ns = max(
            -(-(blackout_ns + base_rtt_ns) // _KEEPALIVES_SPAN), 2 * base_rtt_ns
        )
        return cls(
            initial_rtt_ns=base_rtt_ns,
            t_min_ns=base_rtt_ns,
            clock_granularity_ns=MICROSECOND_NS,
            t_max_ns=t_max_ns,
            reordering_window_least_ns=base_rtt_ns,
            sack_interval_least_ns=max(base_rtt_ns // 4, 1),
            ack_delay_most_ns=max(base_rtt_ns // 2, 1),
            keepalive_interval_ns=keepalive_interval_ns,
            keepalive_interval_most_ns=_KEEPALIVE_BACKOFF_MOST * keepalive_interval_ns,
        )

    @classmethod
    def on_machine(cls, fabric_rtt_ns: int) -> Timing:
        """What suits an emulator, on a fabric with this base RTT of its own.

        Every time is the longer one of the emulator's and of the fabric's; the first RTT is their
        sum. Raises ValueError unless the base RTT is positive.
        """
        return _longer(cls(), cls.for_rtt(fabric_rtt_ns))


@dataclasses.dataclass(frozen=True, slots=True)
class EngineTiming:
    """What the native engine gets of time; the fields are those of `MessageConfig`."""

    initial_rtt_ns: int = MACHINE_RTT_NS
    """Stands for the RTT until a report has measured it."""

    report_least_interval_ns: int = 100_000
    """Reports come a quarter of SRTT apart, not closer than this (or every 64 packets)."""

    persist_least_ns: int = 20 * MILLISECOND_NS
    """A closed window that no report opens is opened after 4 SRTT, not sooner than this."""

    packet_lifetime_ns: int = _MACHINE_LIFETIME_NS
    """The longest that a packet is on its way: no name of a message is used again within it."""

    rto_low_ns: int = MACHINE_RTT_NS * _RTO_LOW_NS // _RTO_RTT_NS
    """`irn`'s timer with at most three packets of a message in flight."""

    rto_high_ns: int = MACHINE_RTT_NS * _RTO_HIGH_NS // _RTO_RTT_NS
    """`irn`'s timer with more; `irn` and `srnic` back off from it."""

    @classmethod
    def for_rtt(cls, base_rtt_ns: int, buffer_ns: int = 0, lifetime_ns: int = 0) -> EngineTiming:
        """What suits hosts that answer at once; ValueError unless the RTT is positive.

        `lifetime_ns`: the longest that a packet is in the fabric. The base RTT is added for what
        its hosts take.

        `buffer_ns`: as `rto_high_ns` takes it. The paper of IRN does not derive RTO_low: its share
        of the base RTT, but never above RTO_high.
        """
        if base_rtt_ns <= 0:
            raise ValueError("a base RTT is longer than 0 ns")
        high_ns = rto_high_ns(base_rtt_ns, buffer_ns)
        return cls(
            rto_low_ns=min(base_rtt_ns * _RTO_LOW_NS // _RTO_RTT_NS, high_ns),
            rto_high_ns=high_ns,
            initial_rtt_ns=base_rtt_ns,
            report_least_interval_ns=max(base_rtt_ns // 4, 1),
            persist_least_ns=4 * base_rtt_ns,
            packet_lifetime_ns=lifetime_ns + base_rtt_ns,
        )

    @classmethod
    def on_machine(
        cls, fabric_rtt_ns: int, buffer_ns: int = 0, lifetime_ns: int = 0
    ) -> EngineTiming:
        """What suits an emulator, as `Timing.on_machine`; RTOs and lifetime are sums, too."""
        machine, fabric = cls(), cls.for_rtt(fabric_rtt_ns, buffer_ns, lifetime_ns)
        return dataclasses.replace(
            _longer(machine, fabric),
            rto_low_ns=machine.rto_low_ns + fabric.rto_low_ns,
            rto_high_ns=machine.rto_high_ns + fabric.rto_high_ns,
            packet_lifetime_ns=machine.packet_lifetime_ns + fabric.packet_lifetime_ns,
        )


def rto_high_ns(base_rtt_ns: int, buffer_ns: int) -> int:
    """The round trip through a congested link whose buffer is full.

    Mittal et al., SIGCOMM 2018, section 4.1: RTO_high of IRN, and the timeout of RoCE.
    `buffer_ns`: the longest that a full queue takes to drain. 0: no queue has a bound, so the paper
    has no rule, and this is four base RTTs.
    """
    return base_rtt_ns + buffer_ns if buffer_ns else 4 * base_rtt_ns


def document(timing: Timing, engine: EngineTiming) -> dict[str, int]:
    """Both for a manifest, without what is not set; what stands in both is the policies'."""
    values = {**dataclasses.asdict(engine), **dataclasses.asdict(timing)}
    return {name: value for name, value in values.items() if value is not None}


_AnyTiming = TypeVar("_AnyTiming", Timing, EngineTiming)


def _longer(machine: _AnyTiming, fabric: _AnyTiming) -> _AnyTiming:
    names = [field.name for field in dataclasses.fields(machine) if field.name.endswith("_ns")]
    given = [name for name in names if getattr(machine, name) is not None]
    times = {name: max(getattr(machine, name), getattr(fabric, name)) for name in given}
    times["initial_rtt_ns"] = machine.initial_rtt_ns + fabric.initial_rtt_ns
    return dataclasses.replace(machine, **times)


DEFAULT_TIMING = Timing()
