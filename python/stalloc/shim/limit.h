// How much device memory a program allows itself (torch.cuda.set_per_process_memory_fraction), arena and native allocator
// together.
#pragma once
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "core.h"

namespace stalloc {

// How much memory a device has.
inline uint64_t device_bytes(c10::DeviceIndex index) {
  c10::DeviceIndex current = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&current));
  C10_CUDA_CHECK(c10::cuda::SetDevice(index));
  size_t free = 0, total = 0;
  auto result = cudaMemGetInfo(&free, &total);
  C10_CUDA_CHECK(c10::cuda::SetDevice(current));
  C10_CUDA_CHECK(result);
  return total;
}

// The limit of one device.
//
// The native allocator knows of its own memory alone. So each time before it is asked, it is told what the arena leaves of the
// limit, and until it has answered the arena takes no more: together they never hold more than is allowed.
class Limit {
 public:
  Limit(const StallocCore* table, int device) : core(table), index(device) {}

  // The device has so many bytes, and this share of them may be held.
  void set(double share, uint64_t device_bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    fraction.store(share, std::memory_order_relaxed);
    total = device_bytes;
    is_set.store(share < 1.0, std::memory_order_release);
    core->limit(index, asking > 0 && share < 1.0 ? 0 : bytes());
  }

  bool exists() const { return is_set.load(std::memory_order_acquire); }
  double share() const { return fraction.load(std::memory_order_relaxed); }
  uint64_t allowed() {
    std::lock_guard<std::mutex> lock(mutex);
    return bytes();
  }

  // While this lives, the native allocator may be asked: `tell(share)` has told it what share of the device is its.
  class Asking {
   public:
    template <typename Tell>
    Asking(Limit& of, Tell&& tell) : limit(of) {
      if (!limit.exists()) return;
      counted = true;
      std::lock_guard<std::mutex> lock(limit.mutex);
      ++limit.asking;
      limit.core->limit(limit.index, 0);
      StallocArena arena{};
      limit.core->arena(limit.index, &arena);  // waits for whoever is being served: no more is taken from now on
      if (!limit.exists()) return;
      const uint64_t left = limit.bytes() - std::min(limit.bytes(), arena.reserved);
      try {
        tell(limit.total > 0 ? double(left) / double(limit.total) : 0.0);
      } catch (...) {
        end();
        throw;
      }
    }
    ~Asking() {
      if (!counted) return;
      std::lock_guard<std::mutex> lock(limit.mutex);
      end();
    }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    Limit& limit;
    bool counted = false;

    // The lock is held.
    void end() {
      if (--limit.asking == 0) limit.core->limit(limit.index, limit.bytes());
    }
  };

 private:
  const StallocCore* core;
  int index;
  std::mutex mutex;
  std::atomic<bool> is_set{false};
  std::atomic<double> fraction{1.0};  // written with the lock held
  uint64_t total = 0;
  int asking = 0;  // threads that wait for the native allocator

  uint64_t bytes() const { return exists() ? uint64_t(share() * double(total)) : UINT64_MAX; }
};

}  // namespace stalloc
