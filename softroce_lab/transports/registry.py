# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports by name: an entry has the transport's kind, framings, options and knobs.

The entries of the lab's transports over striped messages come from native code. Each is declared
in the file of its class (native/transport/transports.hpp). `rc` and `shift` are declared here.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.transports import knobs
from softroce_lab.transports.defaults import Timing
from softroce_lab.transports.knobs import Knob
from softroce_lab.transports.options import Option, OptionError, Value, validated
from softroce_lab.transports.policy import MessagePolicy
from softroce_lab.transports.runner import LatenessRecorder, PolicyRunner

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint


Codes = Sequence[tuple[int, int]]
"""The erasure codes that messages may have: (data chunks k, parity chunks m)."""


class Kind(enum.Enum):
    """What recovers from losses: the lab's sessions, or the queue pairs of RC."""

    SESSION = "session"  # a session over striped messages (native/transport/session.hpp)
    QUEUE_PAIR = "queue pair"  # an RC queue pair to each peer; no striped messages


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A transport that messages can be sent over."""

    name: str
    kind: Kind
    framing: str = MessagePolicy.framing
    framings: tuple[str, ...] = MessagePolicy.framings
    """The framings that a user may choose."""
    options: tuple[Option, ...] = ()
    policy: type[MessagePolicy] | None = None  # a user's, in Python; None: a transport of the lab
    sends_sacks: bool = False  # its receiver sends SACKs while packets arrive
    path_probes: bool = False  # losses are found by numbers on paths, and by probes
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    """By option: its bit of enum Mechanism, set in `without` if the option is false."""
    codes: Callable[[Mapping[str, Value]], Codes] | None = None
    """The erasure codes that its messages may have with these options. Raises OptionError."""
    knobs: tuple[Knob, ...] = ()
    congestion_control: str = ""
    """The default; empty: what the fabric calls for."""
    schedule: str = "fifo"
    """Which message's packets leave first, unless the user chooses."""
    virtual_only: bool = False  # it needs facts that only the simulated fabric has
    native: str = ""  # the lab's transport whose rules it follows, under another name
    lossless: bool = False  # its fabric has no faults that drop, cut or corrupt packets
    rails: int = 1  # rails of a host that it uses

    @classmethod
    def of(cls, policy: type[MessagePolicy]) -> Entry:
        """The entry of a user's policy, from its class attributes."""
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
        """The entry of a transport of the lab, from its native declaration."""
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
            knobs=_knobs_of(native.has_rto, limits_retries=not native.omniscient),
            congestion_control=native.congestion_control,
            schedule=native.schedule,
            virtual_only=native.omniscient,
        )

    @property
    def striped(self) -> bool:
        """Whether messages are striped over paths, with reports and control messages."""
        return self.kind != Kind.QUEUE_PAIR

    def engine(self, options: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The fields of `MessageConfig` that the transport sets, without framing and `coding`.

        Raises OptionError as `check` does.
        """
        values = validated(self.options, options)
        native = (self.native or self.name) if self.policy is None else "python_policy"
        return {
            # "policy": no session; queue pairs send no striped messages.
            "transport": "policy" if self.kind is Kind.QUEUE_PAIR else native,
            "path_probes": self.path_probes,
            "schedule": self.schedule,
            "without": sum(bit for name, bit in self.parts.items() if not values[name]),
            "options": values if self.policy is None else {},
        }

    def shows_messages(self, framing: str | None = None) -> bool:
        """Whether switches can read message and packet index in its data packets' headers.

        `framing`: None for the transport's default.
        """
        return self.striped and (framing or self.framing) == "ud"

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise OptionError for unknown or wrong options, or options that exclude each other."""
        values = validated(self.options, options)
        if self.codes is not None:
            self.codes(values)
        elif self.policy is not None:
            self.policy.check(values)

    def coding(self, options: Mapping[str, Any], path_mtu: int) -> dict[str, Any]:
        """The fields of `MessageConfig` for erasure-coded messages. Raises OptionError."""
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
        """What runs a user's policy on an endpoint; None: the transport is native.

        Raises OptionError for a bad option.
        """
        if self.policy is None:
            return None
        return PolicyRunner(endpoint, self.policy, timing, options, lateness)


def _knobs_of(has_rto: bool, *, limits_retries: bool = True) -> tuple[Knob, ...]:
    """The knobs of a transport over striped messages."""
    bounded = knobs.OF_PACKETS if limits_retries else ()
    return knobs.STRIPED + bounded + (knobs.OF_SENDERS_TIMER if has_rto else ())


def _option_of(native: _native.TransportOption) -> Option:
    convert = type(native.default)  # all native bounds are floating point
    return Option(
        native.name,
        native.default,
        native.help,
        native.unit,
        least=None if native.least is None else convert(native.least),
        most=None if native.most is None else convert(native.most),
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
    """Packets of the option `chunk`, each as long as the path MTU.

    Raises OptionError if the chunk is not a multiple of the path MTU.
    """
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
_entries["lossless"] = dataclasses.replace(
    _entries["oracle"], name="lossless", native="oracle", lossless=True
)


def transports(kind: Kind | None = None) -> list[str]:
    """The word `all`: every transport that runs on both clocks and needs one rail. Sorted."""
    general = [each for each in _entries.values() if not each.virtual_only and each.rails == 1]
    return sorted(each.name for each in general if kind in (None, each.kind))


def known(kind: Kind | None = None) -> list[str]:
    """All names that a user may choose, sorted: of one kind, or of all."""
    return sorted(name for name, each in _entries.items() if kind in (None, each.kind))


def uses_queue_pairs(name: str | None) -> bool:
    """Whether a transport sends RC packets, whose headers do not name a message."""
    entry = _entries.get(name or "")
    return entry is not None and entry.kind is Kind.QUEUE_PAIR


def find(name: str) -> Entry:
    """The entry of a transport. Raises UserError with the known names."""
    try:
        return _entries[name]
    except KeyError:
        hint = f"known transports: {', '.join(known())}"
        raise UserError(f"unknown transport '{name}'", hint=hint) from None
