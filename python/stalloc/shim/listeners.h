// Whoever listens to what the arena hands out and takes back: the history, the sanitizer for streams, the profiler.
//
// Each costs a load while nobody listens. `notes` makes what the thread says of itself, and is called only for the history.
#pragma once
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "core.h"
#include "device.h"
#include "versions.h"

namespace stalloc {

inline void tell_profiler(Device& device, void* address, int64_t bytes) {
  auto [allocated, reserved] = device.figures.totals();
  c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, c10::Device(c10::DeviceType::CUDA, device.index));
}

// A block was handed out.
template <typename MakeNotes>
void tell_allocated(Device& device, void* address, size_t size, size_t rounded, cudaStream_t stream, PoolId pool,
                    MakeNotes&& notes) {
  if (C10_UNLIKELY(History::any_enabled())) {
    device.history.complete_done(device.core);
    device.history.memory_changed(device.core, RecordContext::ALLOC, notes, stream);
    device.history.allocated(address, size, rounded, stream, pool, notes());
  }
  if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
    tell_allocation(*python, reinterpret_cast<uintptr_t>(address), 0);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_profiler(device, address, int64_t(rounded));
}

// A block has been taken back, and is in the history.
inline void tell_freed(Device& device, void* address, size_t rounded) {
  if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
    tell_deallocation(*python, reinterpret_cast<uintptr_t>(address), 0);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_profiler(device, address, -int64_t(rounded));
}

}  // namespace stalloc
