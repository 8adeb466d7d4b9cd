# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports by name. Each entry describes itself: how it recovers, its framing, its options.

Those that are sessions over striped messages are declared natively, each in the file of its class
(native/transport/transports.hpp).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.recovery import knobs
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.knobs import Knob
from softroce_lab.recovery.options import Option, OptionError, Value, validated
from softroce_lab.recovery.policy import MessagePolicy
from softroce_lab.recovery.runner import LatenessRecorder, PolicyRunner

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint


Codes = Sequence[tuple[int, int]]
"""(k, m) of the erasure codes that messages may have."""


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
    codes: Callable[[Mapping[str, Value]], Codes] | None = None
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
            knobs=_knobs_of(policy.has_rto),
        )

    @classmethod
    def declared(cls, native: _native.Transport) -> Entry:
        """The entry of a transport of the lab, by what its native file says."""
        return cls(
            native.name,
            Kind.SESSION,
            native.framings[0],
            tuple(native.framings),
            tuple(map(_option_of, native.options)),
            sends_sacks=native.sends_sacks,
            path_probes=native.path_probes,
            parts={each.name: each.part for each in native.options if each.part},
            codes=_codes_of(native) if native.has_codes else None,
            knobs=_knobs_of(native.has_rto, gives_up=not native.omniscient),
            virtual_only=native.omniscient,
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
            codes, packets = self.codes(values), _chunk_packets(values, path_mtu)
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


def _knobs_of(has_rto: bool, *, gives_up: bool = True) -> tuple[Knob, ...]:
    """What the engine and the session do for each, and the timer that some have."""
    of_packets = knobs.OF_PACKETS if gives_up else ()
    return knobs.STRIPED + of_packets + (knobs.OF_SENDERS_TIMER if has_rto else ())


def _option_of(native: _native.TransportOption) -> Option:
    like = type(native.default)  # natively all bounds are floating point
    return Option(
        native.name,
        native.default,
        native.help,
        native.unit,
        least=None if native.least is None else like(native.least),
        most=None if native.most is None else like(native.most),
        choices=tuple(native.choices),
    )


def _codes_of(native: _native.Transport) -> Callable[[Mapping[str, Value]], Codes]:
    def codes(values: Mapping[str, Value]) -> Codes:
        try:
            return [(k, m) for k, m in native.codes(dict(values))]
        except ValueError as error:
            option, what, hint = error.args
            raise OptionError(option, what, hint=hint) from None

    return codes


def _chunk_packets(values: Mapping[str, Value], path_mtu: int) -> int:
    """Packets of a chunk, one for each path MTU in it; OptionError if that is no whole number."""
    chunk = int(values["chunk"])
    if chunk % path_mtu:
        below = chunk - chunk % path_mtu or path_mtu
        what = f"option 'chunk': {chunk} bytes are no multiple of the path MTU, {path_mtu} bytes"
        raise OptionError("chunk", what, hint=f"for example {below} bytes")
    return chunk // path_mtu


_QUEUE_PAIRS = (
    Entry("rc", Kind.QUEUE_PAIR, knobs=knobs.RC),
    Entry("shift", Kind.QUEUE_PAIR, knobs=knobs.RC, rails=2),
)
_entries = {
    entry.name: entry for entry in (*_QUEUE_PAIRS, *map(Entry.declared, _native.transports()))
}


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
