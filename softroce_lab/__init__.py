# SPDX-License-Identifier: GPL-2.0-or-later
"""Multi-path RDMA fabrics with injected faults, on one Linux machine."""

__version__ = "0.1.0.dev0"
