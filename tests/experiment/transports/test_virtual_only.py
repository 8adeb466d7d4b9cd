# SPDX-License-Identifier: GPL-2.0-or-later
"""A transport that needs what only the simulated fabric knows is refused elsewhere."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import demo, spec
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.crosscheck import comparison
from softroce_lab.experiment.fuzz import seeds
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry

TEXT = """\
name: bound
topology: {generator: {kind: star, hosts: 4, access: {rate: 10Gbit, delay: 1us}}}
transports:
  - csa_ud
  - {name: oracle, window: 64}
workload: {kind: point-to-point, bytes: 64KiB}
clock: real
"""
JOBS = """\
name: bound
topology: {generator: {kind: star, hosts: 4, access: {rate: 10Gbit, delay: 1us}}}
workload:
  kind: jobs
  jobs:
    - {name: a, workload: {kind: incast, bytes: 1KiB, hosts: [h1, h2]}, transport: csa_ud}
    - {name: b, workload: {kind: incast, bytes: 1KiB, hosts: [h3, h4]},
       transport: oracle}
clock: real
"""


@pytest.mark.parametrize(("text", "line", "column"), [(TEXT, 5, 5), (JOBS, 8, 19)])
def test_the_real_clock_refuses_it_where_the_file_has_it(text, line, column):
    experiment = spec.of(yaml_source.parse(text, "bound.yaml"))
    with pytest.raises(UserError, match="the virtual clock alone has this transport") as caught:
        experiment_run.check(experiment)
    assert (caught.value.file, caught.value.line) == ("bound.yaml", line)
    assert caught.value.column == column
    assert "virtual" in caught.value.hint
    experiment_run.check(spec.of(yaml_source.parse(text.replace("real", "virtual"))))


def test_a_crosscheck_refuses_it():
    virtual, real = (
        spec.of(yaml_source.parse(TEXT.replace("real", clock))) for clock in ("virtual", "real")
    )
    with pytest.raises(UserError, match="the virtual clock alone"):
        comparison.run(virtual, real, Silent())


@pytest.mark.parametrize("clock", ["auto", "real"])
def test_the_demo_refuses_it_unless_it_is_simulated(clock):
    with pytest.raises(UserError, match="the virtual clock alone"):
        demo.run(demo.Options(transports=("oracle",), clock=clock), Silent())


def test_lists_of_all_transports_have_it_only_if_it_is_named(tmp_path):
    assert set(registry.known()) - set(registry.transports()) == {"lossless", "oracle", "shift"}
    file = tmp_path / "all.yaml"
    file.write_text("name: all\nexperiment: incast\ntransports: all\n")
    (combination,) = sweep_spec.load(file).combinations
    assert "oracle" not in [each.name for each in combination.experiment.transports]
    assert "oracle" not in [each.name for each in seeds.transports_of(None)]
    assert [each.name for each in seeds.transports_of(["oracle"])] == ["oracle"]
