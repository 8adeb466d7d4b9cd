# SPDX-License-Identifier: GPL-2.0-or-later
"""Clients on three hosts, each with a server of its own at the fourth, as experiments.

Each host's RNIC sends what its data needs: no more without loss, and by the GID that was asked for.
"""

import dataclasses
import math

import pytest

from tests.labs import prepare_verbs
from tests.programs.experiments import MTU_BYTES, peers, run

CLIENTS = "h2", "h3", "h4"
TIMES, KIB = 100, 1 << 10
PINGPONG_SIZES = 64, 256, KIB, 4 * KIB, 64 * KIB, 1024 * KIB
SPARE = 1.1, 500  # what headers and a program's own messages add: share, packets
CONDITIONS = [(gid, loss) for gid in (0, 1) for loss in (None, "1%")]


@dataclasses.dataclass
class Program:
    command: str  # of both, but for the port
    server_port: str  # the option
    client_port: str
    ports: list[int]
    packets: int  # that a message of each needs, times messages
    senders: str = "clients"  # of data; or the server, or both
    gids: tuple[int, ...] = (0, 1)
    losses: tuple[str | None, ...] = (None, "1%")


def messages(*sizes, times=TIMES):
    return times * sum(math.ceil(size / MTU_BYTES) for size in sizes)


def perftest(test, senders):
    command = f"ib_{test}_bw -F -x {{gid}} -n {TIMES} -u 12"
    needed = messages(64 * KIB)
    return Program(command, "-p", "-p", [18601, 18602, 18603], needed, senders)


def ucx(transport):
    command = (
        f"env UCX_IB_GID_INDEX={{gid}} UCX_TLS={transport} UCX_NET_DEVICES=softroce0:1"
        f" UCX_RC_TIMEOUT=20ms ucx_perftest -t tag_bw -n {TIMES} -w 1 -s {64 * KIB}"
    )
    return Program(command, "-p", "-p", [13401, 13402, 13403], messages(64 * KIB))


def libfabric(provider, endpoint, sizes, **more):
    command = f"env FI_VERBS_GID_IDX={{gid}} fi_pingpong -p '{provider}' -e {endpoint} -c -I 5"
    needed = messages(*sizes, times=5)
    return Program(command, "-B", "-P", [47601, 47602, 47603], needed, "both", **more)


PROGRAMS = {
    "ib_write_bw": perftest("write", "clients"),
    "ib_read_bw": perftest("read", "server"),
    "ib_send_bw": perftest("send", "clients"),
    "ucx-rc": ucx("rc_v"),
    "ucx-ud": ucx("ud_v"),
    # Its connections are by the first address, whatever -6 and the GID say.
    "libfabric-rxm": libfabric("verbs;ofi_rxm", "rdm", PINGPONG_SIZES, gids=(0,)),
    # A datagram that is lost stays lost.
    "libfabric-dgram": libfabric("verbs", "dgram", PINGPONG_SIZES[:3], losses=(None,)),
}


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_verbs()


@pytest.mark.full("four-hosts")
@pytest.mark.parametrize("name", PROGRAMS)
def test_clients_of_three_hosts(tmp_path, full, name):
    """perftest, UCX and libfabric on four hosts: both GIDs, without loss and with 1 %."""
    program = PROGRAMS[name]
    offered = [each for each in CONDITIONS if is_offered(program, *each)]
    turn = list(PROGRAMS).index(name) % len(offered)
    for gid, loss in offered if full else [offered[turn]]:
        command = program.command.format(gid=gid)
        servers = [f"{command} {program.server_port} {port}" for port in program.ports]
        commands = {"h1": {"run": " & ".join(servers) + "; wait", "listens": program.ports[-1]}}
        for host, port in zip(CLIENTS, program.ports, strict=True):
            line = f"{command} {program.client_port} {port} h1"
            commands[host] = {"run": line, "after": "h1", "retries": 20}
        found, recorded = run(tmp_path, 4, {"commands": commands}, loss)
        assert found["verdict"] == "passed", (found["runs"][0]["reasons"], recorded["programs"])
        check_packets(program, recorded["programs"], loss)
        assert {":" in address for address in peers(found)} <= {gid == 1}


def is_offered(program, gid, loss):
    return gid in program.gids and loss in program.losses


def check_packets(program, hosts, loss):
    share, more = SPARE
    for host, each in hosts.items():
        sends = program.senders in ("both", "server" if host == "h1" else "clients")
        needed = program.packets * sends * (len(CLIENTS) if host == "h1" else 1)
        sent = sum(one["packets_sent"] - one["retransmitted"] for one in each["processes"])
        assert needed <= sent, (host, needed, sent)
        assert loss or sent <= needed * share + more, (host, needed, sent)
