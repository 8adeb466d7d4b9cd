// SPDX-License-Identifier: GPL-2.0-or-later
// What programs hold by pointers: libibverbs' structures (infiniband/verbs.h), each the head of our
// own, as drivers of rdma-core lay them out.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../engine/codec/bytes.hpp"
#include "../engine/verbs/completion.hpp"
#include "../engine/verbs/work_request.hpp"
#include "../shift/completions.hpp"
#include "../shift/shift_qp.hpp"
#include "engine.hpp"
#include "guarded.hpp"
#include "settings.hpp"

namespace softroce::verbs {

class DeviceBackup;

struct Device : ibv_device {
  // rdma-core's struct verbs_device goes on here: the drivers of libmlx5 and libefa ask a device
  // whose it is, and a zero means nobody's of theirs.
  unsigned char driver_area[512] = {};
  Settings settings;
  std::unique_ptr<Engine> engine;  // since it was opened first, and then for good
  int contexts = 0;                // that are open
  // With SHIFT: the next device, and this one's part there, while a queue pair may need it.
  Device* next = nullptr;
  std::unique_ptr<DeviceBackup> backup;
  int backs_up = 0;  // how many devices have a part here
  Device();
  ~Device();
};

struct Qp;

struct Context : verbs_context {
  Device* home = nullptr;
  std::mutex events_lock;
  std::deque<ibv_async_event> events;
};

struct Td : ibv_td {
  std::atomic<int> users = 0;
};

struct Pd : ibv_pd {
  std::uint32_t number = 0;  // a parent domain has that of its protection domain
  std::atomic<int> users = 0;
  Pd* protection_domain = nullptr;  // of a parent domain; else null
  Td* thread_domain = nullptr;
};

struct Mr : ibv_mr {
  std::uint64_t iova = 0;
  unsigned access = 0;
};

struct Mw : ibv_mw {
  std::uint32_t first_key = 0;  // of those that differ in the low byte
};

struct Cq;

struct Channel : ibv_comp_channel {
  std::mutex lock;
  std::deque<Cq*> events;
};

// What completions of an extended queue are read with.
struct Reader {
  std::mutex lock;  // between ibv_start_poll and ibv_end_poll, unless one thread has the queue
  bool single_threaded = false;
  ibv_wc current{};
};

// What completes at a device and at its backup.
struct BothQueues {
  template <typename... Queue>
  explicit BothQueues(std::shared_ptr<shift::Backup> of, Queue&&... queue)
      : backup(std::move(of)), completions(*backup, std::forward<Queue>(queue)...) {}
  const std::shared_ptr<shift::Backup> backup;
  shift::Completions completions;
};

struct Cq : ibv_cq {
  // ibv_cq_ex goes on here, which begins as ibv_cq does.
  alignas(8) unsigned char extension[sizeof(ibv_cq_ex) - sizeof(ibv_cq)] = {};
  std::unique_ptr<Reader> reader;  // of an extended queue
  Pd* parent_domain = nullptr;     // that it was made for
  std::shared_ptr<CompletionQueue> queue;
  std::shared_ptr<BothQueues> both;                    // since a queue pair has a backup
  std::atomic<shift::Completions*> at_both = nullptr;  // of `both`
  std::atomic<int> users = 0;
  static constexpr unsigned kPatience = 128;   // empty polls in a row, longer than a round trip
  static constexpr unsigned kYieldEvery = 32;  // after that
  std::atomic<unsigned> empty_polls = 0;       // about: threads that poll at once lose some
  // Counts an empty poll; whether its program should let others run.
  bool waits_long() {
    const unsigned empty = empty_polls.load(std::memory_order_relaxed) + 1;
    empty_polls.store(empty, std::memory_order_relaxed);
    return empty >= kPatience && empty % kYieldEvery == 0;
  }
  std::uint32_t events_taken = 0;  // completion events, by the program
};

struct Srq : ibv_srq {
  std::uint32_t number = 0;
  std::uint32_t max_sge = 0;
  std::uint32_t events_taken = 0;                 // asynchronous events, by the program
  std::shared_ptr<shift::SharedReceives> shared;  // since a queue pair of it has a backup
};

// Requests of an extended queue pair, between ibv_wr_start and ibv_wr_complete.
struct Builder {
  std::mutex lock;               // held meanwhile
  std::uint64_t operations = 0;  // enum ibv_qp_create_send_ops_flags that the program asked for
  std::vector<SendRequest> requests{};
  int error = 0;  // the first, since ibv_wr_start
};

struct Qp : ibv_qp {
  // ibv_qp_ex goes on here, which begins with an ibv_qp.
  alignas(8) unsigned char extension[sizeof(ibv_qp_ex) - sizeof(ibv_qp)] = {};
  std::unique_ptr<Builder> builder;  // of an extended queue pair
  bool signal_all = false;
  std::uint32_t max_inline = 0;
  std::uint32_t events_taken = 0;
  std::mutex changes;                               // held by who modifies or asks it
  std::shared_ptr<shift::ShiftQp> shift;            // if it has a backup
  bool has_peer = false;                            // that its backup knows
  std::atomic<shift::ShiftQp*> posts_by = nullptr;  // `shift`, for those that post
  mutable std::atomic<unsigned> posting = 0;        // how many do, by that
};

struct Ah : ibv_ah {
  AddressVector vector;
};

constexpr std::uint8_t kPort = 1;
constexpr int kMostCqe = 1 << 22;

inline void put_gid(const Gid& from, ibv_gid& to) {
  store64(to.raw, from.high);
  store64(to.raw + 8, from.low);
}

inline Context& of(ibv_context* context) { return *static_cast<Context*>(verbs_get_ctx(context)); }
inline Engine& engine_of(ibv_context* context) { return *of(context).home->engine; }

// The verbs that programs reach through the context, and not by a symbol.
int poll_cq(ibv_cq* cq, int most, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t bytes);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// While this is there, what the queue pair posts by stays.
struct PostBy {
  explicit PostBy(const Qp& from) : of(from) {
    ++of.posting;
    qp = of.posts_by;
  }
  ~PostBy() { --of.posting; }
  PostBy(const PostBy&) = delete;
  PostBy& operator=(const PostBy&) = delete;
  const Qp& of;
  shift::ShiftQp* qp;
};

// Posts by `own` while the queue pair is at its own device, else by `moved`, which has its backup.
template <typename Own, typename Moved>
int post_where_it_is(const Qp& qp, Own&& own, Moved&& moved) {
  if (qp.posts_by.load(std::memory_order_relaxed) == nullptr) return own();
  const PostBy shift(qp);
  if (shift.qp == nullptr) return own();
  {
    const shift::ShiftQp::PlainPost plain(*shift.qp);
    if (plain) return own();
  }
  return moved(*shift.qp);
}

std::uint32_t new_protection_domain();
// Rings the channel of a completion queue; empty: it has none.
std::function<void()> ring_of(Cq& cq);
// The backup of a device, made when first asked for; null: it has none.
DeviceBackup* backup_for(Device& device);
// The engine that has this device's regions besides; null: none.
Engine* shadow_of(ibv_context* context);

// What ordinary and extended objects have in common.
int create_qp(ibv_pd* pd, ibv_qp_init_attr& attr, Qp*& created);
int create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
              int vector, Cq*& created);
