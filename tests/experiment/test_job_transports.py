# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs with transports of their own, on both clocks."""

import secrets

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import real, spec, virtual
from softroce_lab.experiment.forecast import notes as forecast
from softroce_lab.fabric import lab as fabric
from softroce_lab.inputs import yaml_source
from tests import patience

FILE = """\
name: NAME
topology: {generator: {kind: star, hosts: 6, access: ACCESS}}
TRANSPORTS
workload:
  kind: jobs
  jobs:
    - {name: a, A workload: {kind: incast, hosts: [h1, h2, h3], bytes: 64KiB}}
    - {name: b, B workload: {kind: all-to-all, hosts: [h4, h5, h6], bytes: 64KiB}}
payload: verify
clock: CLOCK
faults: [{name: loss, links: "*->s1", loss: 1%}]
"""
FAST = "{rate: 100Gbit, delay: 1us}"


def of(*, transports="", a="", b="", clock="virtual", access=FAST, faults=None):
    text = FILE.replace("NAME", f"t{secrets.token_hex(3)}").replace("CLOCK", clock)
    text = text.replace("ACCESS", access).replace("TRANSPORTS", transports)
    text = text.replace("A workload", f"{a} workload").replace("B workload", f"{b} workload")
    if faults is not None:
        text = text.replace("loss: 1%", faults)
    return spec.of(yaml_source.parse(text, "jobs.yaml"))


def runs(experiment):
    return [virtual.run(experiment, each, 1, lambda _: None) for each in experiment.transports]


def figures(run):
    return {name: job["transport"] for name, job in run.summary()["jobs"].items()}


RC = "transport: {name: rc, window: 32},"


def test_each_job_has_its_own():
    (run,) = runs(of(a=RC, b="transport: csa_ud,"))
    assert run.verdict == "passed", run.reasons
    assert run.transport == "rc+window=32 & csa_ud"
    assert figures(run) == {"a": "rc+window=32", "b": "csa_ud"}
    assert set(run.policies) == {"h4", "h5", "h6"}  # rc has no policy


def test_a_job_without_one_has_that_of_the_run():
    found = runs(of(transports="transports: [irn, csa_ud, rc]", a=RC))
    assert all(run.verdict == "passed" for run in found)
    assert [figures(run) for run in found] == [
        {"a": "rc+window=32", "b": each} for each in ("irn", "csa_ud", "rc")
    ]
    of_a = [run.messages[run.messages["source"] < 3] for run in found]
    assert all((each == of_a[0]).all() for each in of_a)  # links of their own: no influence


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "jobs.yaml:1:1: key 'transports' is missing"),
        ({"a": RC}, "jobs.yaml:1:1: key 'transports' is missing"),
        (
            {"transports": "transports: [rc]", "a": RC, "b": RC},
            "jobs.yaml:3:1: every job has a transport of its own",
        ),
        ({"a": "transport: csa,", "b": RC}, "jobs.yaml:7:28: unknown transport 'csa'"),
        ({"a": "transport: ./no.py:X,", "b": RC}, "jobs.yaml:7:28: "),
        (
            {"a": "transport: {name: rc, window: 0},", "b": RC},
            "jobs.yaml:7:47: window: 0 is out of bounds",
        ),
        (
            {"a": "transport: {name: rc, label: x},", "b": "transport: {name: irn, label: x},"},
            "jobs.yaml:8:28: another transport is called 'x', too",
        ),
    ],
)
def test_mistakes_have_their_place(settings, error):
    with pytest.raises(UserError) as caught:
        of(**settings)
    assert str(caught.value).startswith(error)


def test_a_job_that_a_rule_cannot_hit_stays_and_is_noted():
    wanted = of(transports="transports: [irn, rc]", a=RC, faults="drop: {message: 0, iter: 1}")
    whole, left_out = forecast.compared(wanted)
    assert [each.label for each in whole.transports] == ["irn"]
    assert [each.transport for each in left_out] == ["rc"]
    assert forecast.blind_notes(wanted)[-1].startswith("rc+window=32: cannot be hit by loss")


def test_on_a_lab():
    slow = "{rate: 200Mbit, delay: 100us}"
    patient = f"transport: {{name: rc, window: 32, timeout: {patience.TIMEOUT}}},"
    wanted = of(a=patient, b="transport: csa_ud,", clock="real", access=slow)
    made = fabric.up(wanted.plan(1), ephemeral=True)
    try:
        run = real.run(wanted, wanted.transports[0], 1, lambda _: None, made)
    finally:
        made.down()
    assert run.verdict == "passed", run.reasons
    assert run.verified is True
    assert figures(run) == {"a": f"rc+window=32+timeout={patience.TIMEOUT}", "b": "csa_ud"}
    assert set(run.policies) == {"h4", "h5", "h6"}
