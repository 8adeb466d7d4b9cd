# SPDX-License-Identifier: GPL-2.0-or-later
"""What the options of a transport permit is no violation, and what they do not permit is one.

A run keeps the rules of its own options. Its manifest then claims others, which it breaks.
"""

import json
import shutil

import pytest

from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.striped.suite import figures
from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from tests.check.plant import MS, check, failed

INCAST = """\
name: incast
topology:
  generator: {{kind: star, hosts: 4, access: {{rate: 25Gbit limit 16 trim, delay: 2us}}}}
workload: {{kind: incast, to: h1, bytes: 256KiB, message: 64KiB, repeat: 2}}
faults:
  - {{name: loss, links: "*->s1", loss: random 1%}}
  - {{name: late, links: "h2->s1", reorder: 3% by 5us}}
deadline: 1s
transports: [{transport}]
"""
SLEEK = "{name: uet_rud, options: {sleek: true}}"
PROBES = (
    "{name: uet_rud, options: "
    "{sleek: true, sleek_packets: 100, trimming: false, rto_init: 10ms, probe_rtts: 1}}"
)
TIMED = "{name: uccl, options: {duplicates: 1000}}"
EAGER = "{name: uccl, options: {duplicates: 8, spaced: false}}"
CLAIMS = [
    ("falcon", {"psn_window": 32}, "sr.window"),
    ("uet_rud", {"psn_window": 64}, "sr.window"),
    ("uet_rud", {"trimming": False}, "sr.only-holes"),
    ("uet_rod", {"psn_window": 24}, "sr.window"),
    (SLEEK, {"psn_window": 64}, "sr.window"),
    (SLEEK, {"sleek": False}, "sr.only-holes"),
    (PROBES, {"probe_rtts": 3}, "sr.probes"),
    ("uccl", {"psn_window": 64}, "sr.window"),
    ("uccl", {"duplicates": 40}, "sr.only-holes"),
    (TIMED, {"rto": 3 * MS}, "sr.only-holes"),
    (EAGER, {"spaced": True}, "sr.only-holes"),
    ("ndp", {"first_window": 8}, "sr.pulled"),
    ("ndp", {"pull_rate": 0.9}, "sr.pull-rate"),
    ("ndp", {"least_timeout": 10 * MS}, "sr.only-holes"),
]
JUDGED = {"sr.window", "sr.only-holes", "sr.probes", "sr.pulled", "sr.pull-rate"}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """The run directory of a transport's incast, made once."""
    made = {}

    def run(transport):
        if transport not in made:
            text = INCAST.format(transport=transport)
            experiment = spec.of(yaml_source.parse(text))
            under = tmp_path_factory.mktemp("run")
            wanted = Wanted(("*",), 256)
            outcome = experiment_run.run(experiment, Silent(), under=under, capture=wanted)
            assert outcome.passed
            made[transport] = outcome.directory
        return made[transport]

    return run


def claiming(folder, run, **options):
    """A copy of the run directory whose manifest claims other options."""
    shutil.copytree(run, folder)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["runs"][0]["options"] |= options
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("transport", dict.fromkeys(transport for transport, _, _ in CLAIMS))
def test_a_run_keeps_the_rules_of_its_options(run_of, transport):
    verdicts = check(run_of(transport), of=suites.Format.AUTO)
    assert failed(verdicts) == set()
    rules = {rule for name, _, rule in CLAIMS if name == transport}
    assert {verdicts[rule].outcome for rule in rules} == {Outcome.PASS}


@pytest.mark.parametrize(("transport", "claims", "rule"), CLAIMS)
def test_what_its_options_do_not_permit_is_found(tmp_path, run_of, transport, claims, rule):
    folder = claiming(tmp_path / "run", run_of(transport), **claims)
    assert failed(check(folder, of=suites.Format.AUTO)) & JUDGED == {rule}


@pytest.mark.parametrize("transport", ["irn", "uet_rod"])
def test_without_its_run_directory_a_capture_tells_uet_rod_from_irn(tmp_path, run_of, transport):
    """Both answer by PACKET_NACK. The receiver of `irn` keeps the packet that a NACK names."""
    (capture,) = suites.captures_of(run_of(transport))
    alone = tmp_path / "alone.pcapng"
    shutil.copy(capture, alone)
    assert set(figures(suites.evidence_of(alone, Options()))) == {transport}
    verdicts = check(alone, of=suites.Format.AUTO)
    assert failed(verdicts) == set()
    if transport == "uet_rod":
        assert "no run directory tells it" in verdicts["sr.window"].note
