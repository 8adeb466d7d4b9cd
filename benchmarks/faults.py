# SPDX-License-Identifier: GPL-2.0-or-later
"""What faults cost: frames a second at a link with them, over the same without.

Counted before the faults, which lose at most 1 % of the frames; drops are logged.

    random    one frame of a hundred
    gemodel   a hundredth of the time half of the frames
    named64   64 frames by their names, spread over the first of a sample
    all       as many names and rules as a link takes, of every kind that XDP decides, with filters
              and windows
"""

from __future__ import annotations

from typing import Any

from benchmarks.traffic import BareTraffic, first_switch, lab_of, set_faults
from softroce_lab.faults import profile
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import FaultRules, arm
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Plan

_NOW, _HALF_OF_THE_TIME = {"for": "3600s"}, {"for": "3600s", "every": "7200s"}
_RULES: tuple[dict[str, Any], ...] = (
    {"drop": {"opcode": "RC_SEND_ONLY"}, **_NOW},
    {"drop": {"message": 1, "tail": 2, "iter": [2, 3]}, **_NOW},
    {"loss": "random 0.25%", "only": "data", **_NOW},
    {"loss": "gemodel 0.02525% 10% 50% 0%", "only": "control", **_HALF_OF_THE_TIME},
    {"loss": "periodic 400", "only": "report", **_NOW},
    {"loss": "blackout", "at": "3600s", "for": "3600s"},
    {"corrupt": "1%", "only": "data", **_NOW},
    {"corrupt": "1%", "only": "other", **_HALF_OF_THE_TIME},
)


def sets() -> dict[str, list[dict[str, Any]]]:
    """Rules by name, without their links."""
    names = [{"drop": {"message": 0, "packet": 256 * n, "iter": 1}} for n in range(64)]
    return {
        "random": [{"loss": "random 1%"}],
        "gemodel": [{"loss": "gemodel 0.101% 10% 50% 0%"}],
        "named64": names,
        "all": [*names, *_RULES],
    }


def armed(plan: Plan, link: str, rules: list[dict[str, Any]]) -> tuple[Fault, ...]:
    """The rules at a link of a plan. UserError if it does not take them."""
    written = [{"name": f"r{n}", "links": link, **rule} for n, rule in enumerate(rules)]
    data: Any = {"faults": written}
    source = Source(None, data, {}, {})
    read: list[FaultRule] = validate(profile.ProfileFile, source).faults
    return arm(plan, FaultRules(tuple(read), source)).faults


def measure(short: bool) -> dict[str, float]:
    """Ratios, each of two neighbours in time."""
    found = {}
    with lab_of("path") as lab:
        traffic = BareTraffic(lab, 0.1 if short else 0.5)
        _, port = first_switch(lab.plan)
        for name, rules in sets().items():
            set_faults(lab)
            none = traffic.met_per_s(port)
            set_faults(lab, armed(lab.plan, "leaf1->spine1", rules))
            found[f"{name}_over_none"] = traffic.met_per_s(port) / none
    return found | {"none_frames_per_s": none}
