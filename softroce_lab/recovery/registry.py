# SPDX-License-Identifier: GPL-2.0-or-later
"""Recovery policies by name."""

from __future__ import annotations

from softroce_lab.errors import UserError
from softroce_lab.recovery.api import Policy
from softroce_lab.recovery.csa_ud import CsaUd
from softroce_lab.recovery.ud_rto import UdRto

_policies: dict[str, type[Policy]] = {}


def register(policy: type[Policy]) -> type[Policy]:
    """Make a policy known by its `name`; usable as a class decorator.

    Raises ValueError when the name is empty or taken.
    """
    if not policy.name or policy.name in _policies:
        raise ValueError(f"a recovery policy needs a name of its own, not {policy.name!r}")
    _policies[policy.name] = policy
    return policy


def names() -> list[str]:
    """The known policies, sorted."""
    return sorted(_policies)


def find(name: str) -> type[Policy]:
    """The policy called `name`; UserError that lists the known ones if there is none."""
    try:
        return _policies[name]
    except KeyError:
        raise UserError(
            f"unknown transport '{name}'", hint=f"known transports: {', '.join(names())}"
        ) from None


register(CsaUd)
register(UdRto)
