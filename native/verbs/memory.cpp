// SPDX-License-Identifier: GPL-2.0-or-later
// Memory regions.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "objects.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace softroce::verbs {
namespace {

constexpr unsigned kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kGranted =
    IBV_ACCESS_LOCAL_WRITE | kRemoteWrites | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
constexpr unsigned kWithoutEffect = IBV_ACCESS_HUGETLB | IBV_ACCESS_ZERO_BASED;

std::uintptr_t page_bytes() { return static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)); }

// Kernels before 5.14 do not know the advice MADV_POPULATE_*: asked once, with a page of our own,
// since madvise(2) has EINVAL for memory without the permission, too.
bool kernel_populates() {
  static const bool knows = [] {
    void* page = mmap(nullptr, page_bytes(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "a page");
    const int error = madvise(page, page_bytes(), MADV_POPULATE_READ) == 0 ? 0 : errno;
    munmap(page, page_bytes());
    return error != EINVAL;
  }();
  return knows;
}

// Makes the pages be there, as a device pins them. EFAULT: the process has no such memory, or may
// not write it. Where the kernel does not know the advice, the first packet finds out.
int populate(void* address, std::size_t bytes, bool writes) {
  if (!kernel_populates()) return 0;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address) & ~(page_bytes() - 1);
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  const int advice = writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0) return 0;
  return errno == ENOMEM || errno == EINVAL ? EFAULT : errno;
}

// Whether memory may become a region with this access; then its pages are there.
int prepare(void* address, std::size_t bytes, unsigned access) {
  if (access & ~(kGranted | kWithoutEffect)) return EOPNOTSUPP;  // on-demand paging
  if ((access & kRemoteWrites) && !(access & IBV_ACCESS_LOCAL_WRITE)) return EINVAL;
  if (address == nullptr || bytes == 0) return EINVAL;
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  if (from + bytes < from) return EINVAL;
  return populate(address, bytes, access & IBV_ACCESS_LOCAL_WRITE);
}

int register_memory(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                    unsigned access, Mr*& region) {
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if (const int error = prepare(address, bytes, access)) return error;
  auto made = std::make_unique<Mr>();
  made->context = pd->context;
  made->pd = pd;
  made->addr = address;
  made->length = bytes;
  made->iova = iova;
  made->access = access & kGranted;
  made->lkey = made->rkey = engine_of(pd->context)
                                .rnic()
                                .memory()
                                .add(static_cast<std::uint8_t*>(address), bytes, made->access,
                                     static_cast<Pd*>(pd)->number, iova);
  made->handle = made->lkey;
  if (Engine* shadow = shadow_of(pd->context))
    shadow->rnic().memory().add_under(made->lkey, static_cast<std::uint8_t*>(address), bytes,
                                      made->access, static_cast<Pd*>(pd)->number, iova);
  ++static_cast<Pd*>(pd)->users;
  region = made.release();
  return 0;
}

// The key stays. What is refused leaves the region as it was.
int change(Mr& region, int flags, ibv_pd* pd, void* address, std::size_t bytes, unsigned access) {
  constexpr int kChanges =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || !(flags & kChanges)) return EINVAL;
  std::uint64_t iova = reinterpret_cast<std::uintptr_t>(address);
  if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
    address = region.addr;
    bytes = region.length;
    iova = region.iova;
  }
  if (!(flags & IBV_REREG_MR_CHANGE_PD)) pd = region.pd;
  if (!(flags & IBV_REREG_MR_CHANGE_ACCESS)) access = region.access;
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if (pd == nullptr || pd->context != region.context) return EINVAL;
  if (const int error = prepare(address, bytes, access)) return error;
  for (Engine* engine : {&engine_of(region.context), shadow_of(region.context)}) {
    if (engine == nullptr) continue;
    const auto held = engine->hold();
    engine->rnic().memory().change(region.lkey, static_cast<std::uint8_t*>(address), bytes,
                                   access & kGranted, static_cast<Pd*>(pd)->number, iova);
  }
  --static_cast<Pd*>(region.pd)->users;
  ++static_cast<Pd*>(pd)->users;
  region.pd = pd;
  region.addr = address;
  region.length = bytes;
  region.iova = iova;
  region.access = access & kGranted;
  return 0;
}

}  // namespace
}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t iova,
                         unsigned int access) {
  return made<Mr>([&](Mr*& region) {
    const std::uint64_t from = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
    return register_memory(pd, address, bytes, from, access, region);
  });
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t bytes, uint64_t iova, int access) {
  return ibv_reg_mr_iova2(pd, address, bytes, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, address, bytes, reinterpret_cast<std::uintptr_t>(address),
                          static_cast<unsigned>(access));
}

int ibv_dereg_mr(ibv_mr* base) {
  return guarded([&] {
    for (Engine* engine : {&engine_of(base->context), shadow_of(base->context)}) {
      if (engine == nullptr) continue;
      // Held: the engine is not in the midst of a packet that touches it.
      const auto held = engine->hold();
      engine->rnic().memory().remove(base->lkey);
    }
    --static_cast<Pd*>(base->pd)->users;
    delete static_cast<Mr*>(base);
    return 0;
  });
}

int ibv_rereg_mr(ibv_mr* base, int flags, ibv_pd* pd, void* address, size_t bytes, int access) {
  errno = guarded([&] {
    return change(*static_cast<Mr*>(base), flags, pd, address, bytes,
                  static_cast<unsigned>(access));
  });
  return errno == 0 ? 0 : IBV_REREG_MR_ERR_INPUT;
}

}  // extern "C"
