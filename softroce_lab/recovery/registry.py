# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports by name: recovery policies, and those whose recovery is the engine's own."""

from __future__ import annotations

from softroce_lab.errors import UserError
from softroce_lab.recovery.api import Policy, View
from softroce_lab.recovery.csa_ud import CsaUd
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.sdr_sr import SdrSr, SdrSrNack
from softroce_lab.recovery.ud_rto import UdRto

RC = "rc"
"""Reliable connections: queue pairs of the verbs, go-back-N."""

NATIVE = ("irn", "srnic")
"""Transports over striped messages whose recovery is the engine's: they react to every packet."""

_policies: dict[str, type[Policy]] = {}


def register(policy: type[Policy]) -> type[Policy]:
    """Make a policy known by its `name`; usable as a class decorator.

    Raises ValueError when the name is empty or taken.
    """
    if not policy.name or policy.name in transports():
        raise ValueError(f"a recovery policy needs a name of its own, not {policy.name!r}")
    _policies[policy.name] = policy
    return policy


def names() -> list[str]:
    """The known policies, sorted."""
    return sorted(_policies)


def transports() -> list[str]:
    """All that messages can be sent over, sorted."""
    return sorted({RC, *NATIVE, *_policies})


def check(name: str) -> None:
    """UserError that lists all transports, unless `name` is one of them."""
    if name not in transports():
        known = ", ".join(transports())
        raise UserError(f"unknown transport '{name}'", hint=f"known transports: {known}")


def find(name: str) -> type[Policy]:
    """The policy called `name`; UserError that lists the known ones if there is none."""
    try:
        return _policies[name]
    except KeyError:
        raise UserError(
            f"unknown transport '{name}'", hint=f"known transports: {', '.join(names())}"
        ) from None


def engine_transport(name: str) -> str:
    """What `MessageConfig.transport` has to be for this transport."""
    return name if name in NATIVE else "policy"


def framing(name: str) -> str:
    """How this transport's data packets say what they carry, unless the user chooses."""
    return _policies[name].framing if name in _policies else Policy.framing


def shows_messages(name: str, frames: str | None = None) -> bool:
    """Whether a transport's data packets tell switches what they carry, by the lab's own header.

    `frames`: their framing, None for the transport's own.
    """
    return name != RC and (frames or framing(name)) == "ud"


def make(name: str, view: View, timing: Timing, interval: str | None = None) -> Policy:
    """A policy for an endpoint. `interval`: how it looks (intervals.names()), None by its default.

    UserError for an unknown policy or interval, or for a policy that has none.
    """
    policy = find(name)
    if interval is None:
        return policy(view, timing)
    if not issubclass(policy, CsaUd):
        raise UserError(f"{name} has no interval", hint="csa_ud has")
    return policy(view, timing, interval)


register(CsaUd)
register(SdrSr)
register(SdrSrNack)
register(UdRto)
