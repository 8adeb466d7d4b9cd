# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever a user's policy does, its run ends with a verdict that names file and line."""

import re
import time

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.transports import watchdog
from tests.experiment.transports.bad_policies import BAD, BAD_MESSAGE, HEAD, MESSAGE_HEAD

EXPERIMENT = """
name: t
topology: leaf-spine
transports: [./mine.py:Mine, ud_rto]
workload: {kind: point-to-point, bytes: 1MiB, message: 64KiB}
faults: [{name: loss, links: "leaf*<->spine*", loss: 5%}]
"""


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(watchdog, "LIMIT_S", 1.0)


FILES = {name: (HEAD, *bad) for name, bad in BAD.items()} | {
    f"message policy {name}": (MESSAGE_HEAD, *bad) for name, bad in BAD_MESSAGE.items()
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_policy_fails_and_the_other_transport_runs(tmp_path, soon, name):
    head, body, line, why = FILES[name]
    (tmp_path / "mine.py").write_text(head + body)
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    began = time.monotonic()
    outcome = experiment_run.run(spec.load(file), Silent(), under=tmp_path)
    assert time.monotonic() - began < 30
    mine, other = outcome.runs
    assert (mine.verdict, other.verdict) == ("failed", "passed")
    assert why in mine.reasons[0]
    place = re.match(re.escape(str(tmp_path / "mine.py")) + r":(\d+): ", mine.reasons[0])
    assert place, mine.reasons[0]
    first, last = line if isinstance(line, tuple) else (line, line)
    assert first <= int(place[1]) <= last


@pytest.mark.parametrize("packets", ["[]", "[0]", "np.array([0])"])
def test_packets_may_be_a_list(tmp_path, packets):
    body = (
        "    retransmitted = False\n"
        "    def on_sent(self, event, now_ns):\n"
        "        once = [] if self.retransmitted else [Retransmit(event.handle, PACKETS)]\n"
        "        self.retransmitted = True\n"
        "        return [*once, *super().on_sent(event, now_ns)]\n"
    ).replace("PACKETS", packets)
    (tmp_path / "mine.py").write_text(HEAD + body)
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
