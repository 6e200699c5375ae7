// Stands in front of PyTorch's own CUDA allocator: serves from the arena what it can and forwards the rest.
//
// Everything that the native allocator can do keeps working, since it is still there: a request that the arena does not
// serve gets the native allocator's own DataPtr. What is ours to add is the arena's share of the statistics, of the
// snapshots and of the history, and the care for arena addresses where PyTorch asks about an address.
//
// Here are PyTorch's interface, and serving: requests and frees. What else there is has a file each:
//
//   devices.h      what is kept of each device: its figures.h, history.h, limit.h and pools.h
//   fallback.h     requests that the native allocator serves, and memory that ran out
//   snapshots.h    histories and snapshots
//   sharing.h      other processes and devices
//   graphs.h       graph capture and pools
//   pinned.h       pinned memory of the host
//   core.h         the arena: functions in Rust
//   versions.h     what PyTorch's versions call by other names, or do not have
//
// Compiled once per version of PyTorch, whose allocators have different virtual methods. One that overrides nothing in this
// version is never called, and, in a class template, never compiled either: so there is one for each that any version has, and
// for each of its signatures. A pure virtual one that is missing here ends the compilation, and the job runs without this shim.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core.h"
#include "devices.h"
#include "fallback.h"
#include "graphs.h"
#include "sharing.h"
#include "snapshots.h"
// PyTorch 2.8 is the first whose allocator of pinned memory can be replaced.
#define STALLOC_PINNED (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8))
#if STALLOC_PINNED
#include "pinned.h"
#endif

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::cuda::MempoolId_t;
using stalloc::History;

// Whether torch_memory_saver, loaded before everything else, wants what this thread allocates: it can only pause what the
// native allocator takes by cudaMalloc.
using IsInteresting = bool (*)();
IsInteresting memory_saver() { return reinterpret_cast<IsInteresting>(dlsym(RTLD_DEFAULT, "tms_get_interesting_region")); }

template <typename Native>
struct Front final : Native {
  using Index = c10::DeviceIndex;
  using Stack = std::shared_ptr<c10::GatheredContext>;
  using State = std::shared_ptr<native::AllocatorState>;
  using Recorder = native::CreateContextFn;
  using Level = native::RecordContext;

  inline static Front* installed = nullptr;  // never destroyed: tensors outlive static destruction
  const StallocCore* core;
  Native* next;
  stalloc::Devices devices;
  stalloc::Fallback fallback{};
  stalloc::Snapshots snapshots{devices};
  stalloc::Trackers trackers{};
  stalloc::Sharing sharing{core};
  stalloc::Graphs graphs{devices};
  std::atomic<bool> is_caching{true};
  const IsInteresting is_saved = memory_saver();

  Front(const StallocCore* table, Native* native, int count) : core(table), next(native), devices(table, native, count) {}

  // What the arena has no part in.
  bool initialized() { return next->initialized(); }
  void init(int count) { next->init(count); }
  std::string name() { return next->name(); }
  bool isEnabled() const { return next->isEnabled(); }
  void copy_data(void* to, const void* from, size_t bytes) const { next->copy_data(to, from, bytes); }
  c10::DataPtr allocateWithAddress(size_t size, void* address) { return next->allocateWithAddress(size, address); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) { return next->getIpcDevPtr(std::move(handle)); }
  void cacheInfo(Index d, size_t* largest) { next->cacheInfo(d, largest); }
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(Index d) { return next->getExpandableSegmentSizes(d); }
  int getPoolUseCount(Index d, MempoolId_t p) { return next->getPoolUseCount(d, p); }
  void setUseOnOOM(Index d, MempoolId_t p, bool use) { next->setUseOnOOM(d, p, use); }
  void setUseOnOOM(Index d, MempoolId_t p) { next->setUseOnOOM(d, p); }
  void setNoSplit(Index d, MempoolId_t p) { next->setNoSplit(d, p); }
  bool isHistoryEnabled() { return next->isHistoryEnabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& md) { next->recordAnnotation(md); }
  bool supportsUserMetadata() { return next->supportsUserMetadata(); }
  void setUserMetadata(const std::string& md) { next->setUserMetadata(md); }
  std::string getUserMetadata() { return next->getUserMetadata(); }
  void attachOomRejectionObserver(native::OomRejectionObserver o) { next->attachOomRejectionObserver(std::move(o)); }

