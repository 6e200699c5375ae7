// The devices of the process: what the shim keeps of each, and what a thread says of itself while it allocates.
#pragma once
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "figures.h"
#include "history.h"
#include "limit.h"
#include "pools.h"
#include "versions.h"

namespace stalloc {

namespace native = c10::cuda::CUDACachingAllocator;

// What torch.compile says that it is compiling.
inline thread_local std::vector<std::string> compile_contexts;

// What the thread says of itself, in the native allocator's words.
inline Notes said(std::string metadata) {
  const std::string context = compile_contexts.empty() ? NO_CONTEXT : compile_contexts.back();
  return std::make_shared<const Said>(Said{context, std::move(metadata)});
}

struct Device {
  const StallocCore* core;
  native::CUDAAllocator* next;
  c10::DeviceIndex index;
  Figures figures{core, index};
  History history{index};
  Limit limit{core, index};
  Pools pools{core, index};
  std::once_flag limit_is_known{};
  std::atomic<int> redirected{0};  // private pools that are being allocated to
  std::atomic<int> captures{0};
  std::atomic<bool> is_arena_told{false};  // to those who are told of segments
  std::atomic<int64_t> out_of_memory{0};   // exceptions that the program got; the native allocator counts its attempts

  Attempts again{};  // to serve what was asked for before

  Notes notes() const {
    auto metadata = user_metadata(next, 0);
    return compile_contexts.empty() && metadata.empty() ? nullptr : said(std::move(metadata));
  }

  // A block was handed out: the history, the sanitizer for streams and the profiler are told. Each costs a load while it is off.
  C10_ALWAYS_INLINE void allocated(void* address, size_t size, size_t rounded, cudaStream_t stream, PoolId pool) {
    if (C10_UNLIKELY(History::any_enabled())) {
      history.complete_done(core);
      history.memory_changed(core, RecordContext::ALLOC, [this] { return notes(); }, stream);
      history.allocated(address, size, rounded, stream, pool, notes());
    }
    if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
      tell_allocation(*python, reinterpret_cast<uintptr_t>(address), 0);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_profiler(address, int64_t(rounded));
  }

  // A block has been taken back, and is in the history.
  void freed(void* address, size_t rounded) {
    if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
      tell_deallocation(*python, reinterpret_cast<uintptr_t>(address), 0);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_profiler(address, -int64_t(rounded));
  }

  void tell_profiler(void* address, int64_t bytes) {
    auto [allocated, reserved] = figures.totals();
    c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, c10::Device(c10::DeviceType::CUDA, index));
  }

  // Reads the native allocator's figures again. Takes its lock, so only when they may have changed.
  C10_NOINLINE void refresh() {
    learn_limit();
    figures.refresh([this] { return next->initialized() ? next->getDeviceStats(index) : DeviceStats(); });
  }

  // The native allocator's statistics with the arena's share.
  DeviceStats sum(DeviceStats stats) {
    stats.num_ooms = out_of_memory.load(std::memory_order_relaxed);
    leave_out(stats, again);
    auto sum = figures.sum(stats);
    pools.add_to(sum);
    return sum;
  }
  void reset_totals() {
    figures.reset_totals();
    pools.reset_totals();
    out_of_memory.store(0, std::memory_order_relaxed);
    again.reset();
  }
  void reset_peaks() {
    figures.reset_peaks(next->getDeviceStats(index));
    pools.reset_peaks();
  }

  // The limit that the environment sets (PYTORCH_ALLOC_CONF=per_process_memory_fraction:...).
  void learn_limit() {
    if (!next->initialized()) return;
    std::call_once(limit_is_known, [this] {
      if (const double share = memory_fraction(next, index, 0); share < 1.0) limit.set(share, device_bytes(index));
    });
  }

  void set_limit(double share) {
    std::call_once(limit_is_known, [] {});
    limit.set(share, device_bytes(index));
    // What is held beyond it and not in use goes back now: it would be served from without a question.
    StallocArena arena{};
    core->arena(index, &arena);
    if (limit.exists() && arena.reserved > limit.allowed()) trim();
  }

  // Gives the arena's idle memory back; returns the bytes.
  uint64_t trim() {
    const uint64_t bytes = core->trim(index);
    if (History::any_enabled()) history.memory_changed(core, RecordContext::ALL, [this] { return notes(); });
    return bytes;
  }
};

struct Devices {
  const StallocCore* core;
  std::vector<std::unique_ptr<Device>> all;

  Devices(const StallocCore* table, native::CUDAAllocator* next, int count) : core(table) {
    for (int i = 0; i < count; ++i) all.emplace_back(new Device{core, next, c10::DeviceIndex(i)});
    // Called under the native allocator's lock: it may only leave a note.
    next->attachAllocatorTraceTracker([this](const TraceEntry& entry) {
      if (auto* device = find(entry.device_)) device->figures.outside_changes();
    });
  }

  Device* find(int device) const { return device >= 0 && size_t(device) < all.size() ? all[device].get() : nullptr; }

  // The device of the arena that an address lies in.
  Device* owner(const void* address) const {
    int index = 0;
    return core->owns(address, &index) ? find(index) : nullptr;
  }

  // The live block of an arena that an address lies in.
  std::optional<StallocBlock> block_around(const void* address) const {
    StallocBlock block{};
    return core->find(address, &block) == 1 ? std::optional(block) : std::nullopt;
  }

  void trim() {
    for (auto& device : all) {
      // No request of the arena's tells it meanwhile what the native allocator holds.
      if (core->asleep(device->index) > 0) device->refresh();
      device->trim();
    }
  }
};

}  // namespace stalloc
