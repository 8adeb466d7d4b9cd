# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run FILE --clock both`: what is wrong is said before anything runs."""

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--name", "nine"), "--name: no effect with --clock both"),
        (("--transport", "csa"), "unknown transport 'csa'\n  hint: did you mean 'csa_ud'"),
        (("--set", "workload.bites=1kB"), "workload.bites: unknown key 'bites'"),
        (("--set", "clock=real"), "--set clock: no effect with --clock"),
        (("--set", "seeds=3", "--seed", "1"), "--set seeds: no effect with --seed"),
        (
            ("--set", "transports.0=rc", "--transport", "csa_ud"),
            "--set transports.0: no effect with --transport",
        ),
        (("--set", "rnic=lru-512"), "rnic: the virtual clock alone has that"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", "crosscheck", "--clock", "both", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_too_few_seeds_are_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ("--set", "seeds=3", "--set", "rnic=lru-512")
    result = CliRunner().invoke(app, ["run", "crosscheck", "--clock", "both", *few])
    assert "lab: 3 seeds: of 16 comparisons none can be found to differ with fewer than 10" in (
        result.stderr
    )
