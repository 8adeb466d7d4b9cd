# SPDX-License-Identifier: GPL-2.0-or-later
"""A host imports nothing while messages are on their way: that would stop it for milliseconds."""

import subprocess
import sys

from softroce_lab.transports import registry

# On the virtual clock the same transports run, in a process with all that a host's process imports.
PROGRAM = """
import sys

import softroce_lab.experiment.hosts.process
from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs import yaml_source

text = '''
name: imports
topology: {generator: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1}}
transports: [TRANSPORTS]
workload: {kind: all-to-all, bytes: 512KiB, message: 256KiB}
faults: [{name: lossy, links: "h*->leaf*", loss: random 5%}]
'''
wanted = spec.of(yaml_source.parse(text.replace("TRANSPORTS", ", ".join(sys.argv[1:]))))
runs = [virtual.VirtualRun(wanted, each, 1, lambda messages: None) for each in wanted.transports]
known = set(sys.modules)
assert [run.go().verdict for run in runs] == ["passed"] * len(runs)
print(*sorted(set(sys.modules) - known))
"""


def test_nothing_is_imported_during_a_run():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *registry.transports(registry.Kind.SESSION)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "\n"), done.stdout + done.stderr
