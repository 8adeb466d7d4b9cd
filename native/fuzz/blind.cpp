// SPDX-License-Identifier: GPL-2.0-or-later
// NAME COUNT SEED FILE_OR_FOLDER...
//
// Replaces libFuzzer where only a compiler with sanitizers is: gives a target each
// file, and then COUNT inputs made of them by blind changes, the same ones for the same SEED. An
// input that the target ends on is left in the file `last-input` of the current folder.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "number.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;
namespace fs = std::filesystem;

Input content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Input> corpus(int count, char** names) {
  std::vector<fs::path> paths;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(names[i]))
      paths.emplace_back(names[i]);
    else
      for (const auto& entry : fs::directory_iterator(names[i])) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // folders list in any order
  std::vector<Input> inputs;
  for (const fs::path& path : paths) inputs.push_back(content(path));
  return inputs;
}

class Blind {
 public:
  Blind(std::vector<Input> inputs, std::uint64_t seed)
      : inputs_(std::move(inputs)), random_(seed) {}

  void run(std::uint64_t count) {
    for (const Input& input : inputs_) tell(input);
    for (std::uint64_t i = 0; i < count; ++i) {
      Input input = any();
      for (std::size_t n = 1 + below(4); n != 0; --n) change(input);
      tell(input);
    }
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const Input& any() { return inputs_[below(inputs_.size())]; }

  void change(Input& input) {
    static constexpr std::uint8_t kEdges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    const std::size_t at = below(input.size());
    const std::size_t length = std::min(input.size() - at, std::size_t{1} << below(7));
    const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(5)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        std::fill_n(here, std::min<std::size_t>(length, 4), kEdges[below(std::size(kEdges))]);
        break;
      case 2:
        input.erase(here, here + static_cast<std::ptrdiff_t>(length));
        break;
      case 3: {
        const Input piece(here, here + static_cast<std::ptrdiff_t>(length));
        input.insert(here, piece.begin(), piece.end());
        break;
      }
      default: {
        const Input& other = any();
        const std::size_t from = below(other.size());
        const std::size_t bytes = std::min(other.size() - from, length);
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), std::min(bytes, length),
                    here);
      }
    }
  }

  void tell(const Input& input) {
    std::ofstream("last-input", std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
    // Of exactly its length, so that a byte read beyond it is seen.
    const Input exact(input.begin(), input.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }

  std::vector<Input> inputs_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t count = 0, seed = 0;
  if (argc < 4 || !parse(argv[1], count) || !parse(argv[2], seed)) {
    std::fprintf(stderr, "usage: %s COUNT SEED FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  std::vector<Input> inputs = corpus(argc - 3, argv + 3);
  if (inputs.empty()) {
    std::fprintf(stderr, "%s: no inputs\n", argv[0]);
    return 2;
  }
  const std::size_t files = inputs.size();
  Blind(std::move(inputs), seed).run(count);
  std::printf("%zu files and %llu inputs made of them\n", files,
              static_cast<unsigned long long>(count));
  return 0;
}
