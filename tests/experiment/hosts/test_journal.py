# SPDX-License-Identifier: GPL-2.0-or-later
"""What transports decided, as columns of events and lines of the event log."""

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.experiment import recoveries
from softroce_lab.experiment.hosts import report
from softroce_lab.telemetry.recoveries import EVENTS, REASONS, RECOVERY

RETRANSMIT, SACK = map(_native.DECISIONS.index, ("retransmit", "sack"))


class Endpoint:
    """Hands out what it decided, once."""

    def __init__(self, *rows):
        made = np.zeros(len(rows), dtype=report.DECISION)
        for row, values in zip(made, rows, strict=True):
            for name, value in zip(("time_ns", "kind", "message", "packets"), values, strict=True):
                row[name] = value
        self._bytes = made.tobytes()

    def take_decisions(self):
        taken, self._bytes = self._bytes, b""
        return taken


def test_decisions_are_columns_of_events_and_lines_of_the_log():
    taken = report.taken([Endpoint((10, SACK, 1, 0), (30, RETRANSMIT, 2, 4))])
    columns = report.acted("h1", taken)
    assert columns["event"].tolist() == ["sack", "retransmit"]
    assert columns["source"].tolist() == ["h1", "h1"]
    assert columns["packets"].tolist() == [0, 4]
    assert list(report.lines(taken, 1000))[1] == {
        "time_ns": 1030, "event": "policy", "act": "retransmit", "message": 2, "packets": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("timer", "timer"), ("sack", "sack"), ("gap, probe", "gap, probe"), (None, "policy")],
)
def test_a_retransmission_has_the_cause_of_its_decision(cause, reason):
    found = np.zeros(1, dtype=RECOVERY)
    found["event"], found["reason"] = EVENTS.index("retransmit"), REASONS.index("policy")
    found["cause"] = 0 if cause is None else _native.RETRANSMIT_CAUSES.index(cause)
    (columns,) = recoveries.Recorded(found, {}, ["a->b"], [])
    assert columns["reason"].tolist() == [reason]
    assert columns["cause"].tolist() == [""]
