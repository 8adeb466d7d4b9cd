# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab new transport`: what it writes works, and it overwrites nothing."""

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.experiment.transports import policy_file
from tests.transports.pair_rig import SECOND_NS, PairRig, threshold


def new(*arguments):
    return CliRunner().invoke(app, ["new", "transport", *map(str, arguments)])


def test_the_template_is_a_transport_that_delivers(tmp_path):
    file = tmp_path / "mine.py"
    found = new(file)
    assert found.exit_code == 0
    assert f"--transport {file}:Mine" in found.output
    made = policy_file.entry(str(file), "Mine", policy_file.digest(file))
    assert [option.name for option in made.options] == ["rto"]
    rig = PairRig(made.policy, seed=3)
    for cable in rig.cables:
        cable.delay_ns, cable.loss = 100_000, threshold(0.1)
    rig.transfer((1, 2, 3), 300_000)
    rig.finish(within_ns=SECOND_NS)
    rig.check()


def test_an_existing_file_is_refused_and_kept(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("mine")
    found = new(file)
    assert found.exit_code == ExitCode.USAGE
    assert f"{file} exists" in found.stderr
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["mine", "mine.yaml", "no/such/mine.py"])
def test_a_bad_name_is_an_error_of_the_user(tmp_path, name):
    found = new(tmp_path / name)
    assert found.exit_code == ExitCode.USAGE
    assert "Traceback" not in found.stderr
