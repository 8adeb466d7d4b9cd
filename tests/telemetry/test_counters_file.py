# SPDX-License-Identifier: GPL-2.0-or-later
import fcntl
import os
import struct

import pytest

from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.telemetry import counters_file
from tests.native.connected import UC, Duo

DATA = _native.statistics(Duo().sides[0].endpoint)


def published(data, sequence=2):
    return data[:8] + struct.pack("=Q", sequence) + data[16:]


def test_what_is_known_of_a_queue_pair():
    snapshot = counters_file.parse(DATA)
    (qp,) = snapshot.qps
    assert (qp.number, qp.type, qp.state) == (19, "RC", "RTS")
    assert (qp.remote_number, qp.remote_address) == (19, "10.0.0.2")
    assert snapshot.qps_alive == 1
    assert snapshot.taken_ns > 0
    document = snapshot.document()
    assert document["qps"][0]["hw_counters"]["out_of_sequence"] == 0
    assert document["counters"]["port_xmit_data"] == 0


def test_a_queue_pair_that_knows_no_peer():
    endpoint = Duo(UC).sides[0].endpoint
    cq = endpoint.create_cq()
    endpoint.create_qp(4, cq, cq, 0, (1, 1, 1, 1, 0), 0, False)
    endpoint.create_qp(2, cq, cq, 0, (1, 1, 1, 1, 0), 0, False)
    _, datagrams, reset = counters_file.parse(_native.statistics(endpoint)).qps
    assert (datagrams.type, datagrams.remote_number) == ("UD", None)
    assert (reset.state, reset.remote_address) == ("RESET", None)


def test_of_very_many_queue_pairs_some_are_shown():
    endpoint = Duo().sides[0].endpoint
    cq = endpoint.create_cq()
    for _ in range(300):
        endpoint.create_qp(4, cq, cq, 0, (1, 1, 1, 1, 0), 0, False)
    snapshot = counters_file.parse(_native.statistics(endpoint))
    assert (snapshot.qps_alive, len(snapshot.qps)) == (301, 256)


@pytest.mark.parametrize("length", [*range(0, 200, 7), len(DATA) // 2, len(DATA) - 200])
def test_a_piece_of_it_is_refused(length):
    with pytest.raises(ValueError, match=r"counters|names"):
        counters_file.parse(DATA[:length])


def test_counters_of_a_version_with_other_names_are_refused():
    renamed = DATA.replace(b"octets_sent", b"octets_gone")
    assert renamed != DATA
    with pytest.raises(ValueError, match="this version"):
        counters_file.parse(renamed)


def test_a_file_that_nobody_holds_is_of_a_process_that_was_killed(tmp_path):
    path = tmp_path / "h1:eth1"
    path.write_bytes(published(DATA))
    assert not counters_file.read(path).alive
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    found = counters_file.read(path)
    os.close(fd)
    assert found.alive
    assert found.port == "h1:eth1"
    assert found.snapshot.qps[0].number == 19


def test_a_killed_process_may_have_been_writing(tmp_path):
    path = tmp_path / "h1:eth1"
    path.write_bytes(published(DATA, sequence=7))
    assert counters_file.read(path).snapshot.qps_alive == 1


def test_one_that_writes_all_the_time_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(counters_file, "_READ_S", 0.01)
    path = tmp_path / "h1:eth1"
    path.write_bytes(published(DATA, sequence=7))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="written all the time"):
            counters_file.read(path)


def test_foreign_files_are_told_by_name(tmp_path):
    (tmp_path / "h1:eth1").write_bytes(published(b"LABSTAT9" + bytes(200)))
    with pytest.raises(RunError, match=r"h1:eth1.*version"):
        counters_file.read_all(tmp_path)


def test_what_has_not_been_written_yet_is_left_out(tmp_path):
    (tmp_path / "h1:eth1").write_bytes(bytes(4096))
    (tmp_path / "h2:eth1.new").write_bytes(b"")
    assert counters_file.read_all(tmp_path) == []
    assert counters_file.read_all(tmp_path / "no") == []
