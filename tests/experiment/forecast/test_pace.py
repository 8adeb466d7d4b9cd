# SPDX-License-Identifier: GPL-2.0-or-later
"""What the links allow and what the machine carries, packets a second."""

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.forecast import notes as forecasts

STAR = """
name: star
topology:
  generator: {{kind: star, hosts: 5, access: {{{access}}}}}
transports: [rc]
workload: {{{workload}}}
clock: real
"""
FRAME_BITS = 8 * (2048 + 106)  # path MTU and headers
INCAST = "kind: incast, to: h1, bytes: 16MiB"
ALL = "kind: all-to-all, bytes: 16MiB"


@pytest.fixture
def forecast(tmp_path, monkeypatch):
    """The forecast for a star, on a machine whose datagrams take so long."""

    def forecast(access="rate: 1Gbit, delay: 1us", workload=ALL, datagram_ns=3500, clock="real"):
        monkeypatch.setattr(forecasts, "datagram_ns", lambda: datagram_ns)
        file = tmp_path / "star.yaml"
        file.write_text(STAR.format(access=access, workload=workload))
        experiment = spec.load(file, [("clock", clock)])
        return forecasts.pace(experiment), experiment_run.notes(experiment)

    return forecast


def test_all_uplinks_or_the_one_link_of_the_receiver(forecast):
    found, _ = forecast(workload=ALL)
    assert found.expected == pytest.approx(5e9 / FRAME_BITS)
    found, _ = forecast(workload=INCAST)
    assert found.expected == pytest.approx(1e9 / FRAME_BITS)
    assert found.shaped_hops == 2


def test_a_slower_machine_carries_less_and_the_user_is_told(forecast):
    fast, notes = forecast(workload=INCAST, datagram_ns=1000)
    assert fast.expected <= fast.carried
    assert notes == []
    slow, notes = forecast(workload=INCAST, datagram_ns=20_000)
    assert slow.carried == pytest.approx(fast.carried / 20)
    (note,) = notes
    assert "about 58,000 packets/s over 2 shaped links each" in note
    assert "this machine carries about 35,000: the run will not be faithful" in note


@pytest.mark.parametrize(
    "changes",
    [{"clock": "virtual"}, {"access": "delay: 1us"}, {"workload": "kind: all-to-all, bytes: 1KiB"}],
)
def test_nothing_to_say(forecast, changes):
    found, notes = forecast(datagram_ns=10**9, **changes)
    assert found is None
    assert notes == []