constexpr int kMostElements = 256;  // beyond any limit; what a program means when it is wrong
inline void take_elements(const ibv_sge* from, std::size_t count, std::vector<ScatterGather>& to) {
  to.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    to.push_back({from[i].addr, from[i].length, from[i].lkey});
}

// A request to bind a window of type 2 by this key. EINVAL: it cannot be that.
int take_binding(const ibv_qp& qp, const ibv_mw* mw, std::uint32_t key,
                 const ibv_mw_bind_info& info, SendRequest& request);

// An address of a program's as the RNIC has it; EINVAL: none of RoCE through this port. `engine` is
// held.
int address_of(Engine& engine, const ibv_ah_attr& attr, AddressVector& vector);
void fill_address(const AddressVector& vector, ibv_ah_attr& attr);

// The events that the RNIC has reported, to the contexts that they concern. `engine` is held.
void hand_out_async_events(Engine& engine);
// The port's link came up or went down: to all contexts, but of a device with a backup. `engine` is
// held.
void hand_out_port_event(Engine& engine, bool up);
// A queue pair takes no more of its shared receives.
void hand_out_last_wqe(Qp& qp);
// Its events that nobody took go; waits until those that somebody took are acknowledged.
void forget(Qp* qp);
void forget(Srq* srq);
void forget_events_of(Cq* cq);

// The number that a program put there: as an enumeration it may have any that is named, and no
// other.
template <typename Enumeration>
unsigned number_of(const Enumeration& given) {
  static_assert(sizeof given == sizeof(unsigned));
  unsigned number;
  std::memcpy(&number, &given, sizeof number);
  return number;
}

// `guarded` for verbs that make something: null, and errno has the reason.
template <typename T, typename F>
T* made(F&& body) noexcept {
  T* object = nullptr;
  const int error = guarded([&] { return body(object); });
  if (error == 0) return object;
  errno = error;
  return nullptr;
}

}  // namespace softroce::verbs
