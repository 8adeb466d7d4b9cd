# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever a user's policy does, its run ends with a verdict that names file and line."""

import time

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.transports import policy_call
from tests import own_policy
from tests.experiment.transports.bad_policies import BAD, HEAD, names_line, states

EXPERIMENT = """
name: t
topology: leaf-spine
transports: [./mine.py:Mine, ud_rto]
workload: {kind: point-to-point, bytes: 1MiB, message: 64KiB}
faults: [{name: loss, links: "leaf*<->spine*", loss: 5%}]
"""


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(policy_call, "LIMIT_S", 1.0)
    monkeypatch.setattr(policy_call, "GRACE_S", 1.0)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_policy_fails_and_the_other_transport_runs(tmp_path, soon, name):
    body, line, why = BAD[name]
    (tmp_path / "mine.py").write_text(HEAD + body)
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    began = time.monotonic()
    outcome = experiment_run.run(spec.load(file), Silent(), under=tmp_path)
    assert time.monotonic() - began < 30
    mine, other = outcome.runs
    assert (mine.verdict, other.verdict) == ("failed", "passed")
    assert states(mine.reasons[0], why)
    assert names_line(mine.reasons[0], tmp_path / "mine.py", line), mine.reasons[0]


@pytest.mark.parametrize("packets", ["[]", "[0]", "np.array([0])"])
def test_packets_may_be_a_list(tmp_path, packets):
    text = "import numpy as np\n" + own_policy.named(
        "Mine",
        "    retransmitted = False\n"
        "    def on_sent(self, send, now_ns):\n"
        "        once = [] if self.retransmitted else [Retransmit(send, PACKETS)]\n"
        "        self.retransmitted = True\n"
        "        return [*once, *super().on_sent(send, now_ns)]\n",
    )
    (tmp_path / "mine.py").write_text(text.replace("PACKETS", packets))
    (tmp_path / "x.yaml").write_text(EXPERIMENT.replace("loss: 5%", "loss: 0%"))
    outcome = experiment_run.run(spec.load(tmp_path / "x.yaml"), Silent(), under=tmp_path)
    assert [run.verdict for run in outcome.runs] == ["passed", "passed"]


def test_a_thread_that_is_not_the_main_one_is_interrupted_too(tmp_path, soon):
    """As workers of a Dask cluster are."""
    import threading

    body, _, why = BAD["loops"]
    (tmp_path / "mine.py").write_text(HEAD + body)
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(experiment_run.run(spec.load(file), Silent(), under=tmp_path))
    )
    thread.start()
    thread.join(60)
    assert why in found[0].runs[0].reasons[0]
