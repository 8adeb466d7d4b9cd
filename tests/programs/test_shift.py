# SPDX-License-Identifier: GPL-2.0-or-later
"""SHIFT under libibverbs: unmodified programs go on over a host's other NIC when one dies."""

import contextlib
import random
import re
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from benchmarks import instructions
from softroce_lab import paths
from softroce_lab.fabric.observe import counters_files
from softroce_lab.paths import PROJECT_ROOT
from tests.labs import eventually, prepare_verbs
from tests.programs import packages
from tests.programs.pair import TIMEOUT_S, ended, finished

SOURCES = Path(__file__).parent
SEED = 1
MOST_WAIT_S = 0.7
ASKS_S = 6
MOST_INSTRUCTIONS = 1.02  # with a backup over without, while nothing fails


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    made = tmp_path_factory.mktemp("stream") / "ordered_stream"
    source = SOURCES / "ordered_stream.c"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", source, "-o", made, paths.verbs_library()],
                   check=True, timeout=TIMEOUT_S)  # fmt: skip
    return made


def await_traffic(rails, packets):
    """Until so many more have left h1."""
    begun = rails.roce_packets("h1")
    assert eventually(lambda: rails.roce_packets("h1") > begun + packets, TIMEOUT_S)


@contextlib.contextmanager
def conversing(rails, command, *words):
    """A program with backups as server at h2 and as client at h1: both processes, under way."""
    with ended(rails.start("h2", *command, *words, flag="--shift")) as server:
        rails.await_listener(server)
        client = [*command, rails.address("h2"), *words]
        with ended(rails.start("h1", *client, flag="--shift", stdin=subprocess.PIPE)) as own:
            await_traffic(rails, 1000)
            yield server, own


def transitions(rails, host="h1"):
    port = rails.lab.plan.node(host).ports[0]
    return counters_files.transitions_of_port(rails.lab.directory, port)


def epoch(rails):
    return max((row["epoch"] for row in transitions(rails)), default=0)


def moments_of(name):
    """Random moments, and hosts; what is printed is seen if the test fails."""
    seed = f"{SEED} {name}"
    print(f"seed: {seed}")
    return random.Random(seed)


def kill_for_a_while(rails, stream, hosts, process):
    """The NIC of one of the hosts dies, until its other NIC has carried much, or the program ends.

    Programs' own TCP connections need the NIC again.
    """
    host = stream.choice(hosts)
    time.sleep(stream.uniform(0, MOST_WAIT_S))
    before = rails.roce_packets(host, 1)
    rails.fault("set", f"{host}:eth1", "down")
    assert eventually(
        lambda: rails.roce_packets(host, 1) > before + 1000 or process.poll() is not None
    ), f"{host}: {transitions(rails, host)}"
    rails.fault("clear")


def kill_nic(rails, stream):
    """The NIC of one of the hosts dies, and comes back once all has moved; then all returns."""
    before, host = epoch(rails), stream.choice(["h1", "h2"])
    assert before % 2 == 0
    time.sleep(stream.uniform(0, MOST_WAIT_S))
    rails.fault("set", f"{host}:eth1", "down")
    assert eventually(lambda: epoch(rails) == before + 1), transitions(rails)
    time.sleep(stream.uniform(0, MOST_WAIT_S))
    rails.fault("clear")
    assert eventually(lambda: epoch(rails) == before + 2), transitions(rails)


@pytest.mark.full("dying-nic-moments")
@pytest.mark.parametrize("mode", ["plain", "srq", "events", "extended", "forks", "refusals"])
def test_messages_come_once_and_in_order_and_memory_is_right(rails, stream, mode, full):
    deaths = 20 if full else 2
    random_moments = moments_of(mode)
    with conversing(rails, [stream], mode) as both:
        for _ in range(deaths):
            kill_nic(rails, random_moments)
        server, client = both
        client.stdin.close()
        client.stdin = None
        results = [finished(each) for each in (client, server)]
    assert [each.returncode for each in results] == [0, 0], results
    assert int(results[0].stdout.split()[0]) > deaths


def test_a_key_of_a_region_that_is_gone_is_invalid_at_the_backup(rails, stream):
    with conversing(rails, [stream], "regions") as (_, client):
        kill_nic(rails, moments_of("regions"))  # regions come and go at either NIC
        rails.fault("set", "h1:eth1", "down")
        assert eventually(lambda: epoch(rails) == 3)
        client.stdin.close()
        client.stdin = None
        result = finished(client)
    assert (result.returncode, result.stdout) == (0, "local protection error\n"), result.stderr


