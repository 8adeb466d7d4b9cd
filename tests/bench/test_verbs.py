# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench verbs` in a short form: the document and what stays behind, not the speed."""

from tests.bench.test_engine_and_path import bench, document, holds, positive


def test_the_document(tmp_path, nothing_left):
    found = document(tmp_path, "verbs", "--rounds", "2", "--seconds", "0.05", "--trips", "500")
    assert found["schema_version"] == 1
    assert set(found["ratios"]) == {"rc_write_over_raw", "rtt_over_raw"}
    for name, ratio in found["ratios"].items():
        assert holds(found["ratios_interval_95"][name], ratio)
    assert holds(found["send64_interval_95"], found["send64_per_second"])
    assert set(found["payload_bps"]) == {"raw", "write"}
    assert positive(found["payload_bps"].values())
    trips = found["round_trip_ns"]
    assert all(500 < each < 10**8 for each in trips.values())
    if not found["disturbed"]["echo"] and not found["disturbed"]["trip"]:
        assert trips["echo"] < trips["trip"]
    assert (found["rounds"], found["xdp_mode"] in ("native", "generic")) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_in_words(tmp_path, nothing_left):
    result = bench(tmp_path, "verbs", "--rounds", "1", "--seconds", "0.05", "--trips", "20")
    assert result.returncode == 0, result.stderr
    for word in ("raw", "write", "echo", "trip", "send64", "rc_write_over_raw", "rtt_over_raw"):
        assert f"\n{word} " in "\n" + result.stdout
    assert "round 1 of 1" in result.stderr
