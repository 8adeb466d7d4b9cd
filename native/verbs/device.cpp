// SPDX-License-Identifier: GPL-2.0-or-later
// The device: found, opened, closed; what becomes of it at fork and at exit.
#include <endian.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backup.hpp"
#include "objects.hpp"

namespace softroce::verbs {
namespace {

Device* made_of(const Settings& settings) {
  auto* made = new Device;
  made->settings = settings;
  made->node_type = IBV_NODE_CA;
  made->transport_type = IBV_TRANSPORT_IB;
  std::snprintf(made->name, sizeof made->name, "%s", settings.device.c_str());
  std::snprintf(made->dev_name, sizeof made->dev_name, "%s", settings.character_device.c_str());
  std::snprintf(made->dev_path, sizeof made->dev_path, "%s/%s", kVerbsClass,
                settings.character_device.c_str());
  std::snprintf(made->ibdev_path, sizeof made->ibdev_path, "%s/class/infiniband/%s", kSysfs,
                settings.device.c_str());
  return made;
}

// With SHIFT, the backup of the last device is on the first.
void find_backups(const std::vector<Device*>& all) {
  if (all.size() < 2) return;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i]->settings.shift && !all[i]->settings.statistics.empty())
      all[i]->next = all[(i + 1) % all.size()];
}

// For the life of the process: programs keep pointers to them.
const std::vector<Device*>& devices() {
  static const std::vector<Device*> all = [] {
    std::vector<Device*> made;
    for (const Settings& settings : read_settings()) made.push_back(made_of(settings));
    find_backups(made);
    return made;
  }();
  return all;
}

// Only those that exist: neither fork nor exit opens a device. An engine stays for good.
std::vector<Engine*> engines;

void register_around_fork() {
  pthread_atfork(
      [] {
        for (Engine* each : engines) each->before_fork();
      },
      [] {
        for (Engine* each : engines) each->after_fork_in_parent();
      },
      [] {
        for (Engine* each : engines) each->after_fork_in_child();
      });
}

// Without the lock, what is due does not leave: the port goes with the process.
void at_exit() {
  for (Device* each : devices())
    if (each->backup && !each->engine->orphan()) each->backup->leave();
  for (Engine* each : engines)
    if (const auto held = each->hold_at_exit()) each->close_port();
}

// The keys of each device's regions are others, so that they can be those of its backup, too.
void need_engine(Device& device) {
  if (device.engine) return;
  device.engine = std::make_unique<Engine>(device.settings);
  const auto place = std::ranges::find(devices(), &device) - devices().begin();
  device.engine->rnic().memory().number_in_range(static_cast<std::uint32_t>(place));
  engines.push_back(device.engine.get());
  if (engines.size() > 1) return;
  register_around_fork();
  std::atexit(at_exit);
}

void fill_operations(Context& context) {
  context.query_port = query_port;
  context.query_device_ex = query_device_ex;
  context.modify_cq = modify_cq;
  context.get_srq_num = get_srq_num;
  context.create_qp_ex = create_qp_ex;
  context.create_cq_ex = create_cq_ex;
  context.alloc_td = alloc_td;
  context.dealloc_td = dealloc_td;
  context.alloc_parent_domain = alloc_parent_domain;
  context.sz = sizeof(verbs_context);
  ibv_context& base = context.context;
  base.ops.poll_cq = poll_cq;
  base.ops.req_notify_cq = req_notify_cq;
  base.ops.post_send = post_send;
  base.ops.post_recv = post_recv;
  base.ops.post_srq_recv = post_srq_recv;
  base.ops.alloc_mw = alloc_mw;
  base.ops.bind_mw = bind_mw;
  base.ops.dealloc_mw = dealloc_mw;
  base.cmd_fd = -1;
  base.num_comp_vectors = 1;
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

std::mutex devices_lock;

int open(Device& device, Context*& opened) {
  const std::lock_guard lock(devices_lock);
  need_engine(device);
  if (device.next != nullptr) need_engine(*device.next);
  auto context = std::make_unique<Context>();
  context->home = &device;
  fill_operations(*context);
  ibv_context& base = context->context;
  base.device = &device;
  pthread_mutex_init(&base.mutex, nullptr);
  base.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (base.async_fd < 0) return errno;
  {
    const auto held = device.engine->hold();
    device.engine->contexts.push_back(context.get());
  }
  ++device.contexts;
  opened = context.release();
  return 0;
}

std::unique_ptr<DeviceBackup> make_backup(Device& device) {
  Engine& far = *device.next->engine;
  {
    const auto held = far.hold();
    if (const int error = far.open_port())
      throw std::system_error(error, std::generic_category(),
                              "open " + device.next->settings.device);
  }
  return std::make_unique<DeviceBackup>(*device.engine, far);
}

// The port goes with the last who needs it; so what is due leaves.
void close_if_unused(Device& device) {
  const auto held = device.engine->hold();
  if (device.contexts == 0 && device.backs_up == 0) device.engine->close_port();
}

// Without the engine's lock, which the backup's thread needs in order to end.
void close_backup(Device& device) {
  std::unique_ptr<DeviceBackup> backup;
  {
    const auto held = device.engine->hold();
    backup = std::move(device.backup);
  }
  if (!backup) return;
  if (device.engine->orphan()) return static_cast<void>(backup.release());  // it is the parent's
  backup.reset();
  --device.next->backs_up;
  close_if_unused(*device.next);
}

}  // namespace

