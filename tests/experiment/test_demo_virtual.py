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
from softroce_lab.experiment.reporter import Silent
from tests import own_policy


class Recording(Silent):
    """Records how far each transport came, in messages."""

    def __init__(self):
        self.delivered = {}

    def run(self, name, messages):
        return lambda done: self.delivered.update({name: done})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes((2 << 20) + 12345))
    return path


def run(file, tmp_path, reporter=None, **options):
    return demo.run(
        Options(file=file, runs=tmp_path / "runs", clock="virtual", **{"seed": 1, **options}),
        reporter or Silent(),
    )


def test_the_file_arrives_and_transports_lose_the_same_packets(file, tmp_path):
    reporter = Recording()
    outcome = run(file, tmp_path, reporter)
    assert outcome.verified
    assert outcome.lost_any_first
    assert outcome.same_fates
    size = file.stat().st_size
    assert reporter.delivered == {"csa_ud": 3, "ud_rto": 3}
    for row in outcome.rows():
        assert (row["clock"], row["bytes"], row["emulator_drops"]) == ("virtual", size, 0)
        assert 1e9 < row["goodput_bps"] < 1e10
        assert 0 < row["retransmitted"] <= row["injected_drops"] + row["spurious_retransmissions"]
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
    ends = {"faults": (), "capture": Wanted(("ends",), 0)}
    both = run(file, tmp_path, transports=("rc",), **ends)
    [capture] = both.captures
    assert capture["file"].endswith("/trace.pcapng")
    assert len(capture["interfaces"]) == 4


def test_losses_are_compared_where_packets_say_what_they_carry(file, tmp_path):
    outcome = run(file, tmp_path, transports=("csa_ud", "irn", "rc"))
    assert outcome.verified
    assert [each.transport for each in outcome.telling] == ["csa_ud", "irn"]
    assert outcome.same_fates is True
    alone = run(file, tmp_path, transports=("rc",))
    assert alone.rows()[0]["injected_drops"] > 0
    assert (alone.same_fates, alone.lost_any_first) == (None, False)


def test_bad_input_is_found_before_anything_is_written(file, tmp_path):
    with pytest.raises(UserError, match="has no host 'h9'"):
        run(file, tmp_path, source="h9")
    with pytest.raises(UserError, match="unknown transport 'tcp'"):
        run(file, tmp_path, transports=("tcp",))
    assert not (tmp_path / "runs").exists()


def test_the_received_file_is_saved_whole_or_not_at_all(file, tmp_path):
    saved = tmp_path / "saved"
    assert run(file, tmp_path, save=saved).verified
    assert saved.read_bytes() == file.read_bytes()
    assert not list(tmp_path.glob(".saved*"))


def test_buffers_that_do_not_fit_into_memory_are_refused(tmp_path):
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="of memory"):
        run(sparse, tmp_path, depth=256, message_bytes=1 << 28)
    assert not (tmp_path / "runs").exists()


OWN = own_policy.named("Own")


def test_a_transport_of_ones_own(file, tmp_path, monkeypatch):
    """Relative to the working directory; one that fails is a verdict."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    outcome = run(file, tmp_path, transports=("own.py:Own", "own.py:SackTimer"))
    assert outcome.verified
    own, like = (row["makespan_ns"] for row in outcome.rows())
    assert own == like
    (tmp_path / "own.py").write_text(OWN.replace("pass", "on_sent = None"))
    outcome = run(file, tmp_path, transports=("own.py:Own",))
    assert not outcome.verified
    assert outcome.runs[0].reasons[0].startswith(str(tmp_path / "own.py"))
