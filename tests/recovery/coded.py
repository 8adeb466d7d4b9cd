# SPDX-License-Identifier: GPL-2.0-or-later
"""Which transports are coded: parity may restore what is lost, so that nothing is repeated."""

from softroce_lab.recovery import registry
from softroce_lab.recovery.sdr_ec import SdrEc


def is_coded(transport: str) -> bool:
    """Whether its messages may have parity."""
    policy = registry.find(transport).policy
    return policy is not None and issubclass(policy, SdrEc)


CODED = [name for name in registry.known() if is_coded(name)]
