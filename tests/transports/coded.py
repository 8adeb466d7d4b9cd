# SPDX-License-Identifier: GPL-2.0-or-later
"""Which transports are coded: parity may restore what is lost, so that nothing is repeated."""

from softroce_lab.transports import registry


def is_coded(transport: str) -> bool:
    """Whether its messages may have parity."""
    return registry.find(transport).codes is not None


CODED = [name for name in registry.known() if is_coded(name)]
