# SPDX-License-Identifier: GPL-2.0-or-later
import json
import signal

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.fabric import runtime
from tests.labs import Traces, eventually

CUT = """
name: cut
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}}
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h2:eth1", "s1:p2"]
faults:
  - {name: cut, links: "s1->h2", loss: random 100%}
"""
LOSSY = CUT.replace("100%", "1%")


def test_the_lab_that_is_up_and_every_test(lab):
    lab.up()
    for test, iterations in [("write_bw", 200), ("write_lat", 100), ("send_bw", 200),
                             ("send_lat", 100), ("read_bw", 100), ("read_lat", 100),
                             ("atomic_bw", 100), ("atomic_lat", 100)]:  # fmt: skip
        found = lab.json("perf", test, "h1", "h2", "--lab", lab.name, "-n", str(iterations))
        results = found["results"]
        assert results["n_iterations"] == iterations
        if test.endswith("_bw"):
            assert 0 < results["BW_average"] <= results["BW_peak"] * 1.001
            assert results["MsgRate"] > 0
        else:
            assert 0 < results["t_min"] <= results["t_typical"] <= results["t_max"]
    assert lab.run("ps", lab.name).returncode == 0  # it stays up


@pytest.mark.parametrize("service", ["UC", "UD"])
def test_services_that_lose(lab, service):
    lab.up()
    found = lab.json("perf", "send_bw", "--lab", lab.name, "-c", service, "-n", "100", "-b")
    assert found["test_info"]["Connection_type"] == service
    assert found["results"]["BW_average"] > 0


def test_columns_of_perftest_in_a_lab_of_its_own(lab, tmp_path):
    file = tmp_path / "found.json"
    result = lab.run("perf", "send_bw", "-f", "two-hosts", "-n", "100", "-q", "2", "-s", "1000",
                     "--report_gbits", "-p", "18515", "-x", "1", "--quiet",
                     "--out_json_file", str(file))  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    rule, columns, row, last, *_ = result.stdout.splitlines()[-4:]
    assert rule == last == "-" * 87
    assert columns.split() == ["#bytes", "#iterations", "BW", "peak[Gb/sec]", "BW",
                               "average[Gb/sec]", "MsgRate[Mpps]"]  # fmt: skip
    assert row.split()[:2] == ["1000", "200"]
    assert result.stdout.count("local address: LID 0000 QPN") == 2
    parsed = json.loads(file.read_text())
    assert parsed["fidelity"]["verdict"] in ("faithful", "not faithful")
    assert parsed["test_info"]["Number_of_qps"] == 2
    assert parsed["results"]["MsgSize"] == 1000


def test_all_sizes_and_sleeping(lab):
    lab.up()
    found = lab.json("perf", "send_bw", "--lab", lab.name, "-a", "-n", "5", "-c", "UD", "-e")
    assert [each["MsgSize"] for each in found["results"]] == [2**n for n in range(1, 12)]


def test_by_ipv6(lab):
    lab.up()
    result = lab.run("perf", "send_lat", "--lab", lab.name, "--ipv6", "-c", "rc", "-n", "20")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(" GID: 253:83:") == 2  # fd53:


def test_for_a_while(lab):
    lab.up()
    for test, rate, unit in (
        ("write_bw", "MsgRate", 1e6),
        ("send_lat", "tps_average", 0.5),  # there and back are two
        ("write_lat", "tps_average", 0.5),
    ):
        found = lab.json("perf", test, "--lab", lab.name, "-D", "0.2")["results"]
        took_s = found["n_iterations"] / (found[rate] * unit)
        whole_s = took_s * (1 + 1 / found["n_iterations"])  # the last one may not have ended
        assert whole_s > 0.19, (test, found)  # a machine that halts it makes it longer


