/* SPDX-License-Identifier: GPL-2.0-or-later
 * Values that a program compares: each that is wrong is printed, with its line, and counted. */
#include <errno.h>
#include <stdio.h>

static int wrong;

#define CHECK(what) compare(__LINE__, #what, (what))

/* A call that makes an object refuses, with this reason. */
#define REFUSES(why, call) compare(__LINE__, #call, (errno = 0, (call) == NULL) && errno == (why))

static void compare(int line, const char *what, int holds) {
  if (holds) return;
  fprintf(stderr, "line %d: not so: %s\n", line, what);
  ++wrong;
}
