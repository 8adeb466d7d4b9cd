# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports by name. Each entry describes itself: how it recovers, its framing, its options."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from softroce_lab.errors import UserError
from softroce_lab.recovery import csa_ud, knobs, sdr
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.knobs import Knob
from softroce_lab.recovery.options import Option, Value, validated
from softroce_lab.recovery.policy import MessagePolicy
from softroce_lab.recovery.runner import LatenessRecorder, PolicyRunner

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint


class Kind(enum.Enum):
    """What recovers from losses."""

    SESSION = "session"  # a session over striped messages (native/transport/session.hpp)
    QUEUE_PAIR = "queue pair"  # a queue pair of the verbs to each peer; no striped messages


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A transport that messages can be sent over."""

    name: str
    kind: Kind
    framing: str = MessagePolicy.framing
    framings: tuple[str, ...] = MessagePolicy.framings
    """Those that the transport works over, if it has any to choose."""
    options: tuple[Option, ...] = ()
    policy: type[MessagePolicy] | None = None  # a user's, in Python
    sends_sacks: bool = False  # while packets arrive
    path_probes: bool = False  # losses are found by numbers on paths
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    """Options that switch off a part of the engine: bits of enum Mechanism."""
    codes: Callable[[Mapping[str, Value]], sdr.Codes] | None = None
    """Erasure codes that its messages may have, by its options; OptionError if there is none."""
    knobs: tuple[Knob, ...] = ()
    virtual_only: bool = False  # it needs what only the simulated fabric knows
    rails: int = 1  # of each host, that it uses

    @classmethod
    def of(cls, policy: type[MessagePolicy]) -> Entry:
        """The entry of a policy, by its class attributes."""
        return cls(
            policy.name,
            Kind.SESSION,
            policy.framing,
            policy.framings,
            policy.options,
            policy,
            knobs=_knobs_of(policy),
        )

    @property
    def striped(self) -> bool:
        """Whether messages are striped over paths, with reports and control messages."""
        return self.kind != Kind.QUEUE_PAIR

    def engine(self, options: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The fields of `MessageConfig` that the transport needs with these options.

        But for the framing and `coding`. OptionError, as `check`.
        """
        values = validated(self.options, options)
        native = "policy" if self.kind is Kind.QUEUE_PAIR else self.name
        return {
            "transport": native if self.policy is None else "python_policy",
            "path_probes": self.path_probes,
            "without": sum(bit for name, bit in self.parts.items() if not values[name]),
            "options": values if self.policy is None else {},
        }

    def shows_messages(self, framing: str | None = None) -> bool:
        """Whether switches can read message and packet index in its data packets' headers.

        `framing`: of its data packets, None for the transport's own.
        """
        return self.striped and (framing or self.framing) == "ud"

    def check(self, options: Mapping[str, Any]) -> None:
        """OptionError for options that the transport does not take, or that exclude each other."""
        values = validated(self.options, options)
        if self.codes is not None:
            self.codes(values)
        elif self.policy is not None:
            self.policy.check(values)

    def coding(self, options: Mapping[str, Any], path_mtu: int) -> dict[str, Any]:
        """The fields of `MessageConfig` for erasure-coded messages; OptionError, as `check`."""
        self.check(options)
        values = validated(self.options, options)
        if self.codes is not None:
            codes, packets = self.codes(values), sdr.chunk_packets(values, path_mtu)
        elif self.policy is not None:
            codes = self.policy.codes(values)
            packets = self.policy.code_chunk_packets(values, path_mtu) if codes else 0
        else:
            codes, packets = (), 0
        return {"code_chunk_packets": packets, "codes": list(codes)} if codes else {}

    def runner(
        self,
        endpoint: Endpoint,
        timing: Timing,
        options: Mapping[str, Any],
        lateness: LatenessRecorder | None = None,
    ) -> PolicyRunner | None:
        """What runs its policy on an endpoint; None: it has none. OptionError for a bad option."""
        if self.policy is None:
            return None
        return PolicyRunner(endpoint, self.policy, timing, options, lateness)