def test_the_file_has_perftests_name_by_default(lab, tmp_path):
    lab.up()
    result = lab.run("perf", "send_bw", "--lab", lab.name, "-n", "5", "--out_json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "perftest_out.json").read_text())["results"]["n_iterations"] == 5
    (tmp_path / "perftest_out.json").unlink()
    named = ["--out_json_file", "perftest_out.json"]
    result = lab.run("perf", "send_bw", "--lab", lab.name, "-n", "5", *named, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "perftest_out.json").exists()


def test_rc_bears_losses(lab, tmp_path):
    file = tmp_path / "lossy.yaml"
    file.write_text(LOSSY)
    lab.run("up", str(file), "--name", lab.name)
    found = lab.json("perf", "send_bw", "--lab", lab.name, "-n", "100")
    assert found["results"]["n_iterations"] == 100


def test_a_rule_that_no_packet_met_is_named(lab, tmp_path):
    file = tmp_path / "aside.yaml"
    aside = LOSSY.replace("h2: {kind: host}", "h2: {kind: host}, h3: {kind: host}")
    aside = aside.replace('"s1:p2"]\n', '"s1:p2"]\n    - endpoints: ["h3:eth1", "s1:p3"]\n')
    file.write_text(aside.replace('"s1->h2"', '"s1->h3"'))
    lab.run("up", str(file), "--name", lab.name)
    result = lab.run("perf", "send_lat", "h1", "h2", "--lab", lab.name, "-n", "10", "--json")
    assert "did nothing: cut: no flow took s1->h3" in result.stderr
    assert json.loads(result.stdout)["idle_rules"] == ["cut"]


def test_a_dead_peer_is_an_error_in_words(lab, tmp_path):
    file = tmp_path / "cut.yaml"
    file.write_text(CUT)
    lab.run("up", str(file), "--name", lab.name)
    result = lab.run("perf", "write_bw", "--lab", lab.name, "-n", "10", "-u", "8", "--quiet")
    assert result.returncode == 1
    assert "IBV_WC_RETRY_EXC_ERR: write_bw: h1" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interrupt_leaves_nothing(lab):
    before = labs_that_are_up()
    process = lab.start("perf", "write_bw", "-f", "two-hosts", "-D", "60")
    for line in process.stdout:
        if line.startswith(" #bytes"):  # it runs
            break
    (name,) = labs_that_are_up() - before
    traces = Traces(name)
    traces.remember_bpf_objects()
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=50)
    assert process.returncode == 130
    assert "Traceback" not in output
    # The kernel frees BPF objects late where it frees those of other labs, too.
    assert eventually(lambda: not traces.found(), 60), traces.found()


def labs_that_are_up():
    return {path.name for path in runtime.DIRECTORY.glob("*") if path.is_dir()}


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        (["write_band"], "there is no test write_band"),
        (["write_bw", "-c", "UD"], "write does not go over UD"),
        (["write_bw", "-x", "9", "-f", "two-hosts"], "GID index 9 means nothing"),
        (["write_bw", "--ipv6", "-f", "kernel-peer"], "--ipv6 is for soft hosts"),
        (["write_bw", "-d", "mlx5_0"], "lab perf TEST h1 h2"),
        (["write_bw", "-R"], "RDMA CM"),
        (["write_bw", "--out_json_file", "/none/such"], "cannot write /none/such"),
        (["write_bw", "-n", "3"], "-n 3"),
        (["write_bw", "-s", "1Q"], "1Q"),
        (["send_bw", "-s", "4K", "-c", "ud", "-m", "2048"], "-s 4096 over UD"),
        (["write_bw", "h1", "h9", "-f", "two-hosts"], "has no host 'h9'"),
        (["write_bw", "h1", "h1", "-f", "two-hosts"], "h1 would measure itself"),
        (["write_bw", "--lab", "none-such"], "there is no lab called none-such"),
        (["write_bw", "--lab", "a", "-f", "two-hosts"], "--lab or -f"),
        (["write_bw", "--capture-file", "x.pcapng"], "nothing is captured into x.pcapng"),
    ],
)
def test_nonsense_is_refused(arguments, states):
    result = CliRunner().invoke(app, ["perf", *arguments])
    assert result.exit_code == 2
    assert states in result.stderr
    assert "Traceback" not in result.stderr
