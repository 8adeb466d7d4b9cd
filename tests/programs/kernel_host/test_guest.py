# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel hosts on a lab's switches: one lab of two guests, one with Debian's older kernel.

Without QEMU there are none, and so no tests: `./lab test`, as root, installs it.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.fabric import lab, runtime
from softroce_lab.fabric.ledger import ledger
from softroce_lab.fabric.net import netns
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.programs.kernel_host import guest
from softroce_lab.programs.kernel_host import machine as guest_machine

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which(guest_machine.PROGRAM) is None,
    reason="needs root and qemu-system-x86",
)

LAB = """
name: {name}
topology:
  nodes:
    h1: {{kind: host}}
    k1: {{kind: kernel}}
    k2: {{kind: kernel, kernel: 6.1, memory: 512MiB}}
    s1: {{kind: switch}}
    s2: {{kind: switch}}
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["k1:eth1", "s1:p2"]
    - endpoints: ["k2:eth1", "s1:p3"]
    - endpoints: ["k1:eth2", "s2:p1"]
    - endpoints: ["k2:eth2", "s2:p2"]
"""
# Only towards the client: it leaves with the last message. Where its last acknowledgement is lost,
# the server retransmits to a queue pair that is no more, until it gives up.
LOSS = "faults:\n  - {name: one-percent, links: 's1->k2', loss: random 1%}\n"
KERNELS = {"k1": "6.12.", "k2": "6.1."}
SHORT_S, LONG_S = 20, 60


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    name = f"t{secrets.token_hex(3)}"
    file = tmp_path_factory.mktemp("guests") / "lab.yaml"
    file.write_text(LAB.format(name=name))
    with lab.up(topology.load(str(file)), ephemeral=True) as made:
        yield made
    if runtime.examine(name) is not None:  # the last test did not get to taking it down
        runtime.down(name, print)


@pytest.fixture(scope="module")
def guests(running):
    return {name: running.guest(name) for name in KERNELS}


def command_line(running, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", *arguments, "--lab", running.plan.name],
        capture_output=True, text=True, timeout=LONG_S, **options,
    )  # fmt: skip


# --- The guest ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_what_the_topology_wants(guests, name):
    """Its kernel, its memory, and on every rail an rxe that is active at the lab's MTU."""
    there = guests[name]
    assert there.run(["uname", "-rn"]).text.startswith(f"{name} {KERNELS[name]}")
    first = there.run(["cat", "/proc/meminfo"]).text.splitlines()[0]
    least, most = (400, 512) if name == "k2" else (512, 1024)
    assert least < int(first.split()[1]) // 1024 < most
    output = there.run(["ibv_devinfo"]).check().text
    assert output.count("PORT_ACTIVE") == 2
    assert "hca_id:\trxe0" in output
    assert "hca_id:\trxe1" in output
    assert output.count("active_mtu:\t\t2048") == 2


@pytest.mark.parametrize("name", KERNELS)
def test_what_experiments_need_is_there(guests, name):
    tools = "ib_write_bw ib_send_lat rping ibv_rc_pingpong tcpdump ethtool iperf3 strace"
    script = f"for tool in {tools}; do command -v $tool >/dev/null || echo $tool; done"
    assert guests[name].run(["sh", "-c", script]).text == ""
    assert guests[name].run(["python3", "-c", "import pyverbs.device"], LONG_S).exit_code == 0
    assert guests[name].run(["modprobe", "-a", "veth", "sch_netem"], SHORT_S).exit_code == 0


def test_its_addresses_are_the_plans(running, guests):
    shown = json.loads(guests["k1"].run(["ip", "-json", "address"]).stdout)
    found = {each["ifname"]: each for each in shown}
    for port in running.plan.node("k1").ports:
        assert found[port.name]["address"] == port.mac
        assert found[port.name]["mtu"] == running.plan.mtu
        addresses = [each["local"] for each in found[port.name]["addr_info"]]
        assert addresses == [port.address, port.address6]


# --- The network ----------------------------------------------------------------------------------


