# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench recovery`: all transports on the cells of `workloads/sweeps/recovery.yaml`, judged."""
