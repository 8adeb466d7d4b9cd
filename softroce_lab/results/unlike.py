# SPDX-License-Identifier: GPL-2.0-or-later
"""In what the experiments of two directories differ: whether figures of theirs can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from softroce_lab.inputs.validation import listed
from softroce_lab.results.recorded import Recorded

_MAY_DIFFER = ("name", "transports", "seeds", "expect", "deadline", "payload")
"""Of an experiment: what is compared, how often, and what changes no figure."""


def notes(first: Recorded, second: Recorded) -> Iterator[str]:
    """A sentence with both names and the keys that differ; none for equal experiments."""
    names = [str(each.manifest.get("name")) for each in (first, second)]
    keys = [] if first.is_sweep else list(_unlike(_described(first), _described(second)))
    if keys:
        who = " and ".join(dict.fromkeys(names))
        yield f"the experiments differ, {who}: in {listed(keys)}"
    elif names[0] != names[1] and first.is_sweep:
        yield f"these are different sweeps: {names[0]} and {names[1]}"


def _described(recorded: Recorded) -> dict[str, Any]:
    """The experiment, with the fabric that was made for it."""
    about = dict(recorded.manifest.get("experiment") or {})
    for key in _MAY_DIFFER:
        about.pop(key, None)
    faults = recorded.manifest.get("faults") or []
    of_links = [each for each in faults if each["rule"].startswith("link:")]
    about["topology"] = recorded.manifest.get("topology"), recorded.manifest.get("hosts"), of_links
    about["faults"] = [each for each in faults if each not in of_links]
    return about


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Keys with dots."""
    for key in dict.fromkeys((*one, *other)):
        ours, theirs = one.get(key), other.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            if ours.get("kind") == theirs.get("kind"):
                yield from _unlike(ours, theirs, f"{above}{key}.")
            else:
                yield f"{above}{key}"
        elif ours != theirs:
            yield f"{above}{key}"
