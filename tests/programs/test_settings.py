# SPDX-License-Identifier: GPL-2.0-or-later
"""How a program's RNIC gets the engine's configuration: lines of its settings, or the environment.

A device that is refused is not there, and stderr has one line.
"""

import os
import subprocess

import pytest

from softroce_lab import _native, paths, topology
from softroce_lab.experiment.hosts import program_transport
from softroce_lab.transports import registry
from tests.programs.pair import TIMEOUT_S

DEVICE = "device softroce0\nguid 0x1\ngid ::ffff:10.0.0.1\npath_mtu 1024\n"
OTHER = "device softroce1\nguid 0x2\ngid ::ffff:10.0.1.1\npath_mtu 1024\n"
ONE, NONE = "1 HCA found:\n\tsoftroce0\n\n", "0 HCAs found:\n\n"


def text_of(argument):
    chosen = program_transport.of_argument(argument)
    return program_transport.text(chosen, topology.load("two-hosts"))


def lines_of(argument):
    config = _native.MessageConfig.from_text(text_of(argument), one_line=True)
    return "".join(f"engine.{line}\n" for line in config.text().splitlines())


@pytest.fixture
def listed(pair, tmp_path):  # pair: the library is built
    """Lists the devices of a program with these settings and variables: stdout and stderr."""

    def run(*settings, **variables):
        files = [tmp_path / f"settings{number}" for number in range(len(settings))]
        for file, text in zip(files, settings, strict=True):
            file.write_text(text)
        environment = {
            **os.environ,
            "SOFTROCE_VERBS": ":".join(map(str, files)),
            "LD_LIBRARY_PATH": str(paths.verbs_library().parent),
            **variables,
        }
        done = subprocess.run(["ibv_devinfo", "-l"], env=environment, capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)  # fmt: skip
        return done.stdout, done.stderr

    return run


@pytest.mark.parametrize("name", registry.transports(registry.Kind.SESSION))
def test_a_program_accepts_every_transport(listed, name):
    assert listed(DEVICE, SOFTROCE_TRANSPORT=text_of(name)) == (ONE, "")
    assert listed(DEVICE + lines_of(name)) == (ONE, "")


def test_an_empty_variable_is_none(listed):
    assert listed(DEVICE, SOFTROCE_TRANSPORT="") == (ONE, "")


def changed(before, after):
    text = text_of("csa_ud")
    assert before in text
    return text.replace(before, after)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("paths=8", "paths=eight", "paths: 'eight' is not a whole number from 0 to 4294967295"),
        ("paths=8", "paths=99", "paths must be 1 to 16"),
        ("paths=8", "colour=blue", "'colour' is not a setting of the engine"),
        ("=csa_ud", "=csa_du", "programs have no transport 'csa_du'"),
        ("=csa_ud", "=oracle", "programs have no transport 'oracle'"),
        ("=csa_ud", "=python_policy", "programs have no transport 'python_policy'"),
        ("=csa_ud", "=policy", "carries_operations must be true with a transport, else false"),
        ("operations=true", "operations=false", "carries_operations must be true with"),
        ("=csa_ud", "=irn", "options.path_picker is missing"),
        (",options.probes=true", "", "options.probes is missing"),
        (
            "options.probes=true",
            "options.probes=1",
            "options.probes: csa_ud does not accept this value",
        ),
        ('parity="auto"', 'parity="9"', "options.parity: csa_ud does not accept this value"),
        ("budget=0.15", "budget=1.5", "options.parity_budget: csa_ud does not accept this value"),
        ("framing=ud", "framing=ud,options.x=1", "options.x: csa_ud does not have this option"),
        ("framing=ud", "framing=uc_immediate", "programs need the framing ud"),
        ("payload=true", "payload=false", "programs need the framing ud, and packets with"),
        ("schedule=least-left", "schedule=last", "unknown schedule 'last'"),
    ],
)
def test_a_wrong_variable_leaves_no_device(listed, before, after, why):
    printed, complaint = listed(DEVICE, OTHER, SOFTROCE_TRANSPORT=changed(before, after))
    assert printed == NONE
    assert complaint.startswith(f"softroce: SOFTROCE_TRANSPORT: {why}")
    assert complaint.count("\n") == 1


def test_a_wrong_line_leaves_its_device_out(listed, tmp_path):
    file = tmp_path / "settings1"
    for line, place, why in [
        ("engine.paths 8 9", ":5", "paths: '8 9' is not a whole number from 0 to 4294967295"),
        ("engine.colour blue", ":5", "'colour' is not a setting of the engine"),
        ("engine.", ":5", "'' is not a setting of the engine"),
        ("engine.paths 99", "", "paths must be 1 to 16"),
        ("engine.transport irn", "", "carries_operations must be true with a transport"),
    ]:
        printed, complaint = listed(DEVICE, f"{OTHER}{line}\n")
        assert printed == ONE
        assert complaint.startswith(f"softroce: {file}{place}: {why}")
        assert complaint.count("\n") == 1


def test_only_queue_pairs_of_rc_have_backups(listed):
    refused = listed(DEVICE, OTHER, SOFTROCE_TRANSPORT=text_of("irn"), SOFTROCE_SHIFT="1")
    complaint = "softroce: SOFTROCE_SHIFT: queue pairs over irn have no backups\n"
    assert refused == (NONE, complaint)