def test_an_idle_guest_is_silent(running):
    ports = [port.ifindex for name in KERNELS for port in running.plan.node(name).ports]
    far = {near.ifindex: end.ifindex for _, near, end in running.plan.halves}
    before = running.xdp.counters()
    time.sleep(2)
    after = running.xdp.counters()
    for port in ports:
        assert after[far[port]].rx_packets == before[far[port]].rx_packets


@pytest.mark.parametrize("options", [[], ["-6"], ["-s", "2100"]])
@pytest.mark.parametrize("ends", [("h1", "k1"), ("k1", "h1"), ("k1", "k2")])
def test_pings_cross_the_switch_both_ways(running, ends, options):
    done = command_line(
        running, "inspect", "path", *ends, "--ping", "-c", "3", "-i", "50ms", "--json", *options
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["sent"], outcome["received"]) == (3, 3)
    assert {reply["hops"] for reply in outcome["replies"]} == {1}


def test_each_rail_leads_to_its_own_switch(running):
    done = command_line(
        running, "inspect", "path", "k1", "k2", "--ping", "--rail", "2", "-c", "2", "--json"
    )
    assert json.loads(done.stdout)["received"] == 2, done.stderr
    s2 = running.plan.node("s2").ports
    assert all(running.xdp.counters()[port.ifindex].tx_packets >= 2 for port in s2)


def test_hosts_have_names_there(guests):
    assert guests["k1"].run(["getent", "ahostsv4", "h1.eth1"]).text.split()[0] == "10.0.0.1"


def test_checksums_are_whole(running, guests):
    """What a guest leaves to its device to fill in, no switch would."""
    with guests["k1"].start(["iperf3", "-s", "-1", "--forceflush"]) as server:
        server.expect(b"listening", SHORT_S)
        done = guests["k2"].run(["iperf3", "-c", "k1", "-4", "-t", "1"], LONG_S)
        assert done.exit_code == 0, done.stdout + done.stderr
    assert running.xdp.counters()[running.plan.node("s1").ports[1].ifindex].malformed == 0


@pytest.fixture
def one_percent_lost(running, tmp_path):
    path = tmp_path / "loss.yaml"
    path.write_text(LOSS)
    before = running.plan
    running.set_faults(arm(before, profile.load(str(path))))
    yield
    running.set_faults(before)


@pytest.mark.parametrize("service", ["rc", "uc"])
def test_two_kernels_talk_over_a_switch_that_loses_frames(
    running, guests, one_percent_lost, service
):
    """RC gets everything through; UC, which would wait for ever, says what it wants and leaves."""
    count = "300" if service == "rc" else "0"
    # As to a terminal, line by line.
    program = ["stdbuf", "-oL", f"ibv_{service}_pingpong", "-g", "1", "-n", count]
    with guests["k1"].start(program) as server:
        server.expect(b"local address", SHORT_S)
        client = guests["k2"].run([*program, "k1"], LONG_S).check()
        assert server.wait(SHORT_S).exit_code == 0
    if service == "rc":
        assert "300 iters" in client.text
        counters = running.xdp.counters().values()
        assert sum(each.injected_rx_roce + each.injected_tx_roce for each in counters) > 0


def test_rdma_cm_connects_two_kernels(guests):
    with guests["k1"].start(["rping", "-s", "-C", "3", "-a", "10.0.0.2"]) as server:
        done = connected(guests["k2"], ["rping", "-c", "-C", "3", "-a", "10.0.0.2", "-v"])
        assert done.stdout.count(b"ping data") == 3
        assert server.wait(SHORT_S).exit_code == 0


def connected(from_guest, argv):
    """The outcome of a client whose server may not listen yet."""
    for _ in range(10):
        done = from_guest.run(argv, LONG_S)
        if done.exit_code == 0:
            return done
        time.sleep(0.5)
    raise AssertionError(done)


# --- Commands -------------------------------------------------------------------------------------


def test_a_commands_output_and_exit_code_are_told_apart(guests):
    done = guests["k1"].run(["sh", "-c", "echo out; echo err >&2; exit 42"])
    assert (done.exit_code, done.stdout, done.stderr) == (42, b"out\n", b"err\n")
    with pytest.raises(RunError, match="ended with 42 in the guest; it said: err"):
        done.check()


