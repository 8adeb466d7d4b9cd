# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError

STAR = "name: t\nmtu: {mtu}\ntopology: {{generator: {{kind: star, hosts: 2}}}}\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        file = tmp_path / "t.yaml"
        file.write_text(text)
        return file

    return write


@pytest.mark.parametrize(
    ("mtu", "why"),
    [
        (576, "mtu 576 is below 1280, the least that IPv6 takes"),
        (1279, "mtu 1279 is below 1280, the least that IPv6 takes"),
        (3499, "mtu 3499 is above 3498, the most that XDP on veth takes"),
    ],
)
def test_a_lab_has_an_mtu_that_ipv6_and_xdp_take(written, mtu, why):
    file = written(STAR.format(mtu=mtu))
    assert topology.load(file).mtu == mtu
    with pytest.raises(UserError) as refused:
        topology.load(file, for_lab=True)
    assert str(refused.value).startswith(f"{file}:2:6: {why}")
