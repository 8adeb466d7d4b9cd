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
from typing import NamedTuple, TypeAlias

from softroce_lab.errors import UserError

_SSH = str(Path(sys.executable).with_name("lab-ssh"))
_TORCH_PORT = "29500"  # torchrun's own default
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


Words: TypeAlias = list[str]


class Launcher(NamedTuple):
    environment: Mapping[str, str]
    # Of launcher, hosts, ranks a host and what a rank runs: the command of the first host, or
    # those of all hosts.
    commands: Callable[[str, Sequence[str], int, Words], list[Words]]


def _mpi(option: str) -> Callable[[str, Sequence[str], int, Words], list[Words]]:
    def commands(launcher: str, hosts: Sequence[str], ranks: int, run: Words) -> list[Words]:
        slots = ",".join(f"{host}:{ranks}" for host in hosts)
        return [[launcher, option, slots, "-n", str(ranks * len(hosts)), *run]]

    return commands


def _torchrun(launcher: str, hosts: Sequence[str], ranks: int, run: Words) -> list[Words]:
    group = ["--nnodes", str(len(hosts)), "--nproc-per-node", str(ranks)]
    meeting = ["--master-addr", hosts[0], "--master-port", _TORCH_PORT]
    return [
        [launcher, *group, "--node-rank", str(number), *meeting, "--no-python", *run]
        for number in range(len(hosts))
    ]


_OF_OPEN_MPI = Launcher(_OPEN_MPI, _mpi("--host"))
_OF_MPICH = Launcher(_MPICH, _mpi("-hosts"))
LAUNCHERS = {
    "mpirun": _OF_OPEN_MPI,
    "mpirun.openmpi": _OF_OPEN_MPI,
    "mpiexec": _OF_MPICH,
    "mpiexec.hydra": _OF_MPICH,
    "mpiexec.mpich": _OF_MPICH,
    "torchrun": Launcher(_UCX, _torchrun),
}


def checked(launcher: str) -> str:
    """The same. UserError for an unknown one."""
    if PurePath(launcher).name not in LAUNCHERS:
        hint = f"one of {', '.join(LAUNCHERS)}, with or without its folder; or 'commands'"
        raise UserError(f"there is no launcher {launcher!r}", hint=hint)
    return launcher


def environment(launcher: str) -> Mapping[str, str]:
    return LAUNCHERS[PurePath(launcher).name].environment


def commands(launcher: str, hosts: Sequence[str], ranks: int, run: str) -> list[str]:
    """For sh(1): what the first host runs, or what each host runs. A rank is `bash -c RUN`.

    Bash becomes its last command, so that the launcher sees by which signal that ended: hydra goes
    on when a shell in between ends with a status.
    """
    known = LAUNCHERS[PurePath(launcher).name]
    return list(map(shlex.join, known.commands(launcher, hosts, ranks, ["bash", "-c", run])))