def test_a_program_that_is_not_there_ends_with_127(guests):
    done = guests["k1"].run(["no-such-program"])
    assert done.exit_code == 127
    assert b"cannot run no-such-program: No such file or directory" in done.stderr


def test_a_killed_command_says_by_what(guests):
    with guests["k1"].start(["sleep", "60"]) as command:
        command.kill(signal.SIGINT)
        assert command.wait(SHORT_S).exit_code == -signal.SIGINT


def test_a_megabyte_goes_in_and_comes_out(guests):
    data = secrets.token_bytes(1 << 20)
    assert guests["k1"].run(["cat"], LONG_S, input=data).stdout == data


def test_files_are_put_and_got(guests):
    guests["k1"].put("/root/a file", b"\0\1\2")
    assert guests["k1"].get("/root/a file") == b"\0\1\2"
    with pytest.raises(RunError, match="no/such"):
        guests["k1"].get("/no/such")


def test_environment_and_folder_are_the_callers(guests):
    done = guests["k1"].run(["sh", "-c", "echo $LAB_WORD; pwd"], env={"LAB_WORD": "x"}, cwd="/usr")
    assert done.stdout == b"x\n/usr\n"


def test_what_takes_too_long_is_killed(guests):
    with pytest.raises(RunError, match=r"sleep 61 took more than 0\.5 s"):
        guests["k1"].run(["sleep", "61"], 0.5)
    with pytest.raises(TimeoutError):
        guests["k1"].run(["sleep", "61"], 0.5)
    assert not running_there(guests["k1"], "sleep 61")


def test_what_reads_nothing_takes_no_longer_than_it_may(guests):
    """The next command may come before the agent notices that the client of the last one left."""
    for _ in range(5):
        with pytest.raises(RunError, match="sleep 63 took more than"):
            guests["k1"].run(["sleep", "63"], 0.5, input=bytes(8 << 20))
        assert not running_there(guests["k1"], "sleep 63")


def running_there(where, text, timeout_s=10):
    """Whether a process of this command line is still there in the end."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if where.run(["pgrep", "-fx", text]).exit_code:
            return False
        time.sleep(0.1)
    return True


def test_a_command_ends_with_the_process_that_began_it(running, guests):
    script = f"""
import os, time
from softroce_lab.fabric.observe import view
with view.of_lab({running.plan.name!r}).guest("k1") as there:
    command = there.start(["sleep", "62"])
    print("started", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as starter:
        assert starter.stdout.readline() == b"started\n"
        assert guests["k1"].run(["sh", "-c", "until pgrep -fx 'sleep 62'; do sleep .1; done"])
        starter.kill()
    assert not running_there(guests["k1"], "sleep 62")


def test_as_many_commands_at_a_time_as_there_are_channels(guests):
    with contextlib.ExitStack() as stack:
        commands = [stack.enter_context(guests["k2"].start(["cat"])) for _ in range(guest.CHANNELS)]
        with pytest.raises(RunError, match="16 commands running"):
            guests["k2"].start(["true"])
        for number, command in enumerate(commands):
            command.write(b"%d" % number)
            command.end_input()
        output = [command.wait(SHORT_S).stdout for command in commands]
    assert output == [b"%d" % number for number in range(guest.CHANNELS)]
    assert guests["k2"].run(["true"]).exit_code == 0


NONSENSE = b"".join(
    line + b"\n"
    for line in (
        b'{"id": 1}',
        b"[]",
        b"\xff",
        b"[" * 5000,
        b'{"run": []}',
        b'{"id":"x","run":[]}',
        b'{"id":"x","run":[1]}',
        b'{"id":"x","run":"true"}',
        b'{"id":"x","run":["true"],"env":{"A":1}}',
        b'{"id":"x","run":["true"],"env":7}',
        b'{"id":"x","run":["true"],"cwd":[]}',
        b'{"id":"x","run":["true"],"tty":[1]}',
        b'{"id":"x","run":["true"],"tty":[1,-1]}',
        b'{"id":"x","run":["a\\u0000b"]}',
        b'{"id":"x","in":"="}',
        b'{"id":"x","in":7}',
        b'{"id":"x","run":["sleep","60"]}\n{"id":"x","kill":"KILL"}\n{"id":"x","kill":4096}',
        b'{"id":"x","in":"="}\n{"id":"x","in":7}',
    )
)


def test_a_client_that_talks_nonsense_disturbs_nobody(running, guests):
    with netns.entered(running.namespace("k1")):
        channel = guest._Channel.claim(guest.channel(0))
    channel.connection.sendall(NONSENSE + b'{"id":"y","run":["touch","/run/heard"]}\n')
    for _ in range(100):
        if guests["k1"].run(["test", "-e", "/run/heard"]).exit_code == 0:
            break
    else:
        pytest.fail("what came behind the nonsense was not heard")
    channel.connection.sendall(b"half a l")
    channel.close()
    assert guests["k1"].run(["echo", "fine"]).stdout == b"fine\n"


# --- The command line -----------------------------------------------------------------------------


def test_exec_runs_there(running):
    done = exec_in(running, "k2", "sh", "-c", "cat; uname -r; exit 7", input="words\n")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.splitlines()[0] == "words"
    assert done.stdout.splitlines()[1].startswith("6.1.")


def exec_in(running, node, *command, **options):
    return subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "exec", "--lab", running.plan.name, node,
         "--", *command], capture_output=True, text=True, timeout=LONG_S, **options,
    )  # fmt: skip


