// What PyTorch's versions call by other names, or do not have. Everything else here is written for the newest.
#pragma once
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <sys/types.h>
#include <torch/version.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#if __has_include(<c10/core/CachingDeviceAllocator.h>)
#include <c10/core/CachingDeviceAllocator.h>
namespace stalloc::figures {
using namespace c10::CachingDeviceAllocator;
}
#else
namespace stalloc::figures {
using namespace c10::cuda::CUDACachingAllocator;
}
#endif

// Types of methods that older versions do not have: what their signatures name there. Used where PyTorch has no such type.
namespace stalloc::missing {
struct OomRejectionObserver {};
struct StreamSegmentSize {};
struct ShareableHandle {
  ptrdiff_t offset;
  std::string handle;
};
}  // namespace stalloc::missing
namespace c10::cuda::CUDACachingAllocator {
using namespace stalloc::missing;
}

// PyTorch 2.5 is the first that opens another process's pages. 2.13 says how they are handed over.
#define STALLOC_TORCH (TORCH_VERSION_MAJOR * 1000 + TORCH_VERSION_MINOR)
#define STALLOC_OPENS_PAGES (STALLOC_TORCH >= 2005)

namespace stalloc {

// What comes first in the text by which another process opens pages. The text is compared: there are no bytes that nobody sets.
struct PagesHeader {
  int32_t process, unused = 0;
  uint64_t page, count;
#if STALLOC_TORCH >= 2013
  int32_t handle_type = 1;  // file descriptors
  int32_t unused_too = 0;
#endif
  PagesHeader(pid_t process, uint64_t page, uint64_t count) : process(process), page(page), count(count) {}
};
constexpr char PAGES_VERSION = STALLOC_TORCH >= 2013 ? 3 : 1;

// Whether an allocator is told of captures. Older ones are not: there, any redirection to a private pool may be one.
template <typename Native = c10::cuda::CUDACachingAllocator::CUDAAllocator, typename = void>
struct MarksCaptures : std::false_type {};
template <typename Native>
struct MarksCaptures<Native, std::void_t<decltype(&Native::markCaptureBegin)>> : std::true_type {};

// The text that the thread has put on what it allocates. Older versions have none.
template <typename Native>
auto user_metadata(Native* native, int) -> decltype(native->getUserMetadata()) {
  return native->getUserMetadata();
}
template <typename Native>
std::string user_metadata(Native*, long) {
  return {};
}

// The share of the device that an allocator may hold. Older versions do not tell.
template <typename Native>
auto memory_fraction(Native* native, c10::DeviceIndex index, int) -> decltype(native->getMemoryFraction(index)) {
  return native->getMemoryFraction(index);
}
template <typename Native>
double memory_fraction(Native*, c10::DeviceIndex, long) {
  return 1.0;
}

// An entry of the history; {0, 0}: outside all private pools. Older versions' entries do not name their pool.
template <typename Entry, typename Time, typename Stack>
Entry make_entry(typename Entry::Action action, c10::DeviceIndex device, size_t address, size_t size, cudaStream_t stream,
                 c10::cuda::MempoolId_t pool, Time time, Stack stack) {
  using Pool = c10::cuda::MempoolId_t;
  if constexpr (std::is_constructible_v<Entry, decltype(action), decltype(device), size_t, size_t, cudaStream_t, Pool, Time,
                                        Stack>)
    return Entry(action, device, address, size, stream, pool, time, std::move(stack));
  else
    return Entry(action, device, address, size, stream, time, std::move(stack));
}

// What the program says of itself while it allocates; null: nothing.
struct Said {
  std::string compile_context;
  std::string user_metadata;
};
using Notes = std::shared_ptr<const Said>;
constexpr char NO_CONTEXT[] = "N/A";

// Older versions' entries have no room for notes.
template <typename Entry>
auto note(Entry& entry, const Notes& notes, int) -> decltype(void(entry.compile_context_), void(entry.user_metadata_)) {
  entry.compile_context_ = notes ? notes->compile_context : NO_CONTEXT;
  if (notes) entry.user_metadata_ = notes->user_metadata;
}
template <typename Entry>
void note(Entry&, const Notes&, long) {}

// Attempts of the native allocator to serve what it was asked for before: some of its counters, which the program sees once for
// each request of its own. Older versions do not count preemptive refusals.
struct Attempts {
  std::atomic<int64_t> retries{0}, waits{0}, refusals{0};
  void reset() { retries = waits = refusals = 0; }
  template <typename Stats>
  void add(const Stats& stats, int64_t sign) {
    retries += sign * stats.num_alloc_retries;
    waits += sign * stats.num_sync_all_streams;
    add_refusals(stats, sign, 0);
  }

 private:
  template <typename Stats>
  auto add_refusals(const Stats& stats, int64_t sign, int) -> decltype(void(stats.num_oom_rejections)) {
    refusals += sign * stats.num_oom_rejections;
  }
  template <typename Stats>
  void add_refusals(const Stats&, int64_t, long) {}
};
template <typename Stats>
auto add_refusals(Stats& stats, int64_t count, int) -> decltype(void(stats.num_oom_rejections)) {
  stats.num_oom_rejections += count;
}
template <typename Stats>
void add_refusals(Stats&, int64_t, long) {}

// Takes attempts out of the counters.
template <typename Stats>
void leave_out(Stats& stats, const Attempts& attempts) {
  stats.num_alloc_retries -= attempts.retries.load(std::memory_order_relaxed);
  stats.num_sync_all_streams -= attempts.waits.load(std::memory_order_relaxed);
  add_refusals(stats, -attempts.refusals.load(std::memory_order_relaxed), 0);
}

// The sanitizer for streams is told of memory. In older versions it knows of no device but CUDA's.
template <typename Trace>
auto tell_allocation(const Trace& trace, uintptr_t address, int)
    -> decltype(trace->trace_gpu_memory_allocation(c10::kCUDA, address)) {
  trace->trace_gpu_memory_allocation(c10::kCUDA, address);
}
template <typename Trace>
void tell_allocation(const Trace& trace, uintptr_t address, long) {
  trace->trace_gpu_memory_allocation(address);
}
template <typename Trace>
auto tell_deallocation(const Trace& trace, uintptr_t address, int)
    -> decltype(trace->trace_gpu_memory_deallocation(c10::kCUDA, address)) {
  trace->trace_gpu_memory_deallocation(c10::kCUDA, address);
}
template <typename Trace>
void tell_deallocation(const Trace& trace, uintptr_t address, long) {
  trace->trace_gpu_memory_deallocation(address);
}

}  // namespace stalloc
