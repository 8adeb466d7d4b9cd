/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Times MPI_Allreduce and checks every sum: allreduce BYTES TIMES
 *
 *     mpicc -O2 -o allreduce allreduce.c
 *
 * An all-reduce takes as long as at the slowest rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int is_less(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  size_t bytes = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
  int times = argc > 2 ? atoi(argv[2]) : 0;
  if (bytes < sizeof(int) || bytes >> 30 || times < 1) {
    fprintf(stderr, "allreduce BYTES TIMES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int count = (int)(bytes / sizeof(int));
  int *mine = malloc(bytes), *sum = malloc(bytes);
  double *took_s = malloc(times * sizeof *took_s);
  for (int time = 0; time < times; time++) {
    for (int i = 0; i < count; i++) mine[i] = rank + time + i;
    MPI_Barrier(MPI_COMM_WORLD);
    double began_s = MPI_Wtime();
    MPI_Allreduce(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    double own_s = MPI_Wtime() - began_s;
    MPI_Allreduce(&own_s, &took_s[time], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
      if (sum[i] != ranks * (ranks - 1) / 2 + ranks * (time + i)) {
        fprintf(stderr, "rank %d, all-reduce %d: element %d is %d\n", rank, time, i, sum[i]);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
  }
  qsort(took_s, times, sizeof *took_s, is_less);
  if (rank == 0)
    printf("%d ranks, %zu bytes: median %.3f ms, max %.3f ms, all sums right\n", ranks, bytes,
           1e3 * took_s[times / 2], 1e3 * took_s[times - 1]);
  MPI_Finalize();
  return 0;
}
