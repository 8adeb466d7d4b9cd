# SPDX-License-Identifier: GPL-2.0-or-later
"""Launchers of programs: their command lines, and the variables that lead them to softroce0.

Everything but the hosts is an environment variable, so that `environment` of an experiment
overrides it. `lab ssh` keeps variables on the way to other hosts.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from softroce_lab.errors import UserError

_SSH = str(Path(sys.executable).with_name("lab-ssh"))
_UCX = {"UCX_TLS": "rc_v,sm,self", "UCX_NET_DEVICES": "softroce0:1"}
_OPEN_MPI = {  # 4 has its own runtime; that of 5 is PRRTE
    **_UCX,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_plm_rsh_agent": _SSH,
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_plm_ssh_agent": _SSH,
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_MPICH = {
    **_UCX,
    "FI_PROVIDER": "verbs;ofi_rxm",
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_EXEC": _SSH,
    "HYDRA_ENV": "none",  # processes have their host's environment, not that of the first one
}


class Launcher(NamedTuple):
    environment: Mapping[str, str]
    hosts: Callable[[Sequence[str], int], list[str]]  # options, of hosts and ranks a host


def _slots(hosts: Sequence[str], ranks: int) -> str:
    return ",".join(f"{host}:{ranks}" for host in hosts)


_OF_OPEN_MPI = Launcher(_OPEN_MPI, lambda hosts, ranks: ["--host", _slots(hosts, ranks)])
_OF_MPICH = Launcher(_MPICH, lambda hosts, ranks: ["-hosts", _slots(hosts, ranks)])
LAUNCHERS = {
    "mpirun": _OF_OPEN_MPI,
    "mpirun.openmpi": _OF_OPEN_MPI,
    "mpiexec": _OF_MPICH,
    "mpiexec.hydra": _OF_MPICH,
    "mpiexec.mpich": _OF_MPICH,
}


def checked(launcher: str) -> str:
    """The same. UserError for an unknown one."""
    if PurePath(launcher).name not in LAUNCHERS:
        hint = f"one of {', '.join(LAUNCHERS)}, with or without its folder; or 'commands'"
        raise UserError(f"there is no launcher {launcher!r}", hint=hint)
    return launcher


def environment(launcher: str) -> Mapping[str, str]:
    return LAUNCHERS[PurePath(launcher).name].environment


def command(launcher: str, hosts: Sequence[str], ranks: int, run: str) -> str:
    """What the first host runs, for sh(1): each rank is a shell that runs `run`."""
    options = LAUNCHERS[PurePath(launcher).name].hosts(hosts, ranks)
    count = ["-n", str(ranks * len(hosts))]
    return shlex.join([launcher, *options, *count, "sh", "-c", run])
