# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 7: two hosts in memory, a NIC that dies, and a failover that a student writes."""
