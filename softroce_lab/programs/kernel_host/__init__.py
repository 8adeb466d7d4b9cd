# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts that are Linux guests: QEMU machines with the kernel's own Soft-RoCE."""
