# SPDX-License-Identifier: GPL-2.0-or-later
"""What is read out of the consoles of kernels that gave up."""

import pytest

from softroce_lab.programs.kernel_host import console as guest_console

READY = "softroce_lab: ready\r\n"
# The shape is Linux 6.12's (arch/x86/kernel/dumpstack.c), in the order in which it prints.
CORRUPTED = """\
[   31.001100] ------------[ cut here ]------------
[   31.001200] WARNING: CPU: 0 PID: 9 at lib/refcount.c:28 refcount_warn_saturate+0xba/0x110
[   31.001300] RIP: 0010:refcount_warn_saturate+0xba/0x110
[   31.001400] Call Trace:
[   31.001500]  <TASK>
[   31.001600]  rxe_dealloc+0x10/0x20 [rdma_rxe]
[   31.001700] ---[ end trace 0000000000000000 ]---
[   34.976100] Oops: general protection fault, probably for non-canonical address 0x1e: 0000 [#1] \
PREEMPT SMP NOPTI
[   34.976200] CPU: 0 UID: 0 PID: 13 Comm: kworker/u4:1 Tainted: G        W          6.12.117+deb13
[   34.976300] Workqueue: rxe_wq do_work [rdma_rxe]
[   34.976400] RIP: 0010:__kmalloc_node_track_caller_noprof+0x1bd/0x450
[   34.976500] Code: 41 83 f8 ff 74 0f 48 8b 03 48 c1 e8 36 41 39 c0 0f 85 9d 02 00 00
[   34.976600] RSP: 0018:ffffc900000e3b38 EFLAGS: 00010246
[   34.976700] Call Trace:
[   34.976800]  <IRQ>
[   34.976810]  ? die_addr+0x3c/0x60
[   34.976820]  ? rxe_init_packet+0x131/0x2b0 [rdma_rxe]
[   34.976830]  kmalloc_reserve+0x9b/0xf0
[   34.976840]  __alloc_skb+0x87/0x190
[   34.976850]  rxe_init_packet+0x131/0x2b0 [rdma_rxe]
[   34.976860]  rxe_requester+0x72d/0x10e0 [rdma_rxe]
[   34.976870]  </IRQ>
[   34.976880]  <TASK>
[   34.976890]  do_task+0x60/0x220 [rdma_rxe]
[   34.976900]  process_one_work+0x177/0x330
[   34.976910]  worker_thread+0x252/0x390
[   34.976920]  kthread+0xcf/0x100
[   34.976930]  </TASK>
[   34.976940] Modules linked in: ib_umad rdma_ucm rdma_rxe ib_uverbs
[   34.976950] ---[ end trace 0000000000000000 ]---
[   34.976960] RIP: 0010:__kmalloc_node_track_caller_noprof+0x1bd/0x450
[   34.976970] R13: 0000000000082820 R14: ffff888004041c00 R15: 00000000ffffffff
[   34.977196] Kernel panic - not syncing: Fatal exception in interrupt
[   34.978290] Kernel Offset: disabled
"""
KILLED = """\
[    4.100000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009
[    4.100100] CPU: 0 UID: 0 PID: 1 Comm: python3 Not tainted 6.12.117+deb13-amd64 #1
[    4.100200] Call Trace:
[    4.100300]  <TASK>
[    4.100400]  panic+0x113/0x2e0
[    4.100500]  do_exit.cold+0x15/0x15
[    4.100600]  </TASK>
[    4.100700] ---[ end Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009 ]---
"""


def test_the_beginning_of_the_report_is_what_is_told():
    found = guest_console.panic(READY + CORRUPTED.replace("\n", "\r\n"))
    assert found.what.startswith("Oops: general protection fault")
    assert found.place == "__kmalloc_node_track_caller_noprof+0x1bd/0x450"
    assert found.calls[:3] == ("kmalloc_reserve", "__alloc_skb", "rxe_init_packet [rdma_rxe]")
    assert found.calls[-1] == "kthread"
    assert found.verdict == "Fatal exception in interrupt"
    assert str(found) == (
        "Oops: general protection fault, probably for non-canonical address 0x1e: 0000 [#1] "
        "PREEMPT SMP NOPTI; at __kmalloc_node_track_caller_noprof+0x1bd/0x450; called by "
        "kmalloc_reserve < __alloc_skb < rxe_init_packet [rdma_rxe] < rxe_requester [rdma_rxe] < "
        "do_task [rdma_rxe] < process_one_work; "
        "Kernel panic - not syncing: Fatal exception in interrupt"
    )


def test_warnings_before_it_are_in_the_report():
    found = guest_console.panic(READY + CORRUPTED)
    assert found.report.splitlines()[0].startswith("WARNING: CPU: 0 PID: 9 at lib/refcount.c:28")
    assert found.report.splitlines()[-1] == "Kernel Offset: disabled"


def test_a_module_is_named_by_who_called_whom():
    assert guest_console.panic(CORRUPTED).names("rdma_rxe")
    # Its mention among the modules that are loaded does not count.
    elsewhere = "\n".join(line for line in CORRUPTED.splitlines() if "[rdma_rxe]" not in line)
    assert "rdma_rxe" in elsewhere
    assert not guest_console.panic(elsewhere).names("rdma_rxe")


def test_a_panic_that_no_fault_caused():
    found = guest_console.panic(READY + KILLED)
    assert found.what.endswith("Attempted to kill init! exitcode=0x00000009")
    assert (found.place, found.calls) == (None, ("panic", "do_exit.cold"))
    assert str(found) == f"{found.what}; called by panic < do_exit.cold"


@pytest.mark.parametrize("text", ["", READY, READY + CORRUPTED[: CORRUPTED.index("Kernel panic")]])
def test_what_did_not_panic_says_nothing(text):
    assert guest_console.panic(text) is None


def test_last_words(tmp_path):
    console = tmp_path / "console"
    assert guest_console.last_words(console) == ""
    assert guest_console.read_panic(console) is None
    console.write_text("".join(f"line {n}\n" for n in range(20)))
    assert guest_console.last_words(console).startswith("; it said: line 12 / line 13 / ")
    console.write_text(READY + KILLED)
    output = guest_console.last_words(console)
    assert output.startswith(": its kernel panicked: Kernel panic - not syncing: Attempted to kill")
