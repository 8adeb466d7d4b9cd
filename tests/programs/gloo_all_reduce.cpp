// SPDX-License-Identifier: GPL-2.0-or-later
// An all-reduce by Gloo's transport over verbs: gloo_all_reduce RANK RANKS FOLDER GID-INDEX INTS
// TIMES
//
// Ranks meet by files in FOLDER. Each checks every sum.

#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  const int ints = std::atoi(argv[5]), times = std::atoi(argv[6]);
  gloo::transport::ibverbs::attr where;
  where.name = "softroce0";
  where.port = 1;
  where.index = std::atoi(argv[4]);
  auto device = gloo::transport::ibverbs::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(argv[3]);
  context->connectFullMesh(store, device);
  std::vector<int> numbers(ints);
  gloo::AllreduceRingChunked<int> reduce(context, {numbers.data()}, ints);
  for (int time = 0; time < times; time++) {
    for (int i = 0; i < ints; i++) numbers[i] = rank + time + i;
    reduce.run();
    for (int i = 0; i < ints; i++)
      if (numbers[i] != ranks * (ranks - 1) / 2 + ranks * (time + i)) {
        std::fprintf(stderr, "rank %d, time %d: element %d is %d\n", rank, time, i, numbers[i]);
        return 1;
      }
  }
  std::printf("%d sums right\n", times);
  std::fflush(stdout);
  // Another rank may still wait for what is lost of the last sum, and Gloo's buffers must not be
  // destroyed before.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::quick_exit(0);
}