  // Figures and limits.
  stalloc::DeviceStats getDeviceStats(Index d) {
    auto stats = next->getDeviceStats(d);
    if (auto* device = devices.find(d)) return device->sum(std::move(stats));
    return stats;
  }
  void resetAccumulatedStats(Index d) {
    next->resetAccumulatedStats(d);
    if (auto* device = devices.find(d)) device->reset_totals();
  }
  void resetPeakStats(Index d) {
    next->resetPeakStats(d);
    if (auto* device = devices.find(d)) device->reset_peaks();
  }
  void setMemoryFraction(double share, Index d) {
    next->setMemoryFraction(share, d);
    if (auto* device = devices.find(d)) device->set_limit(share);
  }
  double getMemoryFraction(Index d) {
    auto* device = devices.find(d);
    return device != nullptr && device->limit.exists() ? device->limit.share() : next->getMemoryFraction(d);
  }
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver o) {
    if (fallback.out_of_memory.attach(std::move(o))) next->attachOutOfMemoryObserver(&stalloc::OutOfMemory::note);
  }
  void emptyCache(MempoolId_t pool) {
    next->emptyCache(pool);
    if (pool == MempoolId_t{0, 0}) devices.trim();
  }
  void emptyCache() {
    next->emptyCache();
    devices.trim();
  }

  // Histories and snapshots.
  void recordHistory(bool on, Recorder r, size_t n, Level l, bool clear, const std::vector<std::string>& skip) {
    next->recordHistory(on, r, n, l, clear, skip);
    snapshots.remember(on, r, n, l, clear, skip);
  }
  void recordHistory(bool on, Recorder r, size_t n, Level l, bool clear) {
    next->recordHistory(on, r, n, l, clear);
    snapshots.remember(on, r, n, l, clear);
  }
  void recordHistory(bool on, Recorder r, size_t n, Level l) {
    next->recordHistory(on, r, n, l);
    snapshots.remember(on, r, n, l);
  }
  native::SnapshotInfo snapshot(MempoolId_t p, bool traces) { return snapshots.with_arena(next->snapshot(p, traces), p, traces); }
  native::SnapshotInfo snapshot(MempoolId_t p) { return snapshots.with_arena(next->snapshot(p), p, true); }
  native::SnapshotInfo snapshot() { return snapshots.with_arena(next->snapshot(), {0, 0}, true); }
  Stack getContextForPointer(const void* address) {
    const auto block = devices.block_around(address);
    return block ? snapshots.stack_of(address, *block) : next->getContextForPointer(address);
  }
  void annotateMemory(const void* address, const std::string& text) {
    auto* device = devices.owner(address);
    const auto block = devices.block_around(address);
    if (device == nullptr || !block) return next->annotateMemory(address, text);
    if (History::any_enabled()) device->history.annotated(*block, stalloc::said(text));
  }
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
    next->attachAllocatorTraceTracker(tracker);
    trackers.attach(std::move(tracker));
  }
  void pushCompileContext(std::string& text) {
    stalloc::compile_contexts.push_back(text);
    next->pushCompileContext(text);
  }
  void popCompileContext() {
    if (!stalloc::compile_contexts.empty()) stalloc::compile_contexts.pop_back();
    next->popCompileContext();
  }

  // Other processes and devices.
  void* getBaseAllocation(void* address, size_t* size) {
    const auto block = devices.block_around(address);
    return block ? sharing.allocation_around(*block, size) : next->getBaseAllocation(address, size);
  }
  native::ShareableHandle shareIpcHandle(void* address) {
    const auto block = devices.block_around(address);
    return block ? sharing.share(*block) : next->shareIpcHandle(address);
  }
  void enablePeerAccess(Index user, Index owner) {
    next->enablePeerAccess(user, owner);
    sharing.allow_peer(user, owner);
  }
  cudaError_t memcpyAsync(void* to, int at, const void* from, int source, size_t bytes, cudaStream_t stream, bool p2p) {
    if (sharing.is_for_peers(to, at, from, source, p2p)) return cudaMemcpyPeerAsync(to, at, from, source, bytes, stream);
    return next->memcpyAsync(to, at, from, source, bytes, stream, p2p);
  }

  // Graphs and their pools.
  void beginAllocateToPool(Index d, MempoolId_t p, std::function<bool(cudaStream_t)> filter) {
    next->beginAllocateToPool(d, p, filter);
    graphs.begin(d, p, std::move(filter));
  }
  void endAllocateToPool(Index d, MempoolId_t p) {
    graphs.end(d, p);
    next->endAllocateToPool(d, p);
  }
  void markCaptureBegin(Index d) {
    graphs.capture_begins(d);
    next->markCaptureBegin(d);
  }
  void markCaptureEnd(Index d) {
    next->markCaptureEnd(d);
    graphs.capture_ends(d);
  }
  void releasePool(Index d, MempoolId_t p) {
    next->releasePool(d, p);
    graphs.released(d, p);
  }
  void createOrIncrefPool(Index d, MempoolId_t p, std::shared_ptr<Native> a) {
    next->createOrIncrefPool(d, p, std::move(a));
    graphs.held(d, p);
  }
  void createOrIncrefPool(Index d, MempoolId_t p, Native* a) {
    next->createOrIncrefPool(d, p, a);
    graphs.held(d, p);
  }
  void ensureExistsAndIncrefPool(Index d, MempoolId_t p) {
    next->ensureExistsAndIncrefPool(d, p);
    graphs.held(d, p);
  }
  bool checkPoolLiveAllocations(Index d, MempoolId_t p, const std::unordered_set<void*>& live) {
    auto others = live;
    return graphs.take_live(d, p, others) && next->checkPoolLiveAllocations(d, p, others);
  }
  State getCheckpointState(Index d, MempoolId_t p) { return graphs.state(d, p, next->getCheckpointState(d, p)); }
  native::CheckpointDelta setCheckpointPoolState(Index d, State given) {
    auto* state = dynamic_cast<stalloc::Graphs::State*>(given.get());
    if (state == nullptr) return next->setCheckpointPoolState(d, std::move(given));
    auto delta = next->setCheckpointPoolState(d, state->of_native);
    for (auto& pointer : delta.dataptrs_allocd) (void)pointer.compare_exchange_deleter(next->raw_deleter(), &release);
    graphs.restore(d, *state, delta, &release);
    return delta;
  }

  // Requests and frees.
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
    auto served = fallback.ask(devices.find(index), size, [&] { return next->allocate(size); }, [&] { return allocate(size); });
    // What lies in a pool has one deleter, whoever served it.
    if (auto* device = devices.find(index); device != nullptr && device->redirected.load(std::memory_order_acquire) > 0)
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
    return fallback.ask(
        devices.find(index), size, [&] { return next->raw_alloc_with_stream(size, stream); },
        [&] { return raw_alloc_on(index, size, stream); });
  }

  // Null: the request is the native allocator's.
  void* serve(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
    auto* device = devices.find(index);
    if (size == 0 || device == nullptr) return nullptr;
    if (C10_UNLIKELY(!is_caching.load(std::memory_order_relaxed) || (is_saved != nullptr && is_saved()))) return nullptr;
    if (C10_UNLIKELY(device->figures.is_outside_changed())) device->refresh();
    size_t rounded = 0;
    void* address = nullptr;
    stalloc::Pools::Route route;
    if (C10_UNLIKELY(device->redirected.load(std::memory_order_acquire) > 0)) route = device->pools.route(stream);
    if (C10_LIKELY(!route.is_redirected))
      address = core->serve(index, size, stream, &rounded);
    else if (route.is_ours)
      address = core->pool_serve(index, route.pool.first, route.pool.second, size, stream, &rounded);
    if (C10_UNLIKELY(trackers.any() && address != nullptr && !device->is_arena_told.load())) trackers.tell(*device);
    if (C10_LIKELY(address != nullptr)) device->allocated(address, size, rounded, stream, route.pool);
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
    stalloc::Device* device = nullptr;
    size_t rounded = 0;
    if (int index = 0; C10_LIKELY(!History::any_enabled())) {
      rounded = core->release(address, &index, nullptr);
      device = devices.find(index);
    } else if ((device = devices.owner(address)) != nullptr) {
      rounded = device->history.release(core, address, device->notes());
    }
    if (C10_UNLIKELY(rounded == 0)) return false;
    if (device != nullptr) device->freed(address, rounded);
    return true;
  }

  // Off: every request takes memory from the device and gives it back, as tools that check accesses need it.
  void enable(bool on) {
    is_caching.store(on, std::memory_order_relaxed);
    next->enable(on);
  }

  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) {
    if (!devices.block_around(pointer.get())) return next->recordStream(pointer, stream);
    core->record_stream(pointer.get(), stream.stream());
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
extern "C" void stalloc_front_on_full(bool (*relieve)(int)) { stalloc::Fallback::relieve = relieve; }

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
