# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM for unmodified programs: connections and UD peers found through MADs, as Linux does.

`server.ConnectionServer` has the sockets of a host, `host_service.HostService` serves its programs,
and `manager.ConnectionManager` is the state machine. The latter two are without I/O.
"""