Device::Device() = default;
Device::~Device() = default;

DeviceBackup* backup_for(Device& device) {
  if (device.next == nullptr) return nullptr;
  const std::lock_guard lock(devices_lock);
  if (device.backup) return device.backup.get();
  try {
    auto made = make_backup(device);
    ++device.next->backs_up;
    const auto held = device.engine->hold();
    device.backup = std::move(made);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "softroce: %s has no backup: %s\n", device.settings.device.c_str(),
                 error.what());
  }
  return device.backup.get();
}

Engine* shadow_of(ibv_context* context) {
  const Device* next = of(context).home->next;
  return next != nullptr ? next->engine.get() : nullptr;
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 0;
  return made<ibv_device*>([&](ibv_device**& list) {
    list = static_cast<ibv_device**>(std::calloc(devices().size() + 1, sizeof(ibv_device*)));
    if (list == nullptr) return ENOMEM;
    std::ranges::copy(devices(), list);
    if (count != nullptr) *count = static_cast<int>(devices().size());
    return 0;
  });
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

__be64 ibv_get_device_guid(ibv_device* device) {
  return htobe64(static_cast<Device*>(device)->settings.guid);
}

int ibv_get_device_index(ibv_device*) { return -1; }

ibv_context* ibv_open_device(ibv_device* device) {
  Context* context =
      made<Context>([&](Context*& opened) { return open(*static_cast<Device*>(device), opened); });
  return context != nullptr ? &context->context : nullptr;
}

int ibv_close_device(ibv_context* base) {
  Context& context = of(base);
  Device& device = *context.home;
  return guarded([&] {
    const std::lock_guard lock(devices_lock);
    {
      const auto held = device.engine->hold();
      std::erase(device.engine->contexts, &context);
    }
    if (--device.contexts == 0) close_backup(device);
    close_if_unused(device);
    ::close(base->async_fd);
    pthread_mutex_destroy(&base->mutex);
    delete &context;
    return 0;
  });
}

const char* ibv_get_sysfs_path() { return kSysfs; }

int ibv_read_sysfs_file(const char* directory, const char* file, char* text, size_t bytes) {
  const std::string path = std::string(directory) + "/" + file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t length = ::read(fd, text, bytes);
  ::close(fd);
  if (length <= 0) return -1;
  // As rdma-core: without the end of the line, ended by a zero where there is room.
  auto used = static_cast<std::size_t>(length);
  if (text[used - 1] == '\n')
    text[--used] = 0;
  else if (used < bytes)
    text[used] = 0;
  else
    return -1;
  return static_cast<int>(used);
}

// The engine's memory and descriptors never reach a child, whatever a program asks for.
int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(void*, size_t) { return 0; }
int ibv_dofork_range(void*, size_t) { return 0; }

// Drivers of other devices register when they are loaded; ours is the only one.
void verbs_register_driver_34(const void*) {}
bool verbs_allow_disassociate_destroy = false;

}  // extern "C"
