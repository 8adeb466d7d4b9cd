# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM for unmodified programs: connections and UD peers found through MADs, as Linux does.

`program_service.ProgramService` serves one program. `manager.ConnectionManager` is the state
machine without I/O.
"""
