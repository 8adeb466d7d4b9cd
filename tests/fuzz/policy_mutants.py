# SPDX-License-Identifier: GPL-2.0-or-later
"""Mistakes made on purpose in the recovery policies, to see whether `lab fuzz` notices them.

A mistake is a function that is given a method and returns what stands in its place.
"""

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from softroce_lab.recovery import policy
from softroce_lab.recovery.sdr_ec import SdrEc
from softroce_lab.recovery.sdr_sr import SdrSr

MUTANTS = {}  # by name


class Mutant(NamedTuple):
    """A mistake in a method of a class, and where it shows."""

    owner: type | ModuleType
    method: str
    mistake: Callable[[Any], Any]
    transport: str
    seed: int  # the first that notices it


def mutant(owner, method, transport, seed):
    """Register a mistake."""

    def register(mistake):
        MUTANTS[mistake.__name__] = Mutant(owner, method, mistake, transport, seed)
        return mistake

    return register


def without_timers(actions):
    """The same actions, but no timer is set."""
    return [action for action in actions if not isinstance(action, policy.SetTimer)]


# --- sdr_sr ----------------------------------------------------------------------------------


@mutant(SdrSr, "on_send_timer", "sdr_sr", 2)
def chunk_timer_not_armed_again(original):
    """A chunk's timer runs once."""
    return lambda self, send, now_ns: without_timers(original(self, send, now_ns))


@mutant(SdrSr, "repeat", "sdr_sr", 2)
def chunk_without_its_last_packet(original):
    """The last packet of what is to be sent again is left out."""

    def repeat(self, *of):
        return [
            dataclasses.replace(action, packets=action.packets[:-1])
            for action in original(self, *of)
        ]

    return repeat


# --- sdr_ec ----------------------------------------------------------------------------------


@mutant(SdrEc, "on_send_timer", "sdr_ec", 15)
def state_asked_for_once(original):
    """A sender that hears nothing asks once, and retransmits once."""
    return lambda self, send, now_ns: without_timers(original(self, send, now_ns))


@mutant(SdrEc, "repeat", "sdr_ec", 2)
def repeats_what_is_here(original):
    """What is retransmitted is what the receiver has."""

    def repeat(self, send, state, chunks, now_ns):
        return original(self, send, state, ~chunks, now_ns)

    return repeat
