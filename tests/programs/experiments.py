# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs experiments of programs, each on a lab of its own."""

import json
import secrets
from pathlib import Path

import yaml
from typer.testing import CliRunner

from softroce_lab.cli.app import app

MTU_BYTES = 2048  # of a path, with the usual MTU of links


def run(folder, hosts, workload, loss=None, **more):
    """The document of `lab run`, and the run in the manifest. `loss`: of all links of hosts."""
    experiment = {
        "name": f"t{secrets.token_hex(3)}",
        "topology": {"generator": {"kind": "star", "hosts": hosts}},
        "clock": "real",
        "deadline": "120s",
        "faults": [{"name": "lossy", "links": "h*<->s1", "loss": loss}] if loss else [],
        "workload": {"kind": "program", **workload},
        **more,
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(experiment))
    done = CliRunner().invoke(app, ["run", str(file), "--json", "-q", "-o", str(folder)])
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    manifest = json.loads((Path(found["run_dir"]) / "manifest.json").read_text())
    return found, manifest["runs"][0]


def carried(found, recorded, payload_bytes, gid=None):
    """Assert that all passed, and that the hosts together sent that much by RoCE.

    `gid`: the index by which RC queue pairs have their peers, 0 of IPv4 or 1 of IPv6.
    """
    outputs = {host: each["output"] for host, each in recorded["programs"].items()}
    assert found["verdict"] == "passed", (found["runs"][0]["reasons"], outputs)
    packets = sum(each["roce_packets"] for each in recorded["programs"].values())
    assert packets * MTU_BYTES >= payload_bytes, (packets, outputs)
    if gid is not None:
        assert {":" in address for address in peers(found)} == {gid == 1}


def peers(found):
    """Addresses to which RC queue pairs were connected."""
    stats = json.loads((Path(found["run_dir"]) / "stats.json").read_text())
    [hosts] = stats["runs"].values()
    pairs = [qp for host in hosts.values() for one in host["processes"] for qp in one["qps"]]
    return {qp["remote_address"] for qp in pairs} - {None}
