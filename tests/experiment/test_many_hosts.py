# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic of many hosts: twice the same bytes, in bounded time and memory."""

import json
import os
import subprocess
import sys

import pytest

from softroce_lab.paths import PROJECT_ROOT

MOST_S, MOST_BYTES = 180, 3 << 30  # of the long form, on two cores
FILE = """\
name: many-hosts
topology:
  generator: {{kind: fat-tree, k: {k}, access: {wire}, core: {wire}}}
lb: flow
mtu: 4200
transports: [csa_ud]
workload: {{kind: open-loop, load: 80%, sizes: {sizes}, duration: {duration}}}
"""
WIRE = "{rate: 100Gbit, delay: 1us, limit: 1MiB}"
# Prints what the run was and what it took.
CHILD = """\
import hashlib, json, resource, sys, time
from softroce_lab.experiment import spec, virtual
made = spec.load(sys.argv[1])
began_s = time.perf_counter()
run = virtual.run(made, made.transports[0], 1, lambda _: None)
took_s = time.perf_counter() - began_s
digest = hashlib.sha256(run.messages.tobytes())
digest.update(json.dumps([run.links, run.counters, run.summary()], sort_keys=True).encode())
peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"verdict": run.verdict, "digest": digest.hexdigest(), "took_s": took_s,
                  "hosts": len(run.hosts), "hops": run.facts["hops"], "peak_bytes": peak}))
"""


@pytest.mark.full("many-hosts")
def test_the_same_seed_twice_is_the_same_run(full, tmp_path):
    """The long form: web search at 80 % on 1024 hosts for 5 ms, twice; ten minutes."""
    shape = {"k": 16, "sizes": "web-search", "duration": "5ms"}
    if not full:
        shape = {"k": 4, "sizes": "hadoop", "duration": "200us"}
    file = tmp_path / "many-hosts.yaml"
    file.write_text(FILE.format(wire=WIRE, **shape))
    found = []
    for hash_seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-c", CHILD, file],
            env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT), "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE, check=True, timeout=3600,
        ).stdout  # fmt: skip
        found.append(json.loads(output))
        print(found[-1])
    assert found[0]["verdict"] == "passed"
    assert found[0]["hosts"] == shape["k"] ** 3 // 4
    assert found[0]["digest"] == found[1]["digest"]
    if full:
        assert max(each["peak_bytes"] for each in found) < MOST_BYTES
        assert min(each["took_s"] for each in found) < MOST_S
