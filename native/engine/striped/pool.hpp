// SPDX-License-Identifier: GPL-2.0-or-later
// Objects named by handles that go stale: a handle is an index and the generation of its use.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace softroce {

using Handle = std::uint64_t;
inline constexpr Handle kNoHandle = 0;
inline constexpr Handle kReceiveTag = Handle{1} << 63;  // set in receives' handles

// T has members `Handle handle` and `std::mutex lock`. Objects are never freed before the pool is,
// so that another thread may look up a stale handle.
template <typename T, Handle Tag>
class Pool {
 public:
  T& acquire() {
    const std::lock_guard guard(grow_);
    if (free_.empty()) {
      objects_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(objects_.size() - 1));
      generations_.push_back(0);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    T& object = objects_[index];
    const std::lock_guard lock(object.lock);
    const Handle generation = ++generations_[index] & 0x7FFFFFFF;
    object.handle = Tag | generation << 32 | index;
    return object;
  }

  void release(T& object) {
    const std::lock_guard guard(grow_);
    const std::lock_guard lock(object.lock);
    free_.push_back(static_cast<std::uint32_t>(object.handle));
    object.handle = kNoHandle;
  }

  // Null when the handle is stale. The engine's own thread only.
  T* find(Handle handle) {
    const auto index = static_cast<std::uint32_t>(handle);
    if (index >= objects_.size() || objects_[index].handle != handle) return nullptr;
    return &objects_[index];
  }

  // Calls `copy(object)` under the object's lock, from any thread. False: the handle is stale.
  template <typename F>
  bool snapshot(Handle handle, F&& copy) {
    T* object;
    {
      const std::lock_guard guard(grow_);
      const auto index = static_cast<std::uint32_t>(handle);
      if (index >= objects_.size()) return false;
      object = &objects_[index];
      object->lock.lock();
    }
    const std::lock_guard lock(object->lock, std::adopt_lock);
    if (object->handle != handle) return false;
    copy(static_cast<const T&>(*object));
    return true;
  }

  // Calls `visit(object)` for each object in use, which may release it. The engine's own thread
  // only.
  template <typename F>
  void for_each(F&& visit) {
    for (T& object : objects_)
      if (object.handle != kNoHandle) visit(object);
  }

  std::size_t in_use() const { return objects_.size() - free_.size(); }

 private:
  std::mutex grow_;
  std::deque<T> objects_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> generations_;
};

}  // namespace softroce
