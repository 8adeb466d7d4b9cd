# SPDX-License-Identifier: GPL-2.0-or-later
"""What faults did to packets, from records of either clock to columns of events.parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.effects import Fault
from softroce_lab.telemetry.drops import EFFECT_DOWN, EFFECTS, Drops, addresses

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

# By their numbers in a record.
_WORDS = np.array([EFFECTS.get(effect, "") for effect in range(max(EFFECTS) + 1)], dtype=object)
_KINDS = np.array(["data", "control", "report", "probe", "other"], dtype=object)
_AS_RECORDED = ("operation", "step", "message", "index", "attempt", "sport", "psn", "qpn")


def columns(found: Drops, links: Sequence[str], faults: Iterable[Fault]) -> Columns:
    """Of records; `links`: names of directed links, by number.

    There may be millions: numbers stay where they are, in the records, and of a word every row has
    a reference.
    """
    return {
        "time_ns": found["time_ns"].view(np.int64),
        "source": np.broadcast_to(np.array("injector", dtype=object), len(found)),
        "event": _WORDS[found["effect"] & ~np.uint32(EFFECT_DOWN)],
        "link": np.array(links, dtype=object)[found["directed_link"]],
        "rule": _rules(found["rule_id"], {fault.rule_id: fault.rule for fault in faults}),
        "packet_kind": _KINDS[np.minimum(found["kind"], len(_KINDS) - 1)],
        **{name: found[name] for name in _AS_RECORDED},
        "packets": np.broadcast_to(np.uint32(1), len(found)),
        "src": addresses(found["src"]),
        "dst": addresses(found["dst"]),
    }


def _rules(numbers: npt.NDArray[np.uint32], names: Mapping[int, str]) -> npt.NDArray[Any]:
    """Their names."""
    met, rows = np.unique(numbers, return_inverse=True)
    return np.array([names.get(number, "") for number in met.tolist()], dtype=object)[rows]
