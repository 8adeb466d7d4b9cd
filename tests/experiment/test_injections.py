# SPDX-License-Identifier: GPL-2.0-or-later
"""Records of faults into columns: what is in which row and column."""

import numpy as np

from softroce_lab import topology
from softroce_lab.experiment import workload_record
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.plan import locate
from softroce_lab.telemetry.drops import DROP

PLAN = arm(topology.load("path"), profile.load("spine-loss-1pct"))
RULE = PLAN.faults[0]


def drops(*times_ns, kind=0, rule_id=RULE.rule_id):
    rows = np.zeros(len(times_ns), DROP)
    for row, at in zip(rows, times_ns, strict=True):
        row["time_ns"], row["directed_link"], row["rule_id"] = at, RULE.directed_link, rule_id
        row["src"], row["dst"], row["sport"] = 0x0A000001, 0x0A000002, 0xC003
        row["message"], row["index"], row["attempt"], row["kind"] = 4, 55, 1, kind
        row["psn"], row["qpn"], row["effect"], row["step"] = 77, 0x11, 1, 2
    return rows


def columns(found):
    names = locate.arrows(PLAN)
    return workload_record.injected(found, [names[n] for n in range(len(names))], PLAN.faults)


def test_a_drop_names_its_link_rule_and_packet():
    row = {name: column[0] for name, column in columns(drops(5)).items()}
    assert row == {
        "time_ns": 5,
        "source": "injector",
        "event": "drop",
        "link": locate.arrows(PLAN)[RULE.directed_link],
        "rule": RULE.rule,
        "packet_kind": "data",
        "operation": 0,
        "step": 2,
        "message": 4,
        "index": 55,
        "attempt": 1,
        "packets": 1,
        "src": "10.0.0.1",
        "dst": "10.0.0.2",
        "sport": 0xC003,
        "psn": 77,
        "qpn": 0x11,
    }
