// SPDX-License-Identifier: GPL-2.0-or-later
// Extended completion queues: ibv_start_poll, ibv_next_poll, ibv_end_poll, and what is read between
// them. ibv_poll_cq works on them, too.
#include <cerrno>
#include <climits>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr std::uint32_t kAttributes = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;

ibv_cq_ex* extended(Cq* cq) { return reinterpret_cast<ibv_cq_ex*>(static_cast<ibv_cq*>(cq)); }
Cq& of(ibv_cq_ex* cq) { return *static_cast<Cq*>(ibv_cq_ex_to_cq(cq)); }

// The next completion becomes the current one; ENOENT: there is none.
int advance(ibv_cq_ex* base) {
  Cq& cq = of(base);
  ibv_wc& current = cq.reader->current;
  if (poll_cq(&cq, 1, &current) == 0) return ENOENT;
  base->wr_id = current.wr_id;
  base->status = current.status;
  return 0;
}

int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Reader& reader = *of(base).reader;
  if (!reader.single_threaded) reader.lock.lock();
  const int error = advance(base);
  if (error != 0 && !reader.single_threaded) reader.lock.unlock();
  return error;
}

void end_poll(ibv_cq_ex* base) {
  Reader& reader = *of(base).reader;
  if (!reader.single_threaded) reader.lock.unlock();
}

const ibv_wc& current(ibv_cq_ex* cq) { return of(cq).reader->current; }

void fill_functions(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = advance;
  cq.end_poll = end_poll;
  cq.read_opcode = [](ibv_cq_ex* from) { return current(from).opcode; };
  cq.read_vendor_err = [](ibv_cq_ex* from) { return current(from).vendor_err; };
  cq.read_byte_len = [](ibv_cq_ex* from) { return current(from).byte_len; };
  cq.read_imm_data = [](ibv_cq_ex* from) { return current(from).imm_data; };  // or the key
  cq.read_qp_num = [](ibv_cq_ex* from) { return current(from).qp_num; };
  cq.read_src_qp = [](ibv_cq_ex* from) { return current(from).src_qp; };
  cq.read_wc_flags = [](ibv_cq_ex* from) { return current(from).wc_flags; };
  cq.read_slid = [](ibv_cq_ex* from) { return std::uint32_t{current(from).slid}; };
  cq.read_sl = [](ibv_cq_ex* from) { return current(from).sl; };
  cq.read_dlid_path_bits = [](ibv_cq_ex* from) { return current(from).dlid_path_bits; };
}

int create(ibv_context* context, const ibv_cq_init_attr_ex& attr, Cq*& created) {
  if (attr.comp_mask & ~kAttributes) return EOPNOTSUPP;
  const std::uint32_t flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr.flags : 0;
  if (flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) return EOPNOTSUPP;
  if (attr.wc_flags & ~std::uint64_t{IBV_WC_STANDARD_FLAGS}) return EOPNOTSUPP;
  if (attr.cqe > INT_MAX || attr.comp_vector > INT_MAX) return EINVAL;
  Pd* parent = nullptr;
  if (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
    parent = static_cast<Pd*>(attr.parent_domain);
    if (parent == nullptr || parent->protection_domain == nullptr) return EINVAL;
  }
  auto reader = std::make_unique<Reader>();
  reader->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  if (const int error = create_cq(context, static_cast<int>(attr.cqe), attr.cq_context,
                                  attr.channel, static_cast<int>(attr.comp_vector), created))
    return error;
  created->reader = std::move(reader);
  created->parent_domain = parent;
  if (parent != nullptr) ++parent->users;
  fill_functions(*extended(created));
  return 0;
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  Cq* cq = made<Cq>([&](Cq*& created) { return create(context, *attr, created); });
  return cq != nullptr ? extended(cq) : nullptr;
}

}  // namespace softroce::verbs
