# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab model sdr`: options with units, the table, the document, and what its page shows."""

import itertools
import json
import re

import pytest
from typer.testing import CliRunner

from softroce_lab import paths
from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.transports.model import ring, sdr
from softroce_lab.transports.model.sdr import Scenario, predict

PAGE = (paths.PROJECT_ROOT / "docs/explanation/sdr.md").read_text()


def model(*arguments):
    return CliRunner().invoke(app, ["model", "sdr", *map(str, arguments)])


def document(*arguments):
    found = model(*arguments, "--json")
    assert found.exit_code == 0, found.stderr
    return json.loads(found.output)


def test_the_document_has_every_combination_by_every_scheme():
    found = document(
        "--set", "message=1MiB", "--set", "message=64MiB", "--set", "loss=0", "--set", "loss=1%"
    )
    assert (found["schema_version"], found["rtt_ns"], found["sites"]) == (1, 25e6, None)
    places = [(cell["message_bytes"], cell["loss"]) for cell in found["cells"]]
    assert places == [*itertools.product((1 << 20, 64 << 20), (0, 0.01))]
    last = found["cells"][-1]
    expected = predict(Scenario(64 << 20, 0.01))
    assert set(last["schemes"]) == set(expected) == {"sr_rto", "sr_nack", "mds", "xor"}
    for name, completion in expected.items():
        about = last["schemes"][name]
        assert about["mean_ns"] == completion.mean_ns
        assert about["p99_9_ns"] == completion.quantile_ns(0.999)
        assert about["slowdown"] == about["mean_ns"] / last["lossless_ns"]
        assert ("fallback" in about) == (name in {"mds", "xor"})
    assert last["fastest"] == {"mean_ns": "mds", "p99_9_ns": "mds"}
    assert found["cells"][0]["fastest"]["mean_ns"] == "sr_rto"


def test_options_have_units():
    found = document(
        "--set", "distance=75km", "--set", "bandwidth=100Gbit", "--set", "chunk=32KiB",
        "--set", "k=16", "--set", "m=4",
        "--set", "alpha=1", "--set", "beta=0.5",
    )  # fmt: skip
    (cell,) = found["cells"]
    expected = Scenario(
        128 << 20, 1e-3, 5e5, 100e9, 32 << 10, alpha=1, beta=0.5, data_chunks=16, parity_chunks=4
    )
    for name, completion in predict(expected).items():
        assert cell["schemes"][name]["mean_ns"] == completion.mean_ns
    assert document("--set", "rtt=500us")["rtt_ns"] == 5e5


def test_loss_of_packets():
    (cell,) = document("--set", "loss=0.01%", "--set", "packet=4KiB")["cells"]
    assert cell["loss"] == pytest.approx(sdr.chunk_loss(1e-4, 16))


def test_a_ring_over_sites():
    changes = ("message=128MiB", "loss=1%", "sites=4", "draws=200")
    options = tuple(word for each in changes for word in ("--set", each))
    found = document(*options, "--seed", "3")
    (cell,) = found["cells"]
    assert (cell["message_bytes"], cell["chunks"]) == (128 << 20, 512)
    assert cell["lossless_ns"] == ring.steps_of(4) * Scenario(32 << 20, 0.01).lossless_ns
    for about in cell["schemes"].values():
        least, most = about["mean_bounds_ns"]
        # What is too rare to be drawn is in the bounds alone.
        slack = 5 * about["standard_error_ns"] + 1e-6 * least
        assert least - slack < about["mean_ns"] < most + slack
    assert found == document(*options, "--seed", "3")
    assert found != document(*options, "--seed", "4")
    assert re.search(r"4 sites, 200 draws$", model(*options).output.splitlines()[0])
    assert "*" in model(*options).output  # 200 draws have no p99.9


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "loss=50%"], "0.5 is outside of the model"),
        (["--set", "loss=0.001"], "has no unit"),
        (["--set", "message=0"], "the message is 0"),
        (["--set", "distance=3750"], "distance '3750' has no unit"),
        (["--set", "distance=5km", "--set", "rtt=5ms"], "--set rtt say the same"),
        (["--set", "packet=3000B"], "no multiple of a packet of 3000 bytes"),
        (["--set", "packet=0"], "no multiple of a packet of 0 bytes"),
        (["--set", "message=1MiB", "--set", "sites=32"], "a chunk of 65,536 bytes is larger"),
        (["--set", "k=x"], "--set k=x: expected a whole number"),
        (["--set", "sites=1"], "a ring of 1 sites"),
        (["--set", "beta=inf"], "beta is inf, not from 0 to 1,000,000"),
        (["--set", "draws=100"], "--set draws: no effect without --set sites"),
        (["--set", "draws=1", "--set", "sites=2"], "at least 2, at most 1,000,000"),
        (["--set", "los=1%"], "the model has no los"),
        (["--seed", "7"], "--seed: no effect without --set sites"),
    ],
)
def test_bad_input_is_an_error_of_the_user(arguments, problem):
    found = model(*arguments)
    assert found.exit_code == ExitCode.USAGE
    assert problem in found.stderr


def test_the_document_shows_what_is_printed():
    shows = re.compile(r"^    lab model sdr (.*)\n\n((?:    .*\n)+)", re.MULTILINE)
    [(command, shown)] = shows.findall(PAGE)
    printed = model(*command.split()).output
    assert [line.split() for line in shown.splitlines()] == [
        line.split() for line in printed.splitlines()
    ]
