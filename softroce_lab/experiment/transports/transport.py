# SPDX-License-Identifier: GPL-2.0-or-later
"""A transport as an experiment has it: which one, with which options, and what tables call it.

It is a value, which every process of a run gets. A built-in transport is known by its name, a
user's own by its class, its file and the file's SHA-256.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.plan.plan import Plan
from softroce_lab.transports import congestion, registry
from softroce_lab.transports.knobs import Knobs
from softroce_lab.transports.options import Value


@dataclasses.dataclass(frozen=True, slots=True)
class Transport:
    """One transport of an experiment. None: the transport's own default."""

    name: str  # of the registry; with a file, of the class
    label: str  # of runs and columns: unique in an experiment
    congestion_control: str | None = None
    framing: str | None = None  # of striped messages
    set_options: tuple[tuple[str, Value], ...] = ()  # as they were written
    file: str | None = None  # absolute path of a user's policy
    sha256: str | None = None  # of the file
    set_knobs: tuple[tuple[str, Value], ...] = ()  # as they were written

    @classmethod
    def named(cls, name: str) -> Transport:
        """A built-in transport with its defaults. UserError for an unknown name."""
        registry.find(name)
        return cls(name, name)

    @property
    def entry(self) -> registry.Entry:
        if self.file is None:
            return registry.find(self.name)
        return policy_file.entry(self.file, self.name, self.sha256)

    @property
    def reference(self) -> str:
        if self.file is None:
            return self.name
        label = "" if self.label == self.name else f"{self.label}="
        return f"{label}{self.file}:{self.name}"

    @property
    def options(self) -> dict[str, Value]:
        return dict(self.set_options)

    @property
    def knobs(self) -> Knobs:
        return Knobs.read(self.entry.knobs, dict(self.set_knobs))

    @property
    def engine(self) -> dict[str, Any]:
        return self.entry.engine(self.options)

    def control(self, plan: Plan) -> str:
        own = self.entry.congestion_control
        return self.congestion_control or own or congestion.for_plan(plan)

    @property
    def one_path(self) -> bool:
        return not self.entry.striped or self.knobs.paths == 1

    @property
    def unlimited(self) -> Transport:
        """The same with windows of a bandwidth-delay product: a lone sender keeps its link busy."""
        kept = tuple(each for each in self.set_knobs if each[0] != "window")
        return dataclasses.replace(self, congestion_control="bdp", set_knobs=kept)

    def coding(self, path_mtu: int) -> dict[str, Any]:
        """The engine's settings for erasure-coded messages; {}: it has none. OptionError.

        UserError for several codes that the framing does not tell apart.
        """
        coding = self.entry.coding(self.options, path_mtu)
        if self.frames == "uc_immediate" and len(coding.get("codes", ())) > 1:
            what = f"{self.label} has several codes, and packets of uc_immediate name none"
            raise UserError(what, hint="framing: ud, or one code")
        return coding

    def most_data_packets(self, packets: int, path_mtu: int) -> int:
        """Of a message that has at most so many packets, parity included."""
        coding = self.coding(path_mtu)
        if not coding:
            return packets
        of_chunk, (k, m) = coding["code_chunk_packets"], coding["codes"][0]
        whole, rest = divmod(packets // of_chunk, k + m)
        of_last = max(chunks for chunks in range(k) if chunks + -(-chunks * m // k) <= rest)
        return int((whole * k + of_last) * of_chunk)

    @property
    def frames(self) -> str:
        """The framing of its striped messages: the chosen one, or its own."""
        return self.framing or self.entry.framing

    @property
    def shows_messages(self) -> bool:
        """Whether switches can read message and packet index in its data packets' headers."""
        return self.entry.shows_messages(self.framing)

    @property
    def protocol(self) -> str:
        """Whose rules its packets follow: of a user's own only the session's are known."""
        return self.name if self.file is None else USERS

    def document(self) -> dict[str, Any]:
        own = {} if self.file is None else {"file": self.file, "sha256": self.sha256}
        return {
            "name": self.name,
            "label": self.label,
            "congestion_control": self.congestion_control,
            "framing": self.framing,
            "options": self.options,
            "knobs": dict(self.set_knobs),
            **own,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Transport:
        rest = dict(document)
        options, set_knobs = rest.pop("options"), rest.pop("knobs", {})
        return cls(**rest, set_options=tuple(options.items()), set_knobs=tuple(set_knobs.items()))


USERS = "user's policy"
"""The protocol of every transport that comes from a user's file."""
