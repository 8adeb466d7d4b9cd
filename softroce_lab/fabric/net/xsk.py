# SPDX-License-Identifier: GPL-2.0-or-later
"""Just enough of AF_XDP to learn whether a socket can be bound here (linux/if_xdp.h)."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct

AF_XDP = 44
_SOL_XDP = 283
_RX_RING, _TX_RING, _UMEM_REG, _FILL_RING, _COMPLETION_RING = 2, 3, 4, 5, 6
_COPY = 1 << 1
_FRAME_BYTES = 4096
_RING_FRAMES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def bind(ifindex: int, umem_bytes: int) -> None:
    """Bind a socket with `umem_bytes` of packet memory to queue 0 of an interface; then close it.

    OSError if the kernel rejects any step.
    """
    with mmap.mmap(-1, umem_bytes) as memory, socket.socket(AF_XDP, socket.SOCK_RAW) as xsk:
        view = (ctypes.c_char * umem_bytes).from_buffer(memory)
        region = struct.pack("=QQIII4x", ctypes.addressof(view), umem_bytes, _FRAME_BYTES, 0, 0)
        try:
            xsk.setsockopt(_SOL_XDP, _UMEM_REG, region)
            for ring in (_FILL_RING, _COMPLETION_RING, _RX_RING, _TX_RING):
                xsk.setsockopt(_SOL_XDP, ring, _RING_FRAMES)
            _bind(xsk.fileno(), struct.pack("=HHIII", AF_XDP, _COPY, ifindex, 0, 0))
        finally:
            del view  # or the memory could not be closed


def _bind(fd: int, address: bytes) -> None:
    """bind(2): the socket module does not support addresses of this family."""
    if _libc.bind(fd, address, len(address)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
