# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 7's experiment: a NIC dies under a queue pair with a backup, on a clock that is moved."""