def test_list_and_status_show_the_guests(running):
    listed = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "kernel-host", "list", "--json"],
        capture_output=True, text=True, timeout=LONG_S,
    )  # fmt: skip
    document = json.loads(listed.stdout)
    assert {image["kernel"] for image in document["images"] if image["version"]} == {"6.1", "6.12"}
    ours = [host for host in document["hosts"] if host["lab"] == running.plan.name]
    assert [(host["node"], host["alive"]) for host in ours] == [("k1", True), ("k2", True)]


def test_a_plain_host_is_no_guest(running):
    with pytest.raises(UserError, match="h1 is not a kernel host"):
        running.guest("h1")


# --- Ends, at the end of this file ----------------------------------------------------------------


def test_a_dead_guest_is_said_and_boots_again(running, guests):
    dead = guests["k2"]
    dead.machine.signal(signal.SIGKILL)
    assert dead.machine.wait(SHORT_S)
    with pytest.raises(RunError, match="the kernel host k2 is dead") as raised:
        dead.run(["true"])
    assert "softroce_lab: ready" in raised.value.what
    status = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "ps", running.plan.name, "--json"],
        capture_output=True, text=True, timeout=LONG_S,
    )  # fmt: skip
    (damage,) = json.loads(status.stdout)["labs"][0]["damage"]
    assert damage["what"] == "the kernel host k2 is dead"
    running.boot("k2")
    assert running.guest("k2").run(["true"]).exit_code == 0
    done = command_line(running, "inspect", "path", "h1", "k2", "--ping", "-c", "2", "--json")
    assert json.loads(done.stdout)["received"] == 2


def test_what_waits_for_a_guest_that_dies_is_told(running):
    there = running.guest("k2")
    with there.start(["sleep", "3600"]) as command:
        there.machine.signal(signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(RunError, match="k2 is dead"):
            command.wait(LONG_S)
        assert time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("echo result; echo reason >&2; exit 3", "ended with 3 in the guest\n  stderr: reason\n"
                                                 "  stdout: result"),
        ("kill -9 $$", "ended with -9 in the guest\n  without output"),
        ("exec sleep 3600", None),
    ],
)  # fmt: skip
def test_a_failure_beside_a_command_names_how_the_command_ended(running, script, ended):
    with running.guest("k1").start(["sh", "-c", script]) as command:
        with pytest.raises(RunError) as raised, command.blamed():
            raise RunError("the peer closed the connection")
        verdict = f"sh -c {script} {ended}"
        assert str(raised.value) == "the peer closed the connection" + (
            f"; {verdict}" * bool(ended)
        )
        if ended is None:
            command.check_running()
            return
        with pytest.raises(RunError) as raised:
            command.check_running()
        assert str(raised.value) == verdict


