# SPDX-License-Identifier: GPL-2.0-or-later
"""Same seed, same bytes: in any process, on any machine of an architecture, whatever else is there.

`python -m tests.experiment.test_determinism` writes down the digests of this machine's runs, for a
change that is meant to change them.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry
from tests.learn.submissions import solution

DIGESTS = Path(__file__).with_name("virtual_digests.json")
RENAMED = json.loads((paths.PROJECT_ROOT / "tests/renamed_words.json").read_text())
"""Recorded names, old: new. The kept digests are of the old ones."""
ONE_RAIL = [name for name in registry.known() if registry.find(name).rails == 1]
ALL = [*ONE_RAIL, "{name: csa_ud, framing: uc_immediate}"]
TEXT = """\
name: determined
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}, s2: {kind: switch},
          s3: {kind: switch}, s4: {kind: switch}}
  links:
    - {endpoints: ["h1:eth1", "s1:h1"], rate: 10Gbit limit 64 ecn 20, delay: 1us}
    - {endpoints: ["h2:eth1", "s2:h2"], rate: 10Gbit limit 64 ecn 20, delay: 1us}
    - {endpoints: ["s1:s3", "s3:s1"], rate: 10Gbit limit 64 ecn 20, delay: 1us}
    - {endpoints: ["s1:s4", "s4:s1"], rate: 10Gbit limit 64 ecn 20, delay: 1us}
    - {endpoints: ["s3:s2", "s2:s3"], rate: 10Gbit limit 64 ecn 20, delay: 1us 200ns}
    - {endpoints: ["s4:s2", "s2:s4"], rate: 10Gbit limit 64 ecn 20, delay: 1us 200ns}
lb: spray
transports: [TRANSPORTS]
workload: {kind: point-to-point, bytes: 100kB, message: 20kB, from: h1, to: h2}
faults:
  - {name: loss, links: "s1<->s3", loss: random 3%}
  - {name: bursts, links: "s1->s4", loss: gemodel 2% 30%, key: index}
  - {name: noise, links: "s3->s2", corrupt: 1%}
  - {name: twice, links: "s4->s2", duplicate: 2%}
deadline: 1s
"""
CAPTURED = ("h1<->s1", "h2<->s2", "s1->s3")


def of(transport, **changes):
    text = TEXT.replace("TRANSPORTS", transport)
    for old, new in changes.get("replaced", ()):
        assert old in text
        text = text.replace(old, new)
    return spec.of(yaml_source.parse(text, "determined.yaml"))


def traces(experiment, folder):
    """All that a run tells, and its capture: bytes by what they are."""
    path = Path(folder) / "trace.pcapng"
    run = virtual.run(
        experiment, experiment.transports[0], 7, lambda _done: None, Wanted(CAPTURED, 0, path),
        with_acts=True,
    )  # fmt: skip
    names = run.hosts
    ends = [(names[row["source"]], names[row["destination"]]) for row in run.messages]
    links = {link["name"]: link for link in run.links}
    events = {name: column.tolist() for name, column in run.events.items()}
    old = {new: old for old, new in RENAMED["events"].items()}
    events["event"] = [old.get(name, name) for name in events["event"]]
    return {
        "messages": repr((ends, [tuple(row)[2:] for row in run.messages.tolist()])).encode(),
        "events": json.dumps(events).encode(),
        "links": json.dumps(links, sort_keys=True).encode(),
        "capture": path.read_bytes(),
    }


def policies(folder):
    """The tutorials' policies and the labs' model solutions: how an experiment names them."""
    examples = (paths.PROJECT_ROOT / "examples/transports").glob("*.py")
    texts = {path.name: path.read_text() for path in examples}
    texts |= {f"lab{number}.py": solution(number) for number in range(1, 7)}
    found = {}
    for name, text in texts.items():
        file = Path(folder, name)
        file.write_text(text)
        hosted = re.search(r"^class (\w+)\(MessagePolicy\)", text, re.M)[1]
        found[f"{name}:{hosted}"] = f"{{policy: {file}:{hosted}, label: own}}"
    return found


def digests():
    """Of the run of every transport, and of every policy that the documents tell of."""
    with tempfile.TemporaryDirectory() as folder:
        names = {name: name for name in ALL} | policies(folder)
        runs = {name: traces(of(transport), folder) for name, transport in names.items()}
    return {
        name: {what: hashlib.sha256(data).hexdigest()[:32] for what, data in run.items()}
        for name, run in runs.items()
    }


def test_two_processes_write_the_same_bytes(tmp_path):
    """Whatever PYTHONHASHSEED says, for every transport: all but the manifest's environment."""
    file = tmp_path / "determined.yaml"
    file.write_text(TEXT.replace("TRANSPORTS", ", ".join(ALL)))
    line = [sys.executable, "-m", "softroce_lab.cli", "run", file, "-q", "--capture", "-o"]
    written = []
    for hash_seed in ("1", "2"):
        under = tmp_path / hash_seed
        subprocess.run(
            [*line, under, "--set", "payload=verify"],
            env=os.environ | {"PYTHONPATH": str(paths.PROJECT_ROOT), "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.DEVNULL, check=True, timeout=300,
        )  # fmt: skip
        directory = (under / "latest").resolve()
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        manifest = json.loads(files.pop("manifest.json"))
        del manifest["environment"]
        written.append((manifest, files))
    assert written[0] == written[1]
    files = written[0][1]
    assert sum(name.endswith(".pcapng") for name in files) == len(ALL)
    tables = {"messages.parquet", "events.parquet", "links.json", "stats.json"}
    assert tables < set(files)


@pytest.mark.skipif(
    platform.machine() not in json.loads(DIGESTS.read_text()),
    reason="no digests of this architecture are kept",
)
def test_another_machine_wrote_the_same_bytes():
    kept = json.loads(DIGESTS.read_text())[platform.machine()]
    assert digests() == kept


@pytest.mark.parametrize("transport", ALL)
def test_a_host_and_a_link_more_change_no_other_stream(tmp_path, transport):
    more = [
        ("h2: {kind: host}, s1", "h2: {kind: host}, h3: {kind: host}, s5: {kind: switch}, s1"),
        (
            '    - {endpoints: ["s4:s2"',
            '    - {endpoints: ["h3:eth1", "s2:h3"], rate: 10Gbit limit 64 ecn 20, delay: 1us}\n'
            '    - {endpoints: ["s1:s5", "s5:s1"], rate: 1Gbit}\n'
            '    - {endpoints: ["s4:s2"',
        ),
    ]
    few = traces(of(transport), tmp_path)
    many = traces(of(transport, replaced=more), tmp_path)
    assert few["messages"] == many["messages"]
    assert few["events"] == many["events"]
    assert few["capture"] == many["capture"]
    counts = json.loads(few["links"]), json.loads(many["links"])
    assert len(counts[0]) + 4 == len(counts[1])
    for name, link in counts[0].items():
        del link["directed_link"], counts[1][name]["directed_link"]
        assert link == counts[1][name]


if __name__ == "__main__":
    machines = json.loads(DIGESTS.read_text()) if DIGESTS.is_file() else {}
    machines[platform.machine()] = digests()
    DIGESTS.write_text(json.dumps(machines, indent=1) + "\n")
