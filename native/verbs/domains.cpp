// SPDX-License-Identifier: GPL-2.0-or-later
// Protection domains, and what changes nothing here: thread domains, since every verb takes the
// engine's lock, and the allocators of parent domains, since no queue is in memory that a device
// reads.
#include <cerrno>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

std::atomic<std::uint32_t> next_pd = 1;  // 0 is for those who use an engine without verbs

constexpr std::uint32_t kParentAttributes =
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

// A protection domain and its parent domains are one: the same regions are in them.
int create_parent(ibv_context* context, const ibv_parent_domain_init_attr& attr, Pd*& created) {
  if (attr.pd == nullptr || attr.pd->context != context) return EINVAL;
  if (attr.comp_mask & ~kParentAttributes) return EOPNOTSUPP;
  Pd* domain = static_cast<Pd*>(attr.pd);
  if (domain->protection_domain != nullptr) return EINVAL;
  created = new Pd;
  created->context = context;
  created->handle = created->number = domain->number;
  created->protection_domain = domain;
  ++domain->users;
  created->thread_domain = static_cast<Td*>(attr.td);
  if (attr.td != nullptr) ++created->thread_domain->users;
  return 0;
}

}  // namespace

std::uint32_t new_protection_domain() { return next_pd++; }

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  return made<Td>([&](Td*& domain) {
    if (attr->comp_mask != 0) return EOPNOTSUPP;
    domain = new Td;
    domain->context = context;
    return 0;
  });
}

int dealloc_td(ibv_td* base) {
  Td* domain = static_cast<Td*>(base);
  if (domain->users != 0) return EBUSY;
  delete domain;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  return made<Pd>([&](Pd*& domain) { return create_parent(context, *attr, domain); });
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return made<Pd>([&](Pd*& pd) {
    pd = new Pd;
    pd->context = context;
    pd->handle = pd->number = new_protection_domain();
    return 0;
  });
}

int ibv_dealloc_pd(ibv_pd* base) {
  Pd* pd = static_cast<Pd*>(base);
  if (pd->users != 0) return EBUSY;
  if (pd->protection_domain != nullptr) --pd->protection_domain->users;
  if (pd->thread_domain != nullptr) --pd->thread_domain->users;
  delete pd;
  return 0;
}

}  // extern "C"
