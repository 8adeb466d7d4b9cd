# SPDX-License-Identifier: GPL-2.0-or-later
"""Erasure codes: every pattern of losses that can be decoded is, and no other."""

import itertools

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.transports.erasure.code import ErasureCode, UndecodableError

WRONG = 0xA5
"""What a lost chunk's memory holds."""


def chunks(rows, chunk_bytes, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (rows, chunk_bytes), np.uint8)


def encoded(code, chunk_bytes, seed=1):
    """Data and parity."""
    data = chunks(code.data_chunks, chunk_bytes, seed)
    parity = np.full((code.parity_chunks, chunk_bytes), WRONG, np.uint8)
    code.encode(data, parity)
    return data, parity


def presence(code, lost):
    present = np.ones(code.data_chunks + code.parity_chunks, np.bool_)
    present[list(lost)] = False
    return present


def assert_decoded(code, data, parity, lost):
    """Lose these chunks, decode, and compare every byte of data and parity."""
    damaged = np.concatenate([data, parity])
    damaged[list(lost)] = WRONG
    expected = damaged.copy()
    expected[: code.data_chunks] = data
    restored = code.decode(
        damaged[: code.data_chunks], damaged[code.data_chunks :], presence(code, lost)
    )
    assert restored.tolist() == [each for each in sorted(lost) if each < code.data_chunks]
    assert np.array_equal(damaged, expected), lost


def assert_refused(code, data, parity, lost):
    before = data.copy()
    present = presence(code, lost)
    assert not code.decodable(present)
    with pytest.raises(UndecodableError) as refusal:
        code.decode(data, parity, present)
    assert refusal.value.lost == sorted(lost)
    assert np.array_equal(data, before)


def patterns(code, most):
    """All sets of up to so many losses."""
    count = code.data_chunks + code.parity_chunks
    return itertools.chain.from_iterable(
        itertools.combinations(range(count), losses) for losses in range(most + 1)
    )


# ---------------------------------------------------------------- MDS


@pytest.mark.full("erasure")
def test_every_pattern_of_up_to_m_losses_is_decoded_and_every_larger_one_refused(full):
    """Erasure codes: k <= 8, m <= 4 exhaustively, and 100,000 random patterns of (32, 8)."""
    for k, m in itertools.product(range(1, 9) if full else (1, 2, 5, 8), range(1, 5)):
        code = ErasureCode("mds", k, m)
        data, parity = encoded(code, 33)
        for lost in patterns(code, m):
            assert_decoded(code, data, parity, lost)
        for lost in itertools.combinations(range(k + m), m + 1):
            assert_refused(code, data, parity, lost)


@pytest.mark.full("erasure")
@pytest.mark.parametrize("scheme", ["mds", "xor"])
def test_random_patterns_of_the_default_code(scheme, full):
    """Erasure codes: random patterns of (32, 8), byte for byte."""
    code = ErasureCode(scheme, 32, 8)
    data, parity = encoded(code, 256)
    draw = np.random.default_rng(2)
    for _ in range(100_000 if full else 500):
        if scheme == "mds":
            lost = draw.choice(40, draw.integers(1, 9), replace=False).tolist()
        else:  # one of each group, or none
            groups = [[*range(group, 32, 8), 32 + group] for group in range(8)]
            lost = [int(draw.choice(each)) for each in groups if draw.random() < 0.7]
        assert_decoded(code, data, parity, lost)


@pytest.mark.skipif(not _native.has_isal, reason="built without ISA-L")
@pytest.mark.parametrize(("k", "m"), [(1, 1), (3, 7), (32, 8), (200, 56), (128, 128)])
def test_the_matrix_is_isal_s(k, m):
    data, theirs = chunks(k, 512), np.empty((m, 512), np.uint8)
    _native.isal_encode(_native.isal_tables(k, m), data, theirs)
    parity = np.empty_like(theirs)
    ErasureCode("mds", k, m).encode(data, parity)
    assert np.array_equal(parity, theirs)


# ---------------------------------------------------------------- XOR


def groups_of(code, lost):
    """How many losses each group has."""
    counts = [0] * code.parity_chunks
    for each in lost:
        index = each if each < code.data_chunks else each - code.data_chunks
        counts[index % code.parity_chunks] += 1
    return counts


@pytest.mark.parametrize("k", range(1, 8))
def test_xor_restores_one_loss_a_group_and_refuses_two(k):
    for m in range(1, min(k, 4) + 1):
        code = ErasureCode("xor", k, m)
        data, parity = encoded(code, 9)
        for lost in patterns(code, m + 1):
            if max(groups_of(code, lost)) <= 1:
                assert_decoded(code, data, parity, lost)
            else:
                assert_refused(code, data, parity, lost)


# ---------------------------------------------------------------- arrays


def test_read_only_data_is_encoded_but_not_decoded_into():
    code = ErasureCode("mds", 2, 1)
    data, parity = encoded(code, 16)
    data.flags.writeable = parity.flags.writeable = False
    with pytest.raises(UserError, match="parity is read-only"):
        code.encode(data, parity)
    with pytest.raises(UserError, match="data is read-only"):
        code.decode(data, parity, presence(code, [0]))
    code.encode(data, np.empty((1, 16), np.uint8))


@pytest.mark.parametrize(
    ("scheme", "k", "m", "problem"),
    [
        ("mds", 0, 8, "mds: k is 0"),
        ("xor", 32, 0, "xor: m is 0"),
        ("mds", -1, 1, "k is -1"),
        ("mds", 249, 8, r"k \+ m is 257, not at most 256"),
        ("xor", 4, 5, "m is 5, more than k = 4"),
        ("raid", 4, 2, "no erasure code is called 'raid'"),
    ],
)
def test_an_impossible_code_is_refused(scheme, k, m, problem):
    with pytest.raises(UserError, match=problem):
        ErasureCode(scheme, k, m)


@pytest.mark.parametrize(
    ("data", "parity", "problem"),
    [
        (np.zeros((3, 8), np.uint8), np.zeros((2, 8), np.uint8), "3 rows of data, not 4"),
        (np.zeros((4, 8), np.uint8), np.zeros((3, 8), np.uint8), "3 rows of parity, not 2"),
        (np.zeros((4, 8), np.uint8), np.zeros((2, 9), np.uint8), "data have 8 bytes.* parity 9"),
        (np.zeros((4, 8), np.uint16), np.zeros((2, 8), np.uint8), "data is no array of uint8"),
        (np.zeros(4, np.uint8), np.zeros((2, 8), np.uint8), "data is no array of uint8"),
        (np.zeros((4, 0), np.uint8), np.zeros((2, 0), np.uint8), "no bytes"),
        (np.zeros((4, 8), np.uint8)[:, ::2], np.zeros((2, 4), np.uint8), "not contiguous"),
        ([b"12345678"] * 4, np.zeros((2, 8), np.uint8), "data is no array"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(data, parity, problem):
    with pytest.raises(UserError, match=problem):
        ErasureCode("mds", 4, 2).encode(data, parity)


@pytest.mark.parametrize(
    "present", [np.ones(5, np.bool_), np.ones(6, np.uint8), np.ones(12, np.bool_)[::2], [True] * 6]
)
def test_presence_of_another_shape_is_refused(present):
    with pytest.raises(UserError, match="present"):
        ErasureCode("mds", 4, 2).decodable(present)
