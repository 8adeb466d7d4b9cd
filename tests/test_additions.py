# SPDX-License-Identifier: GPL-2.0-or-later
"""A new fault, check and transport touch at most three files: samples, in a copy of the package."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from softroce_lab import _native
from softroce_lab.paths import PROJECT_ROOT

MOST_FILES = 3

# "loss head N": the first N packets on a link.
FAULT = {
    "softroce_lab/plan/effects.py": [
        (" | Blackout\nEffect: ", " | Head"),
        (
            "# --- What else happens to single packets",
            '''@dataclasses.dataclass(frozen=True, slots=True)
class Head(LossModel):
    """The first `count` packets."""

    count: int
    kind: Literal["head"] = "head"

    remembers: ClassVar = True

    @property
    def rate(self) -> float:
        return 0.0

    @property
    def mean_run(self) -> float | None:
        return None

    @property
    def rule(self) -> RuleNumbers:
        return RuleNumbers(8, 0, self.count)

    @property
    def words(self) -> str:
        return f"head {self.count}"


''',
        ),
    ],
    "softroce_lab/faults/model.py": [
        (
            "_LOSS_MODELS: ",
            '''class HeadSpec(Compact):
    """The first packets."""

    positional: ClassVar = ("count",)

    count: Annotated[int, number("count", 1, NUMBER_MAX), NUMBER_SCHEMA]

    @property
    def effect(self) -> Head:
        return Head(self.count)


''',
        ),
        ('    "blackout": Blackout,\n', '    "head": Head,\n'),
        (
            "    blackout: bool = Field(",
            '    head: HeadSpec | None = Field(None, description="n")\n',
        ),
        ("    Gemodel,\n    LossModel", "    Head,\n"),
    ],
    "xdp/lab_fault.h": [
        ("  LAB_LINK_DOWN = 4,", "  LAB_LOSS_HEAD = 8, /* the first a */\n"),
        (
            "  if (model == LAB_REORDER && ",
            "  if (model == LAB_LOSS_HEAD) return seen < rule->a;\n",
        ),
    ],
}

# "sample.seen": the capture has packets.
CHECK = {
    "softroce_lab/check/sample.py": """
from softroce_lab.check.verdict import Rules, Suite

RULES = Rules()


@RULES.rule("sample.seen", "the capture has packets", "none")
def check(evidence, tally):
    tally.passed(len(evidence.packets))


SUITE = Suite.of_evidence(RULES)
""",
    "softroce_lab/check/suites.py": [
        ("    rc.SUITE,\n", "    sample.SUITE,\n"),
        ("from softroce_lab.check.evidence import", "from softroce_lab.check import sample\n"),
    ],
}

# "rc.seen": each connection has requests. One place.
RULE = {
    "softroce_lab/check/rc/results.py": [
        (
            "def check_one_pkey(",
            '''@RULES.rule("rc.seen", "a connection has requests", "none", is_proven=True)
def check_seen(case: Case) -> None:
    """Any."""
    case.tally["seen"].passed(len(case.near_requester.requests))


''',
        ),
    ],
}

# "sample": the tutorial's policy, built in.
WRITTEN = """
import json
from softroce_lab.faults import expected, text
from softroce_lab.faults import lines
from softroce_lab.faults.layout import link_rules
from softroce_lab.experiment import spec
from softroce_lab.inputs import yaml_source
from softroce_lab.topology import marks

plan = spec.of(yaml_source.parse('''
name: t
topology: {generator: {kind: star, hosts: 2}}
faults: [{name: first, links: "h1->*", loss: head 3}]
transports: [rc]
workload: {kind: point-to-point, bytes: 1KiB}
clock: real
''')).plan(1)
(fault,) = plan.faults
print(json.dumps({
    "text": text.text(fault), "key": fault.key, "rate": expected.rate(fault.effect),
    "tc": lines.commands([fault], "eth1", 1500), "mark": marks.short(fault.effect),
    "rules": link_rules([fault]).value.hex(),
}))
"""

DECIDED = """
#include <cstdio>
#include <cstring>
#include "xdp/lab_fault.h"

