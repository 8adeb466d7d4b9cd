# SPDX-License-Identifier: GPL-2.0-or-later
"""Policies by name, a user's own among them."""

import numpy as np
import pytest
from softroce_lab.recovery.ud_rto import UdRto

from softroce_lab.errors import ExitCode, UserError, ibv_wc_status
from softroce_lab.recovery import registry
from softroce_lab.recovery.api import (
    CompleteSend,
    Control,
    Policy,
    Retransmit,
    SetTimer,
    missing_packets,
)
from softroce_lab.recovery.csa_ud import CsaUd
from softroce_lab.recovery.defaults import DEFAULT_TIMING
from softroce_lab.recovery.options import OptionError
from softroce_lab.recovery.registry import Kind
from tests.recovery.pair_rig import SECOND_NS, PairRig, threshold

ROUND_NS = 3_000_000


class EveryRound(Policy):
    """What a user may write: the receiver says every 3 ms what it lacks, until it has all of it.

    The body of a control message: the id, then the missing packets' indices (none: complete).
    """

    name = "every_round"

    def __init__(self, view, timing, options=None):
        super().__init__(view, timing, options)
        self.sends = {}
        self.receives = {}
        self.over = set()

    def _tell(self, peer, id_, missing):
        return Control(peer, np.array([id_, *missing[:50]], dtype=np.uint32).tobytes())

    def on_send_posted(self, event, now_ns):
        self.sends[event.id] = event.handle
        return [SetTimer(event.handle, now_ns + ROUND_NS)]

    def on_receive_posted(self, event, now_ns):
        self.receives[event.handle] = event.peer
        return [SetTimer(event.handle, now_ns + ROUND_NS)]

    def on_receive_complete(self, event, now_ns):
        del self.receives[event.handle]
        return [self._tell(event.peer, event.id, [])]

    def on_late_packet(self, event, now_ns):
        return [self._tell(event.peer, event.id, [])]

    def on_timer(self, event, now_ns):
        yield SetTimer(event.handle, now_ns + ROUND_NS)
        state = self.view.receive_state(event.handle)
        if state is not None and state.open:
            missing = np.flatnonzero(missing_packets(state))
            yield self._tell(event.peer, state.id, missing.tolist())
        elif event.handle in self.sends.values():  # it may have been lost whole, or its end
            yield Retransmit(event.handle, np.array([event.count - 1], dtype=np.uint32))

    def on_control(self, event, now_ns):
        id_, *missing = np.frombuffer(event.body, dtype=np.uint32).tolist()
        handle = self.sends.get(id_)
        if handle is not None and missing:
            yield Retransmit(handle, np.array(missing, dtype=np.uint32))
        elif handle is not None:
            del self.sends[id_]
            yield CompleteSend(handle, ibv_wc_status.IBV_WC_SUCCESS)


@pytest.fixture
def registered(monkeypatch):
    """The user's policy beside the known ones, for this test only."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    return registry.register(EveryRound)


POLICIES = ["csa_ud", "sdr_auto", "sdr_ec", "sdr_sr", "sdr_sr_nack", "ud_rto"]


def test_the_names_are_sorted_and_found():
    assert registry.transports() == sorted(["rc", "irn", "srnic", *POLICIES])
    assert registry.transports(Kind.SESSION) == POLICIES
    assert registry.find("csa_ud").policy is CsaUd
    assert registry.find("ud_rto").policy is UdRto


def test_an_entry_describes_itself():
    rc, irn, sdr, csa = map(registry.find, ("rc", "irn", "sdr_sr", "csa_ud"))
    assert [each.kind for each in (rc, irn, sdr)] == [Kind.QUEUE_PAIR, Kind.NATIVE, Kind.SESSION]
    assert [each.striped for each in (rc, irn, sdr)] == [False, True, True]
    assert [each.engine["transport"] for each in (irn, sdr)] == ["irn", "policy"]
    assert [each.shows_messages() for each in (rc, irn, sdr, csa)] == [False, True, False, True]
    assert sdr.shows_messages("ud")
    assert not csa.shows_messages("uc_immediate")
    assert {"interval", "probes", "hedging"} <= {option.name for option in csa.options}
    assert irn.make(None, DEFAULT_TIMING, {}) is None


def test_options_reach_the_policy_validated():
    view = PairRig("csa_ud").sides[0].endpoint
    csa = registry.find("csa_ud")
    assert csa.make(view, DEFAULT_TIMING, {}).values["interval"] == "linear"
    assert csa.make(view, DEFAULT_TIMING, {"interval": "fixed"}).values["interval"] == "fixed"
    assert csa.engine_options({}) == {"without": 0}
    assert csa.engine_options({"probes": False, "port_trials": False}) == {"without": 2 + 32}
    with pytest.raises(OptionError, match="unknown option 'interval'"):
        registry.find("ud_rto").make(view, DEFAULT_TIMING, {"interval": "fixed"})


@pytest.mark.parametrize("name", ["", "csa-ud", "CSA_UD"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UserError) as caught:
        registry.find(name)
    assert f"'{name}'" in caught.value.what
    assert caught.value.hint == "known transports: " + ", ".join(registry.known())
    assert caught.value.exit_code == ExitCode.USAGE


def test_an_unknown_name_lists_a_registered_one_too(registered):
    with pytest.raises(UserError, match="csa_ud, every_round, "):
        registry.find("rcc")


@pytest.mark.parametrize("name", ["", "csa_ud", "rc"])
def test_a_policy_needs_a_name_of_its_own(name):
    with pytest.raises(ValueError, match="a name of its own"):
        registry.register(type("Other", (Policy,), {"name": name}))
    assert registry.find("csa_ud").policy is CsaUd


@pytest.mark.parametrize("loss", [0, 0.3])
def test_a_users_own_policy_delivers(registered, loss):
    assert registered is EveryRound
    rig = PairRig("every_round", seed=5)
    for cable in rig.cables:
        cable.delay_ns, cable.loss = 100_000, threshold(loss)
    for number, length in enumerate([0, 1, 2008, 100_000, 500_000]):
        rig.transfer((1, 2, number), length)
    rig.finish(within_ns=SECOND_NS)
    rig.check()
