# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.topology import limits

STAR = "name: t\nmtu: {mtu}\ntopology: {{generator: {{kind: star, hosts: 2}}}}\n"
FAT_TREE = "name: t\ntopology: {{generator: {{kind: fat-tree, k: {k}}}}}\n"


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


@pytest.mark.parametrize("mtu", [1280, 3498])
def test_the_least_and_the_largest_mtu_are_taken(written, mtu):
    assert topology.load(written(STAR.format(mtu=mtu)), for_lab=True).mtu == mtu


def test_a_fat_tree_of_k_14_has_more_ports_than_a_lab(written):
    assert 2 * len(topology.load(written(FAT_TREE.format(k=12)), for_lab=True).links) == 2592
    file = written(FAT_TREE.format(k=14))
    with pytest.raises(UserError) as refused:
        topology.load(file, for_lab=True)
    assert str(refused.value).startswith(f"{file}:2:11: t has 4116 ports")
    assert "at most 4000" in refused.value.what


def test_the_page_names_the_limit_of_ports():
    page = (PROJECT_ROOT / "docs/howto/fabric.md").read_text()
    assert f"at most {limits.MAX_PORTS:,} ports" in page
