# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs whose RC queue pairs another transport carries."""

import pytest

from softroce_lab.telemetry import counters_file
from tests.programs.pair import ended, finished

TRANSPORTS = ("csa_ud", "irn", "falcon", "mrc")
ONE_WAY = [
    ("ib_write_bw", ["-n", "100"]),
    ("ib_send_bw", ["-n", "100", "-q", "2"]),
    ("ib_read_bw", ["-n", "100"]),
    ("ib_atomic_bw", ["-n", "200"]),
    ("ib_write_lat", ["-n", "200", "-s", "64"]),
]


def converse(pair, transport, program, *flags, client_transport=None):
    """Both ends of a program over a transport: (server, client)."""
    argv = [program, "-F", "-x", "0", *flags]
    with ended(pair.start("h2", *argv, flag=f"--transport={transport}")) as server:
        pair.await_listener(server)
        client_flag = f"--transport={client_transport or transport}"
        with ended(pair.start("h1", *argv, pair.address("h2"), flag=client_flag)) as client:
            return finished(server), finished(client)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("program", "flags"), ONE_WAY, ids=[each for each, _ in ONE_WAY])
def test_perftest_over_a_lossy_link(pair, transport, program, flags, tmp_path, monkeypatch):
    """It ends well, and no packet is RC's: the transport's carry all of it."""
    monkeypatch.setenv("SOFTROCE_COUNTERS", str(tmp_path))
    pair.lose("1%")
    for result in converse(pair, transport, program, *flags):
        assert result.returncode == 0, result.stdout + result.stderr
    processes = [counters_file.read(each).snapshot for each in tmp_path.iterdir()]
    assert len(processes) == 2
    for each in processes:
        assert each.counts["tx_connected"] == each.counts["rx_connected"] == 0
    assert sum(each.counts["tx_data"] for each in processes) >= 100


def test_ends_that_differ_are_told(pair):
    """The peer speaks another transport: requests end, and a line says why."""
    server, client = converse(pair, "csa_ud", "ib_write_bw", "-n", "10", client_transport="irn")
    assert server.returncode != 0 or client.returncode != 0
    assert "uses the transport csa_ud, this program irn" in client.stderr


def test_a_program_over_rc_is_told(pair):
    server, client = converse(pair, "rc", "ib_write_bw", "-n", "10", client_transport="csa_ud")
    assert client.returncode != 0
    assert "uses the transport rc, this program csa_ud" in client.stderr
    assert server.returncode != 0 or "transport" not in server.stderr
