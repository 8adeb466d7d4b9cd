# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run will need is known before it starts."""

import json
import subprocess
import sys

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.forecast import memory


def of(*changes, name="permutation"):
    return spec.load(name, [spec.parse_override(text) for text in changes])


def test_a_run_that_would_not_fit_is_refused_before_it_starts():
    huge = of("workload.bytes=4TB", "payload=verify", "workload.message=1GiB")
    with pytest.raises(UserError, match=r"would need \d+ TiB of memory, .* are free\n  hint: few"):
        memory.check_fits(huge)
    memory.check_fits(of("workload.bytes=1GB", "workload.message=1GiB"))  # no bytes are carried


def test_what_policies_do_counts():
    """`ud_rto` tells of packets a quarter of a round trip apart, `csa_ud` looks at messages."""
    big = "workload.bytes=1GB", "workload.message=1GiB"
    acts = {
        name: memory.acts(of(*big, f"transports=[{name}]"))
        for name in ("rc", "irn", "csa_ud", "ud_rto")
    }
    assert acts["rc"] == 0 < acts["irn"] == acts["csa_ud"] < acts["ud_rto"] / 1000


def test_what_many_runs_leave_counts():
    one, many = (of(f"seeds={seeds}") for seeds in (1, 1000))
    links, transports = 2 * len(one.plan(1).links), len(one.transports)
    more = memory.needed_bytes(many) - memory.needed_bytes(one)
    assert 1000 * transports * links * 1000 < more < 1000 * transports * links * 10_000
    with pytest.raises(UserError, match="of memory"):
        memory.check_fits(of("seeds=1048576"))


LOSSY = """\
name: lossy
topology:
  nodes: {h1: {kind: host}, s1: {kind: switch}, h2: {kind: host}}
  links:
    - {endpoints: ["h1:eth1", "s1:h1"], rate: 100Gbit, delay: 1us}
    - {endpoints: ["s1:h2", "h2:eth1"], rate: 100Gbit, delay: 1us}
mtu: 576
transports: [irn]
workload: {kind: point-to-point, bytes: 256MiB}
faults: [{name: loss, links: "s1->h2", loss: random 60%}]
seeds: 2
deadline: 100s
"""
PEAK = """\
import re, sys
from pathlib import Path
from softroce_lab.cli.app import app
try:
    app(["run", *sys.argv[1:], "--quiet", "--json"])
finally:  # getrusage would tell the peak of the process that was forked, too
    status = Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) << 10, file=sys.stderr)
"""


def test_packets_that_rules_hit_count_as_much_as_they_take(tmp_path):
    """The estimate is not far below the peak of a process that runs it, nor twice that."""
    file = tmp_path / "lossy.yaml"
    file.write_text(LOSSY)
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, file, "-o", tmp_path],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    runs, peak = json.loads(ran.stdout)["runs"], int(ran.stderr)
    lossy = spec.load(file)
    assert memory.hit_packets(lossy) == pytest.approx(runs[0]["injected_drops"], rel=0.01)
    estimate = memory.needed_bytes(lossy)
    assert 0.9 < estimate / peak < 2
    assert estimate > memory.needed_bytes(of()) + 50e6  # that of the events is most of it


def events_of(*changes, faults):
    return memory.hit_packets(of(*changes, f"faults=[{faults}]"))


def test_packets_that_rules_will_hit_are_reckoned_with():
    plain = events_of(faults="")
    packets = -(-2_000_000 // 2008) * 16
    assert plain == 0
    half = events_of(faults="{name: a, links: 'h1->*', loss: random 50%}")
    assert half == pytest.approx(packets, rel=0.1)  # of twice as many that are sent
    tails = events_of(faults="{name: a, links: 'h1->*', drop: {tail: 1}}")
    assert 0 < tails < packets / 100
    dead = events_of(faults="{name: a, links: 'h1->*', down: true}")
    assert dead <= 1.01 * packets
