# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports by name, a user's policy among them."""

import pytest

from softroce_lab.errors import ExitCode, UserError
from softroce_lab.transports import registry
from softroce_lab.transports.defaults import DEFAULT_TIMING
from softroce_lab.transports.options import OptionError
from softroce_lab.transports.policy import Feedback, MessagePolicy, Option, Retransmit, SetTimer
from softroce_lab.transports.registry import Kind
from tests.transports.pair_rig import PairRig


class EveryRound(MessagePolicy):
    """What a user may write: the receiver says every round what it lacks."""

    name = "every_round"
    options = (Option("round", 3_000_000, "from SACK to SACK", unit="time", least=1000),)

    def on_first_packet(self, receive, now_ns):
        return [SetTimer(receive, now_ns + self.values["round"])]

    def on_receive_timer(self, receive, now_ns):
        return [Feedback(receive), SetTimer(receive, now_ns + self.values["round"])]

    def on_feedback(self, send, now_ns):
        return [Retransmit(send, self.missing(send))]

    def on_sent(self, send, now_ns):
        return [SetTimer(send, now_ns + self.timing.t_max_ns)]

    def on_send_timer(self, send, now_ns):  # all of it may be lost, or the acknowledgement
        return [Retransmit(send, self.missing(send)[-1:]), *self.on_sent(send, now_ns)]


OWN = registry.Entry.of(EveryRound)


def test_an_entry_describes_itself():
    rc, irn, sdr, csa = map(registry.find, ("rc", "irn", "sdr_sr", "csa_ud"))
    assert [each.kind for each in (rc, irn, OWN)] == [Kind.QUEUE_PAIR, Kind.SESSION, Kind.SESSION]
    assert [each.striped for each in (rc, irn, sdr)] == [False, True, True]
    assert [each.engine()["transport"] for each in (irn, OWN)] == ["irn", "python_policy"]
    assert [each.shows_messages() for each in (rc, irn, sdr, csa)] == [False, True, False, True]
    assert sdr.shows_messages("ud")
    assert not csa.shows_messages("uc_immediate")
    assert {"parity", "probes", "path_health"} <= {option.name for option in csa.options}
    assert irn.runner(None, DEFAULT_TIMING, {}) is None


def test_options_reach_the_transport_validated():
    csa = registry.find("csa_ud")
    assert csa.engine()["options"]["parity"] == "auto"
    assert csa.engine({"parity": "2"})["options"]["parity"] == "2"
    assert csa.engine()["without"] == 0
    assert csa.engine({"probes": False, "port_trials": False})["without"] == 2 + 32
    rig = PairRig(EveryRound, options={"round": "2 ms"})
    assert rig.sides[0].policy.values == {"round": 2_000_000}
    with pytest.raises(OptionError, match="unknown option 'parity'"):
        registry.find("ud_rto").engine({"parity": "2"})
    with pytest.raises(OptionError, match="unknown option 'parity'"):
        OWN.runner(rig.sides[0].endpoint, DEFAULT_TIMING, {"parity": "2"})
    with pytest.raises(UserError, match="'auto1'") as caught:
        csa.engine({"parity": "auto1"})
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.hint == "did you mean 'auto'?"


def test_options_switch_off_their_parts():
    """The bits of enum Mechanism (native/engine/striped/message_config.hpp)."""
    assert registry.find("csa_ud").parts == {
        "path_numbers": 1,
        "probes": 2,
        "probe_repeats": 4,
        "joined_reports": 8,
        "reordering_window": 16,
        "port_trials": 32,
        "path_choice": 64,
        "parity_idle": 128,
        "parity_unacknowledged": 256,
        "parity_uncongested": 512,
        "parity_bursts": 1024,
        "slow_ports": 2048,
    }


@pytest.mark.parametrize("name", ["", "csa-ud", "CSA_UD"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UserError) as caught:
        registry.find(name)
    assert f"'{name}'" in caught.value.what
    assert caught.value.hint == "known transports: " + ", ".join(registry.known())
    assert caught.value.exit_code == ExitCode.USAGE
