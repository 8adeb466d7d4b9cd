# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo as a simulation: a file's bytes, the faults of the lab's demo, no lab."""

import json

import numpy as np
import pytest
from scapy.utils import RawPcapNgReader

from softroce_lab.errors import UserError
from softroce_lab.experiment import demo
from softroce_lab.experiment.capturing import NOTHING, Wanted
from softroce_lab.experiment.demo import Options


class Silent:
    """Hears how far each transport came."""

    def __init__(self):
        self.told = {}

    def say(self, text):
        pass

    def transfer(self, transport, total_bytes):
        return lambda received: self.told.update({transport: received})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes((2 << 20) + 12345))
    return path


def run(file, tmp_path, reporter=None, **options):
    return demo.run(
        Options(file=file, runs=tmp_path / "runs", seed=1, clock="virtual", **options),
        reporter or Silent(),
    )


def test_the_file_arrives_and_transports_lose_the_same_packets(file, tmp_path):
    reporter = Silent()
    outcome = run(file, tmp_path, reporter)
    assert outcome.verified
    assert outcome.lost_any_first
    assert outcome.same_fates
    size = file.stat().st_size
    assert reporter.told == {"csa_ud": size, "ud_rto": size}
    for row in outcome.rows():
        assert (row["clock"], row["bytes"], row["emulator_drops"]) == ("virtual", size, 0)
        assert 1e9 < row["goodput_bps"] < 1e10
        assert 0 < row["resent"] <= row["injected_drops"] + row["spurious_resent"]
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    assert (manifest["clock"], manifest["state"], manifest["name"]) == ("virtual", "done", "demo")


def test_each_run_is_captured_where_the_demo_of_a_lab_is(file, tmp_path):
    outcome = run(file, tmp_path)
    names = [outcome.directory / f"trace-{name}-1.pcapng" for name in ("csa_ud", "ud_rto")]
    assert [each["file"] for each in outcome.captures] == list(map(str, names))
    for name, each in zip(names, outcome.captures, strict=True):
        with RawPcapNgReader(str(name)) as reader:
            assert sum(1 for _ in reader) == each["captured"] > 100
        assert [link["name"] for link in each["interfaces"]] == ["leaf1->spine1"]
    assert run(file, tmp_path, capture=NOTHING).captures == []
    both = run(file, tmp_path, transports=("rc",), capture=Wanted(("ends",), 0))
    [capture] = both.captures
    assert capture["file"].endswith("/trace.pcapng")
    assert len(capture["interfaces"]) == 4


def test_a_seed_is_one_run(file, tmp_path):
    first, second = (run(file, tmp_path / name) for name in "ab")
    assert first.rows() == second.rows()


def test_losses_are_compared_where_packets_say_what_they_carry(file, tmp_path):
    outcome = run(file, tmp_path, transports=("csa_ud", "irn", "rc"))
    assert outcome.verified
    assert [each.transport for each in outcome.telling] == ["csa_ud", "irn"]
    assert outcome.same_fates is True
    alone = run(file, tmp_path, transports=("rc",))
    assert alone.rows()[0]["injected_drops"] > 0
    assert (alone.same_fates, alone.lost_any_first) == (None, False)


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_any_size(tmp_path, size):
    path = tmp_path / "small"
    path.write_bytes(b"x" * size)
    outcome = run(path, tmp_path, transports=("csa_ud", "rc"))
    assert outcome.verified
    assert [row["bytes"] for row in outcome.rows()] == [size, size]


def test_a_shaped_fabric_keeps_its_shape(file, tmp_path):
    far = {"topology": "two-sites", "faults": (), "capture": NOTHING}
    outcome = run(file, tmp_path, transports=("csa_ud",), message_bytes=4096, **far)
    assert outcome.verified
    assert outcome.rows()[0]["fct_p50_ns"] > 2 * 1_000_000


def test_bad_input_is_found_before_anything_is_written(file, tmp_path):
    with pytest.raises(UserError, match="has no host 'h9'"):
        run(file, tmp_path, source="h9")
    with pytest.raises(UserError, match="unknown transport 'tcp'"):
        run(file, tmp_path, transports=("tcp",))
    assert not (tmp_path / "runs").exists()