int main() {
  static lab_fault_set set;
  static lab_fault_state state;
  std::size_t size = std::fread(&set, 1, sizeof set, stdin);
  for (int n = 0; size == sizeof set && n < 10; ++n) {
    lab_packet packet{};
    lab_verdict verdict{};
    packet.id.kind = LAB_KIND_NONE;
    packet.kind_bit = LAB_KIND_BIT_OTHER;
    packet.opcode = LAB_NO_OPCODE;
    lab_fault_decide(&set, &state, &packet, 0, &verdict);
    std::putchar(verdict.effects & LAB_EFFECT_DROP ? '1' : '0');
  }
}
"""


@pytest.fixture
def scratch(tmp_path):
    """A copy of the package and the headers, with today's native module."""
    for name in ("softroce_lab", "xdp"):
        shutil.copytree(PROJECT_ROOT / name, tmp_path / name)
    native = tmp_path / "softroce_lab" / os.path.basename(_native.__file__)
    if not native.exists():
        native.symlink_to(_native.__file__)
    return tmp_path


def add(scratch, changes):
    """Insert each text before its anchor, or write a new file."""
    assert len(changes) <= MOST_FILES
    for name, change in changes.items():
        file = scratch / name
        if isinstance(change, str):
            assert not file.exists()
            file.write_text(change)
            continue
        text = file.read_text()
        for anchor, added in change:
            assert text.count(anchor) == 1 or not anchor, anchor
            text = text.replace(anchor, added + anchor) if anchor else text
        file.write_text(text)


def python(scratch, *arguments):
    """Python with the copy, and without this checkout, which a .pth file would put first."""
    found = [str(scratch), sysconfig.get_paths()["purelib"]]
    done = subprocess.run(
        [sys.executable, "-S", *arguments], capture_output=True, text=True, timeout=60, check=False,
        cwd=scratch, env={"PYTHONPATH": os.pathsep.join(found), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_fault_touches_three_files(scratch):
    """It is written, described, drawn, expected and decided."""
    add(scratch, FAULT)
    found = json.loads(python(scratch, "-c", WRITTEN))
    assert found.pop("tc")[-1].endswith("loss head 3: netem has none")
    rules = bytes.fromhex(found.pop("rules"))
    assert found == {"text": "loss head 3", "key": "index", "rate": 0.0, "mark": "head"}
    (scratch / "decided.cpp").write_text(DECIDED)
    program = scratch / "decided"
    argv = ["c++", "-std=c++20", "-I", str(scratch), "-o", program, scratch / "decided.cpp"]
    subprocess.run(argv, check=True, timeout=60)
    done = subprocess.run([program], input=rules, capture_output=True, check=True, timeout=10)
    assert done.stdout == b"1110000000"


def test_a_new_check_touches_three_files(scratch):
    """`lab verify` lists and applies it."""
    add(scratch, CHECK)
    cli = ("-m", "softroce_lab.cli", "verify")
    assert "sample.seen" in python(scratch, *cli, "--list")
    capture = str(PROJECT_ROOT / "tests" / "captures" / "rxe_rc.pcap")
    shown = json.loads(python(scratch, *cli, capture, "--only", "rule=sample", "--json"))
    (verdict,) = shown["files"][0]["verdicts"]
    assert verdict["outcome"] == "pass"
    assert verdict["checked"] > 100


def test_a_new_rule_is_one_place(scratch):
    """`lab verify` lists and applies it."""
    add(scratch, RULE)
    cli = ("-m", "softroce_lab.cli", "verify")
    assert "rc.seen" in python(scratch, *cli, "--list")
    capture = str(PROJECT_ROOT / "tests" / "captures" / "rxe_rc.pcap")
    shown = json.loads(python(scratch, *cli, capture, "--only", "rule=rc.seen", "--json"))
    (verdict,) = shown["files"][0]["verdicts"]
    assert verdict["checked"] > 100
