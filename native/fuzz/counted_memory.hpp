// SPDX-License-Identifier: GPL-2.0-or-later
// Counts the memory that a harness holds: included by the one source file of a program, because it
// replaces the program's operators `new` and `delete`.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace softroce::fuzz {

inline std::size_t live_bytes = 0;

}  // namespace softroce::fuzz

void* operator new(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  softroce::fuzz::live_bytes += malloc_usable_size(memory);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) softroce::fuzz::live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