def _knobs_of(policy: type[MessagePolicy]) -> tuple[Knob, ...]:
    """What the engine and the session do for any policy, and the timer that some have."""
    of_timer = knobs.OF_SENDERS_TIMER if policy.has_rto else ()
    return knobs.STRIPED + knobs.OF_PACKETS + of_timer


_entries: dict[str, Entry] = {}


_AnyPolicy = TypeVar("_AnyPolicy", bound=type[MessagePolicy])


def register(policy: _AnyPolicy) -> _AnyPolicy:
    """Make a policy known by its `name`; usable as a class decorator.

    Raises ValueError when the name is empty or taken.
    """
    _add(Entry.of(policy))
    return policy


def _add(entry: Entry) -> None:
    if not entry.name or entry.name in _entries:
        raise ValueError(f"a transport needs a name of its own, not {entry.name!r}")
    _entries[entry.name] = entry


def transports(kind: Kind | None = None) -> list[str]:
    """Those of both clocks and of any topology, sorted: `all`, and what runs by default."""
    usual = [each for each in _entries.values() if not each.virtual_only and each.rails == 1]
    return sorted(each.name for each in usual if kind in (None, each.kind))


def known(kind: Kind | None = None) -> list[str]:
    """The names that a user may choose, sorted; of one kind, or all."""
    return sorted(name for name, each in _entries.items() if kind in (None, each.kind))


def uses_queue_pairs(name: str | None) -> bool:
    """Whether a transport's packets are those of reliable connections, which name no message."""
    entry = _entries.get(name or "")
    return entry is not None and entry.kind is Kind.QUEUE_PAIR


def find(name: str) -> Entry:
    """The transport called `name`; UserError that lists the known ones if there is none."""
    try:
        return _entries[name]
    except KeyError:
        hint = f"known transports: {', '.join(known())}"
        raise UserError(f"unknown transport '{name}'", hint=hint) from None


_SENDERS_TIMER = knobs.STRIPED + knobs.OF_PACKETS + knobs.OF_SENDERS_TIMER

_add(Entry("rc", Kind.QUEUE_PAIR, knobs=knobs.RC))
_add(Entry("shift", Kind.QUEUE_PAIR, knobs=knobs.RC, rails=2))
_add(Entry("irn", Kind.SESSION, framings=("ud",), knobs=_SENDERS_TIMER))
_add(Entry("srnic", Kind.SESSION, framings=("ud",), knobs=_SENDERS_TIMER))
_add(Entry("oracle", Kind.SESSION, framings=("ud",), knobs=knobs.STRIPED, virtual_only=True))
_add(
    Entry(
        "csa_ud",
        Kind.SESSION,
        options=csa_ud.OPTIONS,
        knobs=knobs.STRIPED + knobs.OF_PACKETS,
        path_probes=True,
        parts=csa_ud.PARTS,
    )
)
_add(
    Entry(
        "sdr_auto",
        Kind.SESSION,
        framings=("ud",),  # a message's code is known by its number of packets
        options=sdr.AUTO_OPTIONS,
        codes=sdr.auto_codes,
        knobs=_SENDERS_TIMER,
        sends_sacks=True,
    )
)
_add(
    Entry(
        "sdr_ec",
        Kind.SESSION,
        "uc_immediate",
        options=sdr.EC_OPTIONS,
        codes=sdr.ec_codes,
        knobs=_SENDERS_TIMER,
        sends_sacks=True,
    )
)
_add(Entry("sdr_sr", Kind.SESSION, "uc_immediate", knobs=_SENDERS_TIMER, sends_sacks=True))
_add(Entry("sdr_sr_nack", Kind.SESSION, "uc_immediate", knobs=_SENDERS_TIMER, sends_sacks=True))
_add(Entry("ud_rto", Kind.SESSION, knobs=_SENDERS_TIMER, sends_sacks=True))
