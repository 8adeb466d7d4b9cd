// SPDX-License-Identifier: GPL-2.0-or-later
// Objects that stay where they are, numbered from 0, side by side in huge pages: a fabric of
// thousands of hosts is larger than what the processor translates addresses of.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

namespace softroce::sim {

inline constexpr std::size_t kHugePage = 1 << 21;

// For containers. Pages are huge where the kernel has some; small requests are as ever.
template <typename T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <typename U>
  explicit HugePages(const HugePages<U>&) {}

  T* allocate(std::size_t count) {
    std::size_t bytes = count * sizeof(T), alignment = std::max(alignof(T), sizeof(void*));
    if (bytes >= kHugePage) alignment = kHugePage;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const HugePages&) const { return true; }
};

template <typename T>
class Slab {
 public:
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    while (size_ != 0) std::destroy_at(&(*this)[--size_]);
    for (T* chunk : chunks_) HugePages<T>().deallocate(chunk, kChunk);
  }

  template <typename... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == chunks_.size() * kChunk) chunks_.push_back(HugePages<T>().allocate(kChunk));
    T* made =
        std::construct_at(&chunks_[size_ / kChunk][size_ % kChunk], std::forward<Args>(args)...);
    ++size_;
    return *made;
  }
  T& operator[](std::size_t at) { return chunks_[at / kChunk][at % kChunk]; }
  const T& operator[](std::size_t at) const { return chunks_[at / kChunk][at % kChunk]; }
  T& at(std::size_t at) { return (*this)[checked(at)]; }  // or std::out_of_range
  const T& at(std::size_t at) const { return (*this)[checked(at)]; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kChunk = std::bit_ceil(kHugePage / sizeof(T));

  std::size_t checked(std::size_t at) const {
    if (at >= size_) throw std::out_of_range("no object has this number");
    return at;
  }

  std::vector<T*> chunks_;
  std::size_t size_ = 0;
};

}  // namespace softroce::sim
