# SPDX-License-Identifier: GPL-2.0-or-later
"""What errors look like and which exit code they carry."""

import pytest

from softroce_lab.errors import (
    EnvironmentLackError,
    ExitCode,
    LabError,
    RdmaError,
    RunError,
    UserError,
    ibv_wc_status,
)


def test_a_user_error_reads_like_a_compilers() -> None:
    error = UserError(
        "unknown key 'nmae'", file="lab.yaml", line=3, column=5, hint="did you mean 'name'?"
    )
    assert str(error) == "lab.yaml:3:5: unknown key 'nmae'\n  hint: did you mean 'name'?"


def test_a_user_error_without_a_place_is_the_plain_sentence() -> None:
    assert str(UserError("no such lab 'x'")) == "no such lab 'x'"


def test_a_user_error_about_a_whole_file_names_only_the_file() -> None:
    assert str(UserError("is a directory", file="lab.yaml")) == "lab.yaml: is a directory"


def test_an_environment_error_names_the_capability() -> None:
    error = EnvironmentLackError("AF_XDP", hint="use a kernel with CONFIG_XDP_SOCKETS")
    assert error.capability == "AF_XDP"
    assert str(error).startswith("this machine lacks AF_XDP\n  hint: use a kernel")


def test_an_rdma_error_leads_with_the_verbs_status() -> None:
    error = RdmaError(ibv_wc_status.IBV_WC_RETRY_EXC_ERR, "h3 does not answer")
    assert str(error) == "IBV_WC_RETRY_EXC_ERR: h3 does not answer"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), 2),
        (EnvironmentLackError("x"), 3),
        (RunError("x"), 1),
        (RdmaError(ibv_wc_status.IBV_WC_FATAL_ERR, "x"), 1),
    ],
)
def test_exit_codes(error: LabError, code: int) -> None:
    assert error.exit_code == code


def test_exit_codes_are_complete() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 126, 127, 130]


def test_the_statuses_have_rdma_cores_values() -> None:
    # The order of rdma-core's libibverbs/verbs.h, where none has an explicit value.
    names = """
        SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR
        BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR
        RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR
        INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE
    """.split()  # noqa: SIM905 - a table to compare with the header
    assert [status.name for status in ibv_wc_status] == [f"IBV_WC_{name}" for name in names]
    assert [int(status) for status in ibv_wc_status] == list(range(24))
