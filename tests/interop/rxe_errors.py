# SPDX-License-Identifier: GPL-2.0-or-later
"""Which function of Linux's rdma_rxe moved a queue pair to its error state, read in the guest.

A flush without an error before it has two origins there: rxe_requester()
that cannot send a packet, and rxe_completer() that takes a response to be out of turn. The first
caller of rxe_qp_error() separates them.
"""

_SET_UP = """
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
cd /sys/kernel/tracing
probe='p:lab/qp_error rdma_rxe:rxe_qp_error caller=+0($stack):symbol'
[ -d events/lab/qp_error ] || echo "$probe" > kprobe_events
echo 1 > events/lab/qp_error/enable
echo 'module rdma_rxe func rxe_requester +p' > /proc/dynamic_debug/control
"""
_CLEAR = "echo > /sys/kernel/tracing/trace; dmesg --clear"
_READ = "grep -m 1 -o 'caller=.*' /sys/kernel/tracing/trace || true"
_REPORT = "rdma -p statistic show link; tc -s qdisc show dev eth1; dmesg"
_GUEST_S = 30


class QpErrors:
    """The first queue pair of a guest's rxe that went to its error state since `clear`."""

    def __init__(self, guest):
        self._guest = guest
        self._run(_SET_UP)

    def _run(self, script):
        return self._guest.run(["sh", "-ec", script], timeout_s=_GUEST_S).check().text

    def clear(self):
        """Forget what was before."""
        self._run(_CLEAR)

    def report(self):
        """The function that called rxe_qp_error() first, and what the guest's kernel knows."""
        caller = self._run(_READ).strip().removeprefix("caller=")
        return f"rxe_qp_error() was called by {caller or 'nobody'}\n{self._run(_REPORT)}"
