# SPDX-License-Identifier: GPL-2.0-or-later
"""The native engine's configuration, made of values by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softroce_lab import _native

if TYPE_CHECKING:
    from softroce_lab._native import MessageConfig

RECEIVE_RING_PACKETS = 1 << 20
"""The first credit of simulated hosts: so much that it never limits a sender."""


def engine_config(**fields: Any) -> MessageConfig:
    """`fields`: attributes of `MessageConfig`. None, or not given: the engine's own default.

    AttributeError for a name that is no attribute.
    """
    config = _native.MessageConfig()
    for name, value in fields.items():
        if value is not None:
            setattr(config, name, value)
    return config


def simulated_host(**fields: Any) -> MessageConfig:
    """The engine of a simulated host, whose packets carry no bytes unless a field says so.

    `fields`: as `engine_config` takes them.
    """
    usual = {
        "path_mtu": 4096,
        "receive_ring_packets": RECEIVE_RING_PACKETS,
        "carries_payload": False,
    }
    return engine_config(**{**usual, **fields})
