/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What bcc's own headers expect of a kernel's configuration and of its short type names. */
#define CONFIG_BPF_SYSCALL 1
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef unsigned long size_t;
typedef unsigned long uintptr_t;
typedef _Bool bool;
