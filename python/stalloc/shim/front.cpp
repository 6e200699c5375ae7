// Stands in front of PyTorch's own CUDA allocator: serves from the arena what it can and forwards the rest.
//
// Everything that the native allocator can do keeps working, since it is still there: a request that the arena does not
// serve gets the native allocator's own DataPtr. What is ours to add is the arena's share of the statistics, of the
// snapshots and of the history, and the care for arena addresses where PyTorch asks about an address.
//
// Each part of the class is built upon the one before it:
//
//   forwarded.h      methods that the arena has no part in
//   devices.h        the devices; each has a device.h: its figures.h, history.h and limit.h
//   statistics.h     figures and limits
//   snapshots.h      histories and snapshots
//   sharing.h        other processes and devices
//   graphs.h         graph capture and pools; pools.h has a device's
//   front.cpp        serving: requests and frees
//
// Besides: pinned.h (pinned memory of the host), core.h (the arena: functions in Rust), listeners.h (who is told of what the
// arena does), out_of_memory.h (the exception) and versions.h (what PyTorch's versions call by other names, or do not have).
//
// Compiled once per version of PyTorch, whose allocators have different virtual methods: see forwarded.h. A pure virtual one that
// is missing here ends the compilation, and the job runs without this shim.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "core.h"
#include "graphs.h"
#include "listeners.h"
#include "out_of_memory.h"
#include "versions.h"
// PyTorch 2.8 is the first whose allocator of pinned memory can be replaced.
#define STALLOC_PINNED (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8))
#if STALLOC_PINNED
#include "pinned.h"
#endif

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::cuda::MempoolId_t;
using stalloc::Device;
using stalloc::History;

// Whether torch_memory_saver, loaded before everything else, wants what this thread allocates: it can only pause what the
// native allocator takes by cudaMalloc.
using IsInteresting = bool (*)();
IsInteresting memory_saver() { return reinterpret_cast<IsInteresting>(dlsym(RTLD_DEFAULT, "tms_get_interesting_region")); }

template <typename Native>
struct Front final : stalloc::Graphs<Native> {
  using Base = stalloc::Graphs<Native>;
  using Base::Base;
  using Base::core;
  using Base::devices;
  using Base::find;
  using Base::learn_limit;
  using Base::next;
  using Base::notes;
  using Base::ours;
  using Base::out_of_memory;
  using Base::owner;
  using Base::refresh;
  using Base::tell_trackers;
  using Base::trackers;
  using Base::trim;

  inline static Front* installed = nullptr;  // never destroyed: tensors outlive static destruction
  // Frees what the program can do without for a while, when a request is about to fail; false if there is no more of it.
  inline static std::atomic<bool (*)(int)> relieve{nullptr};
  std::atomic<bool> is_caching{true};
  const IsInteresting is_saved = memory_saver();

  static c10::DeviceIndex current_device() {
    c10::DeviceIndex index = 0;
    const auto status = c10::cuda::GetDevice(&index);
    // The check looks for device-side assertions even after a success, which takes longer than the rest of this.
    if (C10_UNLIKELY(status != cudaSuccess)) C10_CUDA_CHECK(status);
    return index;
  }

  c10::DataPtr allocate(size_t size) {
    const auto index = current_device();
    if (void* address = serve(index, size, c10::cuda::getCurrentCUDAStream(index).stream()))
      return {address, address, &release, c10::Device(c10::DeviceType::CUDA, index)};
    auto served = fall_back(index, size, [&] { return next->allocate(size); }, [&] { return allocate(size); });
    // What lies in a pool has one deleter, whoever served it.
    if (auto* device = find(index); device != nullptr && device->redirected.load(std::memory_order_acquire) > 0)
      (void)served.compare_exchange_deleter(next->raw_deleter(), &release);
    return served;
  }

