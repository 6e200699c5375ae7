// PyTorch's statistics with the arena's share, and the program's limit of both together.
#pragma once
#include <mutex>
#include <utility>

#include "devices.h"
#include "out_of_memory.h"

namespace stalloc {

template <typename Native>
struct Statistics : Devices<Native> {
  using Devices<Native>::Devices;
  using Devices<Native>::core;
  using Devices<Native>::find;
  using Devices<Native>::next;
  using Devices<Native>::trim;

  OutOfMemory out_of_memory;

  // Reads the native allocator's figures again. Takes its lock, so only when they may have changed.
  C10_NOINLINE void refresh(Device& device) {
    learn_limit(device);
    device.figures.refresh([&] { return next->initialized() ? next->getDeviceStats(device.index) : DeviceStats(); });
  }

  // One request is asked for again: what the native allocator counts meanwhile is counted already.
  class Again {
   public:
    Again(Statistics& of, Device& device) : statistics(of), device(device) { count(-1); }
    ~Again() { count(1); }
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;

   private:
    Statistics& statistics;
    Device& device;
    void count(int sign) noexcept {
      try {
        device.again.add(statistics.next->getDeviceStats(device.index), sign);
      } catch (...) {
        // A counter that cannot be read stays as it is.
      }
    }
  };

  DeviceStats getDeviceStats(c10::DeviceIndex index) {
    auto* device = find(index);
    auto stats = next->getDeviceStats(index);
    if (device == nullptr) return stats;
    stats.num_ooms = device->out_of_memory.load(std::memory_order_relaxed);
    leave_out(stats, device->again);
    auto sum = device->figures.sum(stats);
    device->pools.add_to(sum);
    return sum;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) {
    next->resetAccumulatedStats(index);
    if (auto* device = find(index)) {
      device->figures.reset_totals();
      device->pools.reset_totals();
      device->out_of_memory.store(0, std::memory_order_relaxed);
      device->again.reset();
    }
  }

  void resetPeakStats(c10::DeviceIndex index) {
    next->resetPeakStats(index);
    if (auto* device = find(index)) {
      device->figures.reset_peaks(next->getDeviceStats(index));
      device->pools.reset_peaks();
    }
  }

  // The limit that the environment sets (PYTORCH_ALLOC_CONF=per_process_memory_fraction:...).
  void learn_limit(Device& device) {
    if constexpr (TellsMemoryFraction<Native>::value) {
      if (!next->initialized()) return;
      std::call_once(device.limit_is_known, [&] {
        double share = next->getMemoryFraction(device.index);
        if (share < 1.0) device.limit.set(share, device_bytes(device.index));
      });
    }
  }

  void setMemoryFraction(double share, c10::DeviceIndex index) {
    next->setMemoryFraction(share, index);
    auto* device = find(index);
    if (device == nullptr) return;
    std::call_once(device->limit_is_known, [] {});
    device->limit.set(share, device_bytes(index));
    // What is held beyond it and not in use goes back now: it would be served from without a question.
    StallocArena arena{};
    core->arena(index, &arena);
    if (device->limit.exists() && arena.reserved > device->limit.allowed()) trim(*device);
  }

  double getMemoryFraction(c10::DeviceIndex index) {
    auto* device = find(index);
    return device != nullptr && device->limit.exists() ? device->limit.share() : next->getMemoryFraction(index);
  }

  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) {
    if (out_of_memory.attach(std::move(observer))) next->attachOutOfMemoryObserver(&OutOfMemory::note);
  }
};

}  // namespace stalloc
