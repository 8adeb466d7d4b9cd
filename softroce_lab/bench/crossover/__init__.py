# SPDX-License-Identifier: GPL-2.0-or-later
"""Where erasure coding overtakes selective repeat: simulation beside SDR-RDMA's model."""
