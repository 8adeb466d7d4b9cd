# SPDX-License-Identifier: GPL-2.0-or-later
"""Mistakes made on purpose in the recovery policies, to see whether `lab fuzz` notices them.

A mistake is a function that is given a method and returns what stands in its place.
"""

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from softroce_lab.recovery.ud_rto import UdRto

from softroce_lab.recovery import api, policy
from softroce_lab.recovery.control import Ack
from softroce_lab.recovery.csa_ud import CsaUd
from softroce_lab.recovery.session.session import Session
from softroce_lab.recovery.work import PeerWork

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
    return [action for action in actions if not isinstance(action, api.SetTimer | policy.SetTimer)]


# --- All datagram policies -------------------------------------------------------------------


@mutant(Session, "_flush_acks", "csa_ud", 0)
def an_acknowledgement_too_many(original):
    """The message after the newest is acknowledged, too."""

    def flush(self, work, now_ns):
        work.acked_before += (max(work.acks) + 1,)
        return original(self, work, now_ns)

    return flush


@mutant(Session, "_acknowledged", "csa_ud", 1)
def acknowledgement_of_any_generation(original):
    """An acknowledgement ends whatever uses the slot now."""

    def acknowledged(self, work, message, now_ns):
        slots = {id_ % work.slots for id_ in message.ids}
        ids = tuple(id_ for id_ in work.sends if id_ % work.slots in slots)
        return original(self, work, Ack(ids), now_ns)

    return acknowledged


@mutant(PeerWork, "outcome", "csa_ud", 7)
def outcome_of_any_generation(original):
    """What became of a message is what became of its slot's newest."""

    def outcome(self, id_):
        newest = self.outcomes.get(id_ % self.slots)
        return None if newest is None else newest.status

    return outcome


@mutant(Session, "_check_keepalive", "csa_ud", 14)
def the_dead_are_never_given_up(original):
    """Unanswered questions are not counted."""

    def check_alive(self, work, now_ns):
        work.keepalives_unanswered = 0
        return original(self, work, now_ns)

    return check_alive


@mutant(Session, "_check_keepalive", "ud_rto", 72)
def the_living_are_given_up(original):
    """The first unanswered question ends everything."""

    def check_alive(self, work, now_ns):
        self.timing = dataclasses.replace(self.timing, keepalive_probes=1)
        return original(self, work, now_ns)

    return check_alive


@mutant(Session, "retransmit", "csa_ud", 15)
def the_third_attempt_is_the_last(original):
    """A message fails when one of its packets was sent twice."""

    def retransmit(self, work, send, action, attempts_most, now_ns):
        most = self.timing.most_attempts if attempts_most >= 2 else attempts_most
        return original(self, work, send, action, most, now_ns)

    return retransmit


@mutant(Session, "_on_keepalive", "csa_ud", 47)
def questions_unanswered(original):
    """A probe for a message is not answered."""

    def probed(self, work, message, now_ns):
        return () if message.messages else original(self, work, message, now_ns)

    return probed


# --- csa_ud ----------------------------------------------------------------------------------


@mutant(CsaUd, "on_loss", "csa_ud", 1)
def losses_ignored(original):
    """A sender hears of a loss and does nothing."""
    return lambda self, event, now_ns: ()


@mutant(CsaUd, "on_loss", "csa_ud", 2)
def first_loss_forgotten(original):
    """The first of the packets that are lost is not sent again."""

    def on_loss(self, event, now_ns):
        return [
            dataclasses.replace(action, indices=action.indices[1:])
            if isinstance(action, api.Retransmit)
            else action
            for action in original(self, event, now_ns)
        ]

    return on_loss


@mutant(CsaUd, "check_send", "csa_ud", 47)
def asks_once(original):
    """A sender without a word asks once."""

    def ask(self, work, send, now_ns):
        return without_timers(original(self, work, send, now_ns))

    return ask


# --- ud_rto ----------------------------------------------------------------------------------


@mutant(UdRto, "on_sent", "ud_rto", 1)
def timer_not_armed(original):
    """A sender whose packets are out sets no timer."""

    return lambda self, send, now_ns: []


@mutant(UdRto, "missing", "ud_rto", 1)
def always_the_first_packet(original):
    """Whatever is missing, packet 0 is sent again."""
    return lambda self, send: np.array([0], dtype=np.uint32)


@mutant(UdRto, "missing", "ud_rto", 1)
def bitmap_upside_down(original):
    """What is here is taken for missing, and what is missing for here."""

    def missing(self, send):
        return np.setdiff1d(np.arange(send.count, dtype=np.uint32), original(self, send))

    return missing
