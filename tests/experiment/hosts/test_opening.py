# SPDX-License-Identifier: GPL-2.0-or-later
"""What a messenger over several rails is made of: each rail's next hop, and the settings."""

import numpy as np
import pytest

from softroce_lab.experiment.hosts.messenger import RcSettings, connect_all, first_psn
from softroce_lab.experiment.hosts.opening import open_over
from softroce_lab.experiment.hosts.shift_messenger import ShiftMessenger
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.shift import Settings
from softroce_lab.shift.rails import Rails

MACS = (0x020000000001, 0x020000000002)  # of the next hop of each rail
RC = RcSettings(timeout=3, retry_count=1)
SHIFT = Settings(probe_interval_ns=100_000_000)
BYTES = 4096


def opened(rails, transport, **options):
    """Messengers of both hosts, connected."""
    made = {
        host: open_over(
            Transport.named(transport),
            list(zip((pair.side(host) for pair in rails.pairs), MACS, strict=True)),
            memory=np.zeros(BYTES, np.uint8),
            rc=RC,
            **options,
        )
        for host in range(2)
    }
    for pair in rails.pairs:
        pair.keep_sent()
    connect_all(made, [(0, 1)])
    return made


def exchange(rails, made, numbers):
    """Messages from host 0 to host 1, until their receives are over."""
    for number in numbers:
        made[1].post_receive(0, (0, 0, number), 0, 64)
        made[0].post_send(1, (0, 0, number), 0, 64)
    done = []
    for _ in range(2000):
        rails.pass_time(10_000)
        for messenger in made.values():
            messenger.step()
        done += [each for each in made[1].completions() if each.kind == "receive"]
        made[0].completions()
        if len(done) == len(numbers):
            return [each.key[2] for each in done]
    raise AssertionError(f"not over: {done}")


def next_hops(rails):
    """Where the frames of each rail went."""
    return [
        {int.from_bytes(frame[:6], "big") for _, _, frame in pair.take_sent()}
        for pair in rails.pairs
    ]


@pytest.fixture
def rails():
    with Rails(delay_ns=1000) as made:
        yield made


def test_each_rail_of_a_backup_has_its_next_hop(rails):
    made = opened(rails, "shift")
    assert exchange(rails, made, [0]) == [0]
    assert next_hops(rails) == [{MACS[0]}, set()]
    rails.cut()
    assert exchange(rails, made, [1]) == [1]
    assert next_hops(rails) == [{MACS[0]}, {MACS[1]}]
    for messenger in made.values():
        messenger.close()


def test_each_rail_of_several_has_its_next_hop(rails):
    made = opened(rails, "rc")
    assert sorted(exchange(rails, made, [0, 1])) == [0, 1]
    assert next_hops(rails) == [{MACS[0]}, {MACS[1]}]
    for messenger in made.values():
        messenger.close()


def test_the_settings_reach_the_backup(rails, tmp_path):
    made = opened(rails, "shift", shift=SHIFT, statistics=str(tmp_path / "h1"))
    assert isinstance(made[0], ShiftMessenger)
    assert made[0].backup.settings == SHIFT
    rails.cut()
    exchange(rails, made, [0])
    assert (tmp_path / "h1.shift").exists()  # for lab inspect
    for messenger in made.values():
        messenger.close()


@pytest.mark.parametrize("transport", ["shift", "rc"])
def test_first_psns_follow_from_the_run(rails, transport):
    address = opened(rails, transport, qkey=7)[0].address(1)
    assert address.psn == first_psn(7, address.qp) != first_psn(0, address.qp)