def test_a_kernel_that_panics_ends_its_guest_and_is_said_to_have(running):
    there = running.guest("k1")
    panics = ["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 60"]
    with there.start(panics) as command, pytest.raises(guest.GuestDeadError) as raised:
        command.wait(LONG_S)
    panic = raised.value.panic
    assert panic.what == "Kernel panic - not syncing: sysrq triggered crash"
    assert "sysrq_handle_crash" in panic.calls
    assert raised.value.what == f"the kernel host k1 is dead: its kernel panicked: {panic}"
    assert "lab kernel-host boot k1" in raised.value.hint
    status = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "ps", running.plan.name, "--json"],
        capture_output=True, text=True, timeout=LONG_S,
    )  # fmt: skip
    damaged = json.loads(status.stdout)["labs"][0]["damage"]
    assert raised.value.what in [each["what"] for each in damaged]
    running.boot("k1")
    assert there.run(["true"]).exit_code == 0  # it is the same guest


def test_a_guest_that_cannot_be_set_up_says_why_and_nothing_stays(tmp_path, monkeypatch):
    """`lab up` fails with the end of its console, and undoes what it did."""
    config = guest_machine.config

    def wrong(*arguments):
        reported = json.loads(config(*arguments))
        return json.dumps(reported | {"network": reported["network"] + "link set dev eth7 up\n"})

    monkeypatch.setattr(guest_machine, "config", wrong)
    plan = topology.load("kernel-peer", name=f"t{secrets.token_hex(3)}")
    with pytest.raises(LabError, match=r"kernel host k1 is dead.*eth7") as raised:
        lab.up(plan)
    assert raised.value.exit_code == 1
    assert runtime.examine(plan.name) is None
    assert not [path for path in netns.DIRECTORY.iterdir() if path.name.startswith(plan.name)]
    assert not processes_with(plan.name)


def processes_with(text):
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
            if text.encode() in words and int(entry.name) != os.getpid():
                found.append(words)
    return found


def test_frames_pass_in_the_other_way_through_switches_too(running):
    """Generic XDP is what labs take; this is native XDP."""
    plan = topology.load("kernel-peer", name=f"t{secrets.token_hex(3)}")
    with lab.up(plan, mode="native", ephemeral=True) as native:
        assert (running.mode, native.mode) == ("generic", "native")
        try:
            peer = native.guest("k1")
            for options in (["-4"], ["-6"], ["-s", "2100"]):
                argv = ["ping", "-c", "2", "-i", "0.1", *options, "h1"]
                peer.run(argv, SHORT_S).check()
            assert native.xdp.counters()[plan.node("k1").ports[0].ifindex].rx_packets >= 6
        finally:
            native.down()


def test_gc_ends_the_guests_of_an_up_that_was_killed(run_lab, eventually):
    plan = topology.load("kernel-peer", name=f"t{secrets.token_hex(3)}")
    argv = [sys.executable, "-m", "softroce_lab.cli", "up", "kernel-peer", "--name", plan.name]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as starter:
        assert eventually(lambda: qemu_of(plan))
        starter.kill()
    assert qemu_of(plan)
    assert run_lab("doctor", "--clean").returncode == 0
    assert not qemu_of(plan)
    assert runtime.examine(plan.name) is None


def qemu_of(plan):
    """Not what holds it back until the ledger has it, which has its words, too."""
    found = processes_with(f"{plan.name}-k1")
    return [words for words in found if b"qemu" in words.replace(b"\0", b" ").split()[0]]


def test_without_qemu_up_says_what_to_install(run_lab, tmp_path):
    name = f"t{secrets.token_hex(3)}"
    environment = os.environ | {"PATH": str(tmp_path)}
    done = run_lab("up", "kernel-peer", "--name", name, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert "apt install qemu-system-x86" in done.stderr
    assert runtime.examine(name) is None


def test_down_ends_the_guests_and_leaves_nothing(running, guests):
    name = running.plan.name
    machines = [running.guest(node).machine for node in KERNELS]
    assert processes_with(f"/{name}/")
    assert any(entry.kind == "process" for entry in ledger.read(running.directory).entries.values())
    running.down()
    assert not any(machine.is_alive() for machine in machines)
    assert runtime.examine(name) is None
    assert not [path for path in netns.DIRECTORY.iterdir() if path.name.startswith(f"{name}-")]
    assert not processes_with(f"/{name}/")
