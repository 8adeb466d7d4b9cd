/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The mixer under every decision of the lab. Pure arithmetic, no library: the same bits in the BPF
 * programs (C, compiled by bcc), in the native engine (C++), and in the tests.
 */
#ifndef SOFTROCE_LAB_HASH_H
#define SOFTROCE_LAB_HASH_H

#define LAB_PURE static inline __attribute__((always_inline))

/* Before a loop: bcc's clang would unroll it and double the program. */
#ifdef __clang__
#define LAB_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define LAB_ROLLED
#endif

typedef unsigned char lab_u8;
typedef unsigned short lab_u16;
typedef unsigned int lab_u32;
typedef unsigned long long lab_u64;

/* 2^64 / golden ratio: keeps the mixer away from its fixed point 0. */
#define LAB_GOLDEN 0x9e3779b97f4a7c15ULL

/* SplitMix64's finaliser (Stafford's variant 13 of MurmurHash3's): bijective, full avalanche. */
LAB_PURE lab_u64 lab_mix64(lab_u64 x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/* One link of a chain: absorbs `word` into `state`. */
LAB_PURE lab_u64 lab_absorb(lab_u64 state, lab_u64 word) {
  return lab_mix64((state ^ word) + LAB_GOLDEN);
}

#endif
