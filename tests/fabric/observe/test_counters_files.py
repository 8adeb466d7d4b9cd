# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.errors import LabError
from softroce_lab.fabric.observe import counters_files

PORT = topology.load("two-hosts").plain_hosts[0].ports[0]


def test_where_the_owner_of_a_port_publishes(tmp_path):
    (tmp_path / "stats").mkdir()
    assert counters_files.path_for(tmp_path, PORT) == f"{tmp_path}/stats/h1:eth1"


def test_what_killed_processes_left_goes(tmp_path):
    place = tmp_path / "stats"
    place.mkdir()
    (place / "h1:eth1").write_bytes(b"x")
    (place / "h2:eth1.new").write_bytes(b"x")
    counters_files.remove(place)
    assert not place.exists()
    counters_files.remove(place)  # a removal that was broken off and began again


def test_what_is_not_the_labs_stays(tmp_path):
    place = tmp_path / "stats"
    place.mkdir()
    (place / "notes").write_text("mine")
    with pytest.raises(LabError, match=r"did not make: notes"):
        counters_files.remove(place)
    assert (place / "notes").read_text() == "mine"
