/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * mpi_loops COLLECTIVE LARGEST TIMES: for each size from 1 B, doubled, to LARGEST: all-reduces, a
 * ring or an all-to-all of bytes. Every byte is checked. Prints a table as OSU's benchmarks do.
 * COLLECTIVE `forever` repeats all-reduces of LARGEST.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

/* What a rank sends to another in a round. */
static unsigned char byte(int from, int to, int round, size_t i) {
  return (unsigned char)(from * 31 + to * 7 + round * 13 + i + (i >> 8) * 3);
}

static void fill(unsigned char *at, size_t size, int to, int round) {
  for (size_t i = 0; i < size; i++) at[i] = byte(rank, to, round, i);
}

static void check(int right, const char *what, size_t size, int round) {
  if (right) return;
  fprintf(stderr, "rank %d: %s of %zu bytes, round %d: wrong\n", rank, what, size, round);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check_from(const unsigned char *at, size_t size, int from, int to, int round,
                       const char *what) {
  size_t i = 0;
  while (i < size && at[i] == byte(from, to, round, i)) i++;
  check(i == size, what, size, round);
}

static void all_reduce(unsigned char *out, unsigned char *in, size_t size, int round) {
  fill(out, size, 0, round);
  MPI_Allreduce(out, in, (int)size, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
  for (size_t i = 0; i < size; i++) {
    unsigned char all = 0;
    for (int from = 0; from < ranks; from++) all ^= byte(from, 0, round, i);
    check(in[i] == all, "all-reduce", size, round);
  }
}

static void ring(unsigned char *out, unsigned char *in, size_t size, int round) {
  int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  fill(out, size, right, round);
  MPI_Sendrecv(out, (int)size, MPI_BYTE, right, 0, in, (int)size, MPI_BYTE, left, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  check_from(in, size, left, rank, round, "ring");
}

static void all_to_all(unsigned char *out, unsigned char *in, size_t size, int round) {
  for (int to = 0; to < ranks; to++) fill(out + to * size, size, to, round);
  MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; from++)
    check_from(in + from * size, size, from, rank, round, "all-to-all");
}

int main(int argc, char **argv) {
  void (*collective)(unsigned char *, unsigned char *, size_t, int) = all_reduce;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  size_t largest = strtoul(argv[2], NULL, 10);
  int times = atoi(argv[3]), forever = !strcmp(argv[1], "forever");
  if (!strcmp(argv[1], "ring")) collective = ring;
  if (!strcmp(argv[1], "all-to-all")) collective = all_to_all;
  unsigned char *out = malloc(largest * ranks), *in = malloc(largest * ranks);

  for (int round = 0; forever; round++) {
    all_reduce(out, in, largest, round);
    if (rank == 0 && round == 0) puts("begun"), fflush(stdout);
  }
  if (rank == 0) puts("# Size       Avg Latency(us)");
  for (size_t size = 1; size <= largest; size *= 2) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began_s = MPI_Wtime();
    for (int round = 0; round < times; round++) collective(out, in, size, round);
    if (rank == 0) printf("%-10zu %16.2f\n", size, 1e6 * (MPI_Wtime() - began_s) / times);
  }
  if (rank == 0) printf("%s: all bytes right\n", argv[1]);
  MPI_Finalize();
  return 0;
}
