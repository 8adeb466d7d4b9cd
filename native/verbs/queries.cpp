// SPDX-License-Identifier: GPL-2.0-or-later
// What can be asked of the device and its port, as softroce_lab/verbs/device.py has it.
#include <endian.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "objects.hpp"

#undef ibv_query_port

namespace softroce::verbs {
namespace {

constexpr int kMostReads = 128;
constexpr std::uint32_t kVendor = 0xFFFFFF;  // nobody's, as Linux's rxe reports
constexpr std::uint8_t kAckDelay = 15;       // 134 ms, as Linux's rxe reports
constexpr std::uint16_t kDefaultPkey = 0xFFFF;

ibv_mtu mtu_of(std::uint32_t bytes) {
  return static_cast<ibv_mtu>(std::bit_width(bytes) - 8);  // IBV_MTU_256 is 1
}

ibv_device_attr device_attributes(Device& device) {
  const RnicLimits& most = device.engine->rnic().limits();
  ibv_device_attr attr{};
  std::snprintf(attr.fw_ver, sizeof attr.fw_ver, "softroce_lab");
  attr.node_guid = attr.sys_image_guid = htobe64(device.settings.guid);
  attr.max_mr_size = UINT64_MAX;
  attr.page_size_cap = 0xFFFFF000;
  attr.vendor_id = kVendor;
  attr.max_qp = static_cast<int>(most.max_qp);
  attr.max_qp_wr = static_cast<int>(most.max_qp_wr);
  attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SRQ_RESIZE |
                          IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr.max_sge = attr.max_sge_rd = static_cast<int>(most.max_sge);
  attr.max_cq = attr.max_mr = attr.max_mw = attr.max_pd = attr.max_ah = INT_MAX;
  attr.max_cqe = kMostCqe;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = kMostReads;
  attr.max_res_rd_atom = kMostReads * attr.max_qp;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_srq = static_cast<int>(most.max_srq);
  attr.max_srq_wr = static_cast<int>(most.max_srq_wr);
  attr.max_srq_sge = static_cast<int>(most.max_sge);
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = kAckDelay;
  attr.phys_port_cnt = 1;
  return attr;
}

ibv_port_attr port_attributes(const Device& device) {
  ibv_port_attr attr{};
  const bool up = !device.engine || device.backup || device.engine->link_is_up();
  attr.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = attr.active_mtu = mtu_of(device.settings.path_mtu);
  attr.gid_tbl_len = static_cast<int>(device.settings.gids.size());
  attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr.max_msg_sz = 1U << 31;  // IBA 9.7.1
  attr.pkey_tbl_len = 1;
  attr.max_vl_num = 1;
  attr.active_width = 1;         // 1X
  attr.active_speed = 1;         // 2.5 Gb/s: nothing is known of the wire; rxe reports it, too
  attr.phys_state = up ? 5 : 3;  // link up, disabled
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  attr.flags = IBV_QPF_GRH_REQUIRED;
  return attr;
}

const Gid* find_gid(ibv_context* context, std::uint32_t port, std::uint32_t index) {
  const auto& gids = of(context).home->settings.gids;
  return port == kPort && index < gids.size() ? &gids[index] : nullptr;
}

void put_entry(const Device& device, std::uint32_t index, ibv_gid_entry& entry) {
  entry = {};
  put_gid(device.settings.gids[index], entry.gid);
  entry.gid_index = index;
  entry.port_num = kPort;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = device.settings.ifindex;
}

}  // namespace

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes) {
  if (port != kPort) return EINVAL;
  const ibv_port_attr ours = port_attributes(*of(context).home);
  std::memset(attr, 0, bytes);
  std::memcpy(attr, &ours, std::min(bytes, sizeof ours));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t bytes) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  ibv_device_attr_ex ours{};
  ours.orig_attr = device_attributes(*of(context).home);
  ours.phys_port_cnt_ex = 1;
  std::memset(attr, 0, bytes);
  std::memcpy(attr, &ours, std::min(bytes, sizeof ours));
  return 0;
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  *attr = device_attributes(*of(context).home);
  return 0;
}

// Programs that were compiled against headers of before 2019 know a shorter structure: it ends
// where `port_cap_flags2` begins now, and no more may be written.
int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  const softroce::Gid* found = find_gid(context, port, static_cast<std::uint32_t>(index));
  if (found == nullptr) return errno = EINVAL, -1;
  put_gid(*found, *gid);
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entry_bytes) {
  if (flags != 0) return EINVAL;
  if (find_gid(context, port, index) == nullptr) return port == kPort ? ENODATA : EINVAL;
  ibv_gid_entry ours;
  put_entry(*of(context).home, index, ours);
  std::memset(entry, 0, entry_bytes);
  std::memcpy(entry, &ours, std::min(entry_bytes, sizeof ours));
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most,
                             uint32_t flags, size_t entry_bytes) {
  const std::size_t count = of(context).home->settings.gids.size();
  if (flags != 0 || most < count) return -EINVAL;
  auto* at = reinterpret_cast<std::uint8_t*>(entries);
  for (std::size_t i = 0; i < count; ++i, at += entry_bytes)
    _ibv_query_gid_ex(context, kPort, static_cast<std::uint32_t>(i),
                      reinterpret_cast<ibv_gid_entry*>(at), 0, entry_bytes);
  return static_cast<ssize_t>(count);
}

int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, int* type) {
  if (find_gid(context, port, index) == nullptr) return errno = EINVAL, -1;
  *type = 1;  // IBV_GID_TYPE_SYSFS_ROCE_V2 of rdma-core's driver.h
  return 0;
}

int ibv_query_pkey(ibv_context*, uint8_t port, int index, __be16* pkey) {
  if (port != kPort || index != 0) return errno = EINVAL, -1;
  *pkey = htobe16(kDefaultPkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context*, uint8_t port, __be16 pkey) {
  if (port == kPort && (be16toh(pkey) & 0x7FFF) == (kDefaultPkey & 0x7FFF)) return 0;
  return errno = EINVAL, -1;
}

}  // extern "C"