def test_a_peer_without_backups_is_asked_ever_more_rarely(rails, stream, tmp_path):
    packages.need("strace", "strace")
    trace = tmp_path / "trace"
    tracer = ["strace", "-f", "-qq", "-ttt", "-e", "trace=openat", "-o", trace]
    with ended(rails.start("h2", stream)) as server:
        rails.await_listener(server)
        line = [*tracer, stream, rails.address("h2")]
        with ended(rails.start("h1", *line, flag="--shift", stdin=subprocess.PIPE)) as client:
            time.sleep(ASKS_S)
            client.stdin.close()
            client.stdin = None
            assert finished(client).returncode == 0
    asked_s = [
        float(each)
        for each in re.findall(r"(\S+) openat\(.*\.backup\", O_RDONLY", trace.read_text())
    ]
    assert 5 < len(asked_s) < 15
    assert asked_s[-1] - asked_s[-2] > 1


@pytest.mark.full("dying-nic-perftest")
@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_bw", "ib_read_bw"])
def test_perftest_ends_well(rails, program, full):
    """Long: the NIC dies at 30 moments, once in each run."""
    command = [program, "-F", "-d", "softroce0", "-x", "0", "-n", "40000"]
    random_moments = moments_of(program)
    for _ in range(10 if full else 1):
        with conversing(rails, command) as both:
            kill_for_a_while(rails, random_moments, ["h1", "h2"], both[1])
            for each in both:
                result = finished(each, 2 * TIMEOUT_S)
                assert result.returncode == 0, result.stdout + result.stderr


def test_an_atomic_in_flight_surfaces(rails):
    command = ["ib_atomic_bw", "-F", "-d", "softroce0", "-x", "0", "-n", "400000"]
    with conversing(rails, command) as (_, client):
        rails.fault("set", "h1:eth1", "down")
        result = finished(client)
    assert result.returncode != 0
    assert "status 12" in result.stdout + result.stderr  # IBV_WC_RETRY_EXC_ERR


def test_a_port_that_is_down_is_no_event_for_a_program_with_a_backup(rails, tmp_path):
    made = tmp_path / "port_events"
    subprocess.run(["cc", SOURCES / "port_events.c", "-o", made, paths.verbs_library()],
                   check=True, timeout=TIMEOUT_S)  # fmt: skip
    with ended(rails.start("h1", made, "softroce0", flag="--shift")) as process:
        assert process.stdout.readline() == "active before\n"
        assert process.stdout.readline() == "active with a queue pair\n"
        rails.fault("set", "h1:eth1", "down")
        time.sleep(0.3)
        process.kill()
        assert process.stdout.read() == ""


def test_a_message_costs_what_it_costs_without_a_backup():
    prepare_verbs()
    packages.need("valgrind", "valgrind")
    found = instructions.measure(short=True)
    for verb, chain in product(instructions.VERBS, instructions.CHAINS):
        plain, shift = (
            found[f"{verb}_in_{chain}_{kind}_instructions"] for kind in ("plain", "shift")
        )
        assert plain < shift <= MOST_INSTRUCTIONS * plain, (verb, chain)


def test_a_host_with_one_nic_has_no_backup(pair):
    refused = pair.run("h1", "ibv_devinfo", flag="--shift")
    assert refused.returncode == 2
    assert "h1 has one RNIC, and --shift needs another for backups" in refused.stderr
    assert "lab up dual-rail" in refused.stderr


@pytest.mark.full("dying-nic-mpi")
def test_an_all_reduce_of_four_hosts_goes_on(rails, tmp_path, full):
    """UCX has one device, and shared receives. Long: the NIC dies at 30 moments, in ten runs."""
    source = PROJECT_ROOT / "examples/programs/allreduce.c"
    program = packages.built_for_mpi("mpirun.openmpi", source, tmp_path)
    agent = f"{sys.executable} -m softroce_lab.cli ssh --lab {rails.name}"
    line = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent,
            "-H", "h1,h2,h3,h4", "-x", "UCX_RC_TIMEOUT=100ms", "-x", "UCX_NET_DEVICES=softroce0:1",
            "--mca", "pml", "ucx", program, str(1 << 20), "2000"]  # fmt: skip
    random_moments, hosts = moments_of("mpi"), ["h1", "h2", "h3", "h4"]
    for _ in range(10 if full else 1):
        with ended(rails.start("h1", *line, flag="--shift")) as process:
            await_traffic(rails, 5000)
            for _ in range(3 if full else 1):
                kill_for_a_while(rails, random_moments, hosts, process)
            result = finished(process, 3 * TIMEOUT_S)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "all sums right" in result.stdout
