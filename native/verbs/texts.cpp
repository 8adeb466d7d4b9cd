// SPDX-License-Identifier: GPL-2.0-or-later
// Names of enums, as rdma-core spells them, and rates.
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

namespace {

template <std::size_t n>
const char* text(const std::array<const char*, n>& texts, int value, const char* unknown) {
  const auto index = static_cast<std::size_t>(value);
  return value >= 0 && index < n && texts[index] != nullptr ? texts[index] : unknown;
}

constexpr std::array kStatuses = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

constexpr std::array kEvents = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal error",
};

constexpr std::array kNodes = {
    static_cast<const char*>(nullptr),
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};

constexpr std::array kPortStates = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};

struct Rate {
  ibv_rate rate;
  int multiple, mbps;  // of 2.5 Gb/s, or 0: of FDR and later there is none; Mb/s
};

constexpr Rate kRates[] = {{IBV_RATE_2_5_GBPS, 1, 2500},      {IBV_RATE_5_GBPS, 2, 5000},
                           {IBV_RATE_10_GBPS, 4, 10000},      {IBV_RATE_20_GBPS, 8, 20000},
                           {IBV_RATE_30_GBPS, 12, 30000},     {IBV_RATE_40_GBPS, 16, 40000},
                           {IBV_RATE_60_GBPS, 24, 60000},     {IBV_RATE_80_GBPS, 32, 80000},
                           {IBV_RATE_120_GBPS, 48, 120000},   {IBV_RATE_14_GBPS, 0, 14062},
                           {IBV_RATE_28_GBPS, 0, 28125},      {IBV_RATE_50_GBPS, 20, 53125},
                           {IBV_RATE_56_GBPS, 0, 56250},      {IBV_RATE_112_GBPS, 0, 112500},
                           {IBV_RATE_168_GBPS, 0, 168750},    {IBV_RATE_25_GBPS, 0, 25781},
                           {IBV_RATE_100_GBPS, 40, 103125},   {IBV_RATE_200_GBPS, 80, 206250},
                           {IBV_RATE_300_GBPS, 0, 309375},    {IBV_RATE_400_GBPS, 160, 425000},
                           {IBV_RATE_600_GBPS, 240, 637500},  {IBV_RATE_800_GBPS, 320, 850000},
                           {IBV_RATE_1200_GBPS, 480, 1275000}};

}  // namespace

extern "C" {

const char* ibv_wc_status_str(ibv_wc_status status) { return text(kStatuses, status, "unknown"); }
const char* ibv_event_type_str(ibv_event_type event) { return text(kEvents, event, "unknown"); }
const char* ibv_node_type_str(ibv_node_type node) { return text(kNodes, node, "unknown"); }
const char* ibv_port_state_str(ibv_port_state state) {
  return text(kPortStates, state, "invalid state");
}

int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate& each : kRates)
    if (each.rate == rate && each.multiple != 0) return each.multiple;
  return -1;
}

ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate& each : kRates)
    if (each.multiple == multiple && multiple != 0) return each.rate;
  return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate& each : kRates)
    if (each.rate == rate) return each.mbps;
  return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& each : kRates)
    if (each.mbps == mbps) return each.rate;
  return IBV_RATE_MAX;
}

}  // extern "C"