  void* raw_alloc(size_t size) {
    const auto index = current_device();
    return raw_alloc_on(index, size, c10::cuda::getCurrentCUDAStream(index).stream());
  }
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) { return raw_alloc_on(current_device(), size, stream); }
  void* raw_alloc_on(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
    if (void* address = serve(index, size, stream)) return address;
    return fall_back(
        index, size, [&] { return next->raw_alloc_with_stream(size, stream); },
        [&] { return raw_alloc_on(index, size, stream); });
  }

  // Null: the request is the native allocator's.
  void* serve(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
    auto* device = find(index);
    if (size == 0 || device == nullptr) return nullptr;
    if (C10_UNLIKELY(!is_caching.load(std::memory_order_relaxed) || (is_saved != nullptr && is_saved()))) return nullptr;
    if (C10_UNLIKELY(device->figures.is_outside_changed())) refresh(*device);
    size_t rounded = 0;
    void* address = nullptr;
    stalloc::Pools::Route route;
    if (C10_UNLIKELY(device->redirected.load(std::memory_order_acquire) > 0)) route = device->pools.route(stream);
    if (C10_LIKELY(!route.is_redirected))
      address = core->serve(index, size, stream, &rounded);
    else if (route.is_ours)
      address = core->pool_serve(index, route.pool.first, route.pool.second, size, stream, &rounded);
    if (C10_UNLIKELY(trackers.any.load(std::memory_order_relaxed) && address != nullptr && !device->is_arena_told.load()))
      tell_trackers(*device);
    if (C10_LIKELY(address != nullptr))
      stalloc::tell_allocated(*device, address, size, rounded, stream, route.pool, [&] { return notes(); });
    return address;
  }

  static void release(void* address) { installed->raw_delete(address); }
  // PyTorch tells by it what it may take out of a graph's pool.
  c10::DeleterFnPtr raw_deleter() const { return &release; }

  void raw_delete(void* address) {
    // What lies in an arena and is not live there (after a fault, or in a forked child) is nobody else's either.
    if (!freed(address) && !core->owns(address, nullptr)) next->raw_delete(address);
  }

  // Takes a block of the arena back; false if the address is none.
  bool freed(void* address) {
    int index = 0;
    size_t rounded = 0;
    if (C10_LIKELY(!History::any_enabled()))
      rounded = core->release(address, &index, nullptr);
    else if (core->owns(address, &index) == 1 && find(index) != nullptr)
      rounded = find(index)->history.release(core, address, notes());
    if (C10_UNLIKELY(rounded == 0)) return false;
    if (auto* device = find(index)) stalloc::tell_freed(*device, address, rounded);
    return true;
  }

  // Called with no lock held, as the callback takes Python's.
  static bool is_relieved(c10::DeviceIndex index) {
    const auto call = relieve.load();
    return call != nullptr && call(index);
  }

  // Calls the native allocator; when the device is full, gives the arena's idle memory back and tries once more, and begins anew
  // once the program did without something.
  template <typename Allocate, typename Anew>
  auto fall_back(c10::DeviceIndex index, size_t size, Allocate&& allocate, Anew&& anew) -> decltype(allocate()) {
    auto* device = find(index);
    if (device == nullptr) return allocate();
    learn_limit(*device);
    const auto begun = c10::getApproximateTime();
    bool is_full = false;
    try {
      return reread(*device, allocate);
    } catch (const c10::OutOfMemoryError&) {
      const auto failed = c10::getApproximateTime();
      is_full = !out_of_memory.may_fit(*device, size) || trim(*device) == 0;
      if (is_full && !is_relieved(index)) out_of_memory.explain(*device, size);
      if (History::any_enabled()) device->history.leave_out(begun, failed);
    }
    stalloc::OutOfMemory::forget();
    typename Base::Again again(*this, *device);
    if (is_full) return anew();
    try {
      return reread(*device, allocate);
    } catch (const c10::OutOfMemoryError&) {
      if (!is_relieved(index)) out_of_memory.explain(*device, size);
    }
    stalloc::OutOfMemory::forget();
    return anew();
  }

  template <typename Allocate>
  auto reread(Device& device, Allocate&& allocate) -> decltype(allocate()) {
    // While a graph is captured, other threads come here too: taking memory from the driver would end the capture.
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    stalloc::Limit::Asking asking(device.limit, [&](double share) { next->setMemoryFraction(share, device.index); });
    auto result = allocate();
    refresh(device);
    return result;
  }

  // Off: every request takes memory from the device and gives it back, as tools that check accesses need it.
  void enable(bool on) {
    is_caching.store(on, std::memory_order_relaxed);
    next->enable(on);
  }

  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) {
    StallocBlock block{};
    if (!ours(pointer.get(), &block)) return next->recordStream(pointer, stream);
    core->record_stream(pointer.get(), stream.stream());
  }

  void emptyCache(MempoolId_t pool) {
    next->emptyCache(pool);
    if (pool == MempoolId_t{0, 0}) trim_all();
  }
  void emptyCache() {
    next->emptyCache();
    trim_all();
  }
  void trim_all() {
    for (auto& device : devices) {
      // No request of the arena's tells it meanwhile what the native allocator holds.
      if (core->asleep(device->index) > 0) refresh(*device);
      trim(*device);
    }
  }
};

}  // namespace

// Installs the front. Returns null, or what went wrong.
extern "C" const char* stalloc_front_install(const StallocCore* table, int device_count) {
  static std::string error;
  if (table == nullptr || table->version != STALLOC_CORE_VERSION)
    return "the shim and the stalloc library are of different versions";
  using Front = ::Front<native::CUDAAllocator>;
  if (Front::installed != nullptr) return "it is installed already";
  try {
    auto installed = std::shared_ptr<Front>(new Front(table, native::allocator.load(), device_count), [](Front*) {});
    Front::installed = installed.get();
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(installed);
    // torch.accelerator asks here.
    c10::SetAllocator(c10::DeviceType::CUDA, installed.get(), 1);
  } catch (const std::exception& e) {
    error = e.what();
    return error.c_str();
  } catch (...) {
    return "PyTorch refused it";
  }
  return nullptr;
}

// Has a request that is about to fail begin anew where `relieve` says that it freed memory.
extern "C" void stalloc_front_on_full(bool (*relieve)(int)) { Front<native::CUDAAllocator>::relieve = relieve; }

// Installs the front of PyTorch's allocator of pinned memory, once the other is. Returns null, or what went wrong.
extern "C" const char* stalloc_pinned_install(const StallocCore* table) {
#if STALLOC_PINNED
  using Front = stalloc::pinned::Front<at::HostAllocator>;
  if (table == nullptr || table->version != STALLOC_CORE_VERSION || Front::installed != nullptr) return nullptr;
  try {
    Front::installed = new Front(table, at::getHostAllocator(at::kCUDA));
    at::setHostAllocator(at::kCUDA, Front::installed, 1);
  } catch (const std::exception& e) {
    static std::string error = e.what();
    return error.c_str();
  }
#else
  (void)table;
#endif
  return nullptr;
}
