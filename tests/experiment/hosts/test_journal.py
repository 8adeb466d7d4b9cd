# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host writes down: the acts that are worth a line, their reasons, how late they came."""

import types

import numpy as np
import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.hosts.journal import EVENT, Journal
from softroce_lab.experiment.messages import open_ends
from softroce_lab.recovery import api, control
from softroce_lab.recovery.api import (
    CompleteSend,
    Control,
    FailReceive,
    Pause,
    Refuse,
    Retransmit,
    SetPeerTimer,
    SetTimer,
    UsePaths,
)
from softroce_lab.telemetry.recoveries import EVENTS, REASONS, RECOVERY

KEY = (1, 2, 33)
FAILED = ibv_wc_status.IBV_WC_RETRY_EXC_ERR


def event(body=b"", key=KEY):
    return types.SimpleNamespace(key=key, body=body, number=0)


def rows(events):
    return [(int(e["time_ns"]), str(e["kind"]), int(e["message"]), int(e["packets"]))
            for e in events]  # fmt: skip


def test_decisions_have_the_last_reason_of_their_policy():
    """An engine acts after its policy decided, and records when it did."""
    journal = Journal()
    timer, other = event(), event(key=(1, 2, 34))
    journal.record(100, timer, Retransmit(1, [3]))
    journal.record(200, other, Retransmit(2, [4]))
    records = np.zeros(4, RECOVERY)
    records["time_ns"] = 90, 150, 260, 300
    records["operation"], records["step"], records["message"] = 1, 2, (33, 33, 33, 99)
    records["event"] = EVENTS.index("retransmit")
    records["reason"] = REASONS.index("policy")
    late = records.copy()
    late["reason"] = REASONS.index("nak")
    for found, whys in (
        (records, ["policy", *3 * [api.EVENTS[timer.number]]]),
        (late, 4 * [""]),
    ):
        kept = journal.records(open_ends(0), found)
        assert kept.whys.tolist() == whys
        assert kept.recoveries is found


def test_an_empty_journal_has_its_columns():
    events = Journal().events()
    assert (events.dtype, len(events)) == (EVENT, 0)


def body(message):
    return control.encode(message, 2008)


MISSING = control.packet_set(np.ones(3, dtype=np.bool_))
ACTS = [
    (Retransmit(1, np.arange(7, dtype=np.uint32)), event(), ("retransmit", 33, 7)),
    (FailReceive(1, FAILED), event(), ("failreceive", 33, 0)),
    (Pause(1, True), event(), ("pause", 33, 0)),
    (UsePaths(0, (1, 2)), event(), ("usepaths", 33, 0)),
    (Refuse("why"), event(), ("refuse", 33, 0)),
    (Control(0, body(control.Rnr(9, (0, 0, 44)))), event(), ("rnr", 44, 0)),
    (Control(0, body(control.Refused(9, KEY, True, FAILED))), event(), ("refused", 33, 0)),
    (Control(0, body(control.Sack(9, KEY, MISSING))), event(), ("sack", 33, 0)),
    (Control(0, body(control.Ack((1, 2)))), event(), ("ack", 0, 0)),  # of several messages
    (Control(0, body(control.Keepalive(((1, KEY),)))), event(), ("keepalive", 0, 0)),
    (Control(0, b"\xff what no policy of ours says"), event(), ("control", 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("action", "cause", "row"), ACTS, ids=[row[0] for _, _, row in ACTS])
def test_acts(action, cause, row):
    journal = Journal()
    journal.record(123, cause, action)
    assert rows(journal.events()) == [(123, *row)]


def test_acts_upon_a_control_message_are_about_its_message():
    journal = Journal()
    look = body(control.Sack(9, (0, 0, 55), MISSING))
    journal.record(1, event(look), Retransmit(1, np.arange(3, dtype=np.uint32)))
    journal.record(2, event(b"\xff\xff"), Refuse("no such type"))
    journal.record(3, event(look), Control(0, body(control.Rnr(9, (0, 0, 66)))))
    assert rows(journal.events()) == [
        (1, "retransmit", 55, 3),
        (2, "refuse", 0, 0),
        (3, "rnr", 66, 0),
    ]


def test_timers_and_good_ends_are_not_written_down():
    journal = Journal()
    for action in (SetTimer(1, 5), SetPeerTimer(0, 5), CompleteSend(1, FAILED)):
        journal.record(1, event(), action)
    assert len(journal.events()) == 0


def test_lateness():
    journal = Journal()
    assert journal.lateness() == {"p50": 0, "p99": 0, "p100": 0}
    for late_ns in range(1, 1002):
        journal.decided(late_ns)
    assert journal.lateness() == {"p50": 501, "p99": 991, "p100": 1001}
