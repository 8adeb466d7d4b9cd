# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of `lab bench verbs` and `lab bench programs` in a guest, in a short form."""

from softroce_lab.bench.rdma import in_guest as bench_in_guest


def test_all_move_bytes_over_one_veth_pair(pair, monkeypatch):
    """With messages of 64 KiB: on a busy machine an emulated guest takes long for 128 MiB."""
    monkeypatch.setattr(bench_in_guest, "MESSAGE_BYTES", 1 << 16)
    output, ours = [], []

    def both(veth):
        library = veth.library()

        def measure():
            ours.append(veth.ours())
            return library()

        return measure

    found = bench_in_guest.run(1, 2, "interop-veth", output.append, ours=both)
    assert len(ours) == len(found.ours) == len(found.rxe) == 1
    assert ours[0] > 0
    assert found.ours[0] > 0
    assert found.rxe[0] > 0
    assert found.ratio.median == found.ours[0] / found.rxe[0]
    assert set(found.rates_bps()) == {"ours in guest", "rxe in guest"}
    assert "round 1 of 1 in the guest" in output
