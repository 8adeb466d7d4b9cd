# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover`: a NIC dies in the middle of a training step, with SHIFT and without."""
