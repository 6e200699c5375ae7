// Stands in front of PyTorch's own CUDA allocator: serves what the plan knows from the arena and forwards the rest.
//
// Everything that the native allocator can do keeps working, since it is still there: a request that the arena does not
// serve gets the native allocator's own DataPtr. What is ours to add is the arena's share of the statistics, of the
// snapshots and of the history, and the care for arena addresses where PyTorch asks about an address.
//
// Compiled once per version of PyTorch: the list of virtual methods differs between them.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "figures.h"
#include "history.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;

const StallocCore* core = nullptr;

// What the shim keeps of one device.
struct Device {
  explicit Device(int index) : figures(core, index), history(index) {}
  stalloc::Figures figures;
  stalloc::History history;
  std::atomic<int> redirected{0};  // private pools that are being allocated to
};

struct Front final : native::CUDAAllocator {
  native::CUDAAllocator* next;
  std::vector<std::unique_ptr<Device>> devices;

  Front(native::CUDAAllocator* native_allocator, int count) : next(native_allocator) {
    for (int i = 0; i < count; ++i) devices.push_back(std::make_unique<Device>(i));
    // Called under the native allocator's lock: it may only leave a note.
    next->attachAllocatorTraceTracker([this](const TraceEntry& entry) {
      if (auto* device = find(entry.device_)) device->figures.outside_changes();
    });
  }

  Device* find(int device) { return device >= 0 && size_t(device) < devices.size() ? devices[device].get() : nullptr; }

  // ---- serving ------------------------------------------------------------------------------------------------------

  c10::DataPtr allocate(size_t size) override {
    c10::DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    if (void* address = serve(index, size, c10::cuda::getCurrentCUDAStream(index).stream()))
      return {address, address, &release, c10::Device(c10::DeviceType::CUDA, index)};
    return fall_back(index, [&] { return next->allocate(size); });
  }

  void* serve(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
    auto* device = find(index);
    if (size == 0 || device == nullptr || device->redirected.load(std::memory_order_acquire) > 0) return nullptr;
    if (C10_UNLIKELY(device->figures.is_outside_changed())) refresh(index, *device);
    size_t rounded = 0;
    void* address = core->serve(index, size, stream, &rounded);
    if (C10_LIKELY(address != nullptr)) tell_allocated(index, *device, address, size, rounded, stream);
    return address;
  }

  static void release(void* address);

  // Takes a block of the arena back; false if the address is none.
  bool freed(void* address) {
    StallocBlock block{};
    bool remembered = C10_UNLIKELY(stalloc::History::any_enabled()) && core->find(address, &block);
    int index = 0;
    size_t requested = 0;
    size_t rounded = core->release(address, &index, &requested);
    if (C10_UNLIKELY(rounded == 0)) return false;
    if (auto* device = find(index)) tell_freed(c10::DeviceIndex(index), *device, address, rounded, remembered ? &block : nullptr);
    return true;
  }

  // ---- whoever listens: the history, the sanitizer for streams, the profiler ------------------------------------------

  void tell_allocated(c10::DeviceIndex index, Device& device, void* address, size_t size, size_t rounded, cudaStream_t stream) {
    if (C10_UNLIKELY(stalloc::History::any_enabled())) device.history.add(TraceEntry::ALLOC, address, size, stream);
    if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
      (*python)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) profile(index, device, address, int64_t(rounded));
  }

  void tell_freed(c10::DeviceIndex index, Device& device, void* address, size_t rounded, const StallocBlock* block) {
    if (block != nullptr) {
      device.history.add(TraceEntry::FREE_REQUESTED, address, block->requested, block->stream);
      device.history.add(TraceEntry::FREE_COMPLETED, address, block->requested, block->stream);
    }
    if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
      (*python)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) profile(index, device, address, -int64_t(rounded));
  }

  void profile(c10::DeviceIndex index, Device& device, void* address, int64_t bytes) {
    auto [allocated, reserved] = device.figures.totals();
    c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, c10::Device(c10::DeviceType::CUDA, index));
  }

  // Calls the native allocator; when the device is full, gives the arena's idle memory back and tries once more.
  template <typename Allocate>
  auto fall_back(c10::DeviceIndex index, Allocate&& allocate) -> decltype(allocate()) {
    try {
      return reread(index, allocate);
    } catch (const c10::OutOfMemoryError&) {
      if (core->trim(index) == 0) explain(index);
    }
    try {
      return reread(index, allocate);
    } catch (const c10::OutOfMemoryError&) {
      explain(index);
    }
  }

  template <typename Allocate>
  auto reread(c10::DeviceIndex index, Allocate&& allocate) -> decltype(allocate()) {
    auto result = allocate();
    if (auto* device = find(index)) refresh(index, *device);
    return result;
  }

  // Adds the arena's share to the native allocator's own text, and throws its exception on.
  [[noreturn]] void explain(c10::DeviceIndex index) {
    StallocArena arena{};
    core->arena(index, &arena);
    try {
      throw;
    } catch (c10::OutOfMemoryError& error) {
      if (arena.reserved > 0) {
        StallocCounters counters{};
        core->counters(index, &counters, 0, 0);
        error.add_context("stalloc: the planned arena holds " + mib(arena.reserved) + " of this GPU beside what is named "
                          "above, " + mib(counters.all.bytes.current) + " of it in use by tensors.");
      }
      throw;
    }
  }

  static std::string mib(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

  // ---- statistics ---------------------------------------------------------------------------------------------------

  // ---- statistics ---------------------------------------------------------------------------------------------------

  // Reads the native allocator's figures again. Takes its lock, so only when they may have changed.
  C10_NOINLINE void refresh(c10::DeviceIndex index, Device& device) {
    device.figures.refresh([&] { return next->initialized() ? next->getDeviceStats(index) : DeviceStats(); });
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    auto* device = find(index);
    auto stats = next->getDeviceStats(index);
    return device != nullptr ? device->figures.sum(stats) : stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    next->resetAccumulatedStats(index);
    if (auto* device = find(index)) device->figures.reset_totals();
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    next->resetPeakStats(index);
    if (auto* device = find(index)) device->figures.reset_peaks(next->getDeviceStats(index));
  }

  // ---- history and snapshots ----------------------------------------------------------------------------------------

  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t length, RecordContext level, bool clear,
                     const std::vector<std::string>& skip) override {
    next->recordHistory(enabled, recorder, length, level, clear, skip);
    for (auto& device : devices) device->history.set(enabled, recorder, length, level, clear);
  }

  native::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override {
    auto result = next->snapshot(pool, traces);
    if (pool != c10::MempoolId_t{0, 0}) return result;
    c10::ApproximateClockToUnixTimeConverter clock;
    auto to_unix = clock.makeConverter();
    for (size_t index = 0; index < devices.size(); ++index) {
      stalloc::append_arena(core, int(index), result.segments);
      if (traces && index < result.device_traces.size()) devices[index]->history.merge_into(result.device_traces[index], to_unix);
    }
    return result;
  }

  bool isHistoryEnabled() override { return next->isHistoryEnabled(); }

  // ---- addresses ----------------------------------------------------------------------------------------------------

  static bool ours(const void* address, StallocBlock* block) { return core->find(address, block) == 1; }

  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    StallocBlock block{};
    if (!ours(pointer.get(), &block)) return next->recordStream(pointer, stream);
    core->record_stream(pointer.get(), stream.stream());
  }

  void* getBaseAllocation(void* address, size_t* size) override {
    StallocBlock block{};
    if (!ours(address, &block)) return next->getBaseAllocation(address, size);
    if (size != nullptr) *size = block.size;
    return reinterpret_cast<void*>(block.address);
  }

  native::ShareableHandle shareIpcHandle(void* address) override {
    StallocBlock block{};
    TORCH_CHECK(!ours(address, &block), "stalloc: this tensor lives in the planned arena, whose memory cannot be shared "
                "with another process; share tensor.clone() made under torch.cuda.use_mem_pool(torch.cuda.MemPool())");
    return next->shareIpcHandle(address);
  }

  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* address) override {
    StallocBlock block{};
    return ours(address, &block) ? nullptr : next->getContextForPointer(address);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_any; }
  static void release_any(void* address);

  void copy_data(void* to, const void* from, size_t bytes) const override { next->copy_data(to, from, bytes); }

  void* raw_alloc(size_t size) override {
    c10::DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream(index).stream());
  }
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    c10::DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    if (void* address = serve(index, size, stream)) return address;
    return fall_back(index, [&] { return next->raw_alloc_with_stream(size, stream); });
  }
  void raw_delete(void* address) override { release_any(address); }

  void emptyCache(c10::MempoolId_t pool) override {
    next->emptyCache(pool);
    if (pool == c10::MempoolId_t{0, 0})
      for (size_t index = 0; index < devices.size(); ++index) core->trim(int(index));
  }

  // ---- private pools and graph capture: the native allocator's ------------------------------------------------------

  void beginAllocateToPool(c10::DeviceIndex index, c10::MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    next->beginAllocateToPool(index, pool, std::move(filter));
    if (auto* device = find(index)) device->redirected.fetch_add(1, std::memory_order_acq_rel);
  }
  void endAllocateToPool(c10::DeviceIndex index, c10::MempoolId_t pool) override {
    if (auto* device = find(index)) device->redirected.fetch_sub(1, std::memory_order_acq_rel);
    next->endAllocateToPool(index, pool);
  }
  void markCaptureBegin(c10::DeviceIndex index) override {
    core->capturing(index, 1);
    next->markCaptureBegin(index);
  }
  void markCaptureEnd(c10::DeviceIndex index) override {
    next->markCaptureEnd(index);
    core->capturing(index, 0);
  }

  // ---- forwarded as they are ----------------------------------------------------------------------------------------

  bool initialized() override { return next->initialized(); }
  void init(int count) override { next->init(count); }
  double getMemoryFraction(c10::DeviceIndex d) override { return next->getMemoryFraction(d); }
  void setMemoryFraction(double f, c10::DeviceIndex d) override { next->setMemoryFraction(f, d); }
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex d) override {
    return next->getExpandableSegmentSizes(d);
  }
  void enable(bool on) override { next->enable(on); }
  bool isEnabled() const override { return next->isEnabled(); }
  void cacheInfo(c10::DeviceIndex d, size_t* largest) override { next->cacheInfo(d, largest); }
  void releasePool(c10::DeviceIndex d, c10::MempoolId_t p) override { next->releasePool(d, p); }
  int getPoolUseCount(c10::DeviceIndex d, c10::MempoolId_t p) override { return next->getPoolUseCount(d, p); }
  void createOrIncrefPool(c10::DeviceIndex d, c10::MempoolId_t p, std::shared_ptr<native::CUDAAllocator> a) override {
    next->createOrIncrefPool(d, p, std::move(a));
  }
  void setUseOnOOM(c10::DeviceIndex d, c10::MempoolId_t p, bool use) override { next->setUseOnOOM(d, p, use); }
  void setNoSplit(c10::DeviceIndex d, c10::MempoolId_t p) override { next->setNoSplit(d, p); }
  bool checkPoolLiveAllocations(c10::DeviceIndex d, c10::MempoolId_t p, const std::unordered_set<void*>& live) override {
    return next->checkPoolLiveAllocations(d, p, live);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return next->getIpcDevPtr(std::move(handle)); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& md) override { next->recordAnnotation(md); }
  void pushCompileContext(std::string& md) override { next->pushCompileContext(md); }
  void popCompileContext() override { next->popCompileContext(); }
  bool supportsUserMetadata() override { return next->supportsUserMetadata(); }
  void setUserMetadata(const std::string& md) override { next->setUserMetadata(md); }
  std::string getUserMetadata() override { return next->getUserMetadata(); }
  void annotateMemory(const void* p, const std::string& md) override { next->annotateMemory(p, md); }
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver o) override { next->attachOutOfMemoryObserver(std::move(o)); }
  void attachOomRejectionObserver(native::OomRejectionObserver o) override { next->attachOomRejectionObserver(std::move(o)); }
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker t) override { next->attachAllocatorTraceTracker(std::move(t)); }
  void enablePeerAccess(c10::DeviceIndex a, c10::DeviceIndex b) override { next->enablePeerAccess(a, b); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
                          bool p2p) override {
    return next->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p);
  }
  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex d, c10::MempoolId_t p) override {
    return next->getCheckpointState(d, p);
  }
  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex d, std::shared_ptr<native::AllocatorState> s) override {
    return next->setCheckpointPoolState(d, std::move(s));
  }
  c10::DataPtr allocateWithAddress(size_t size, void* address) override { return next->allocateWithAddress(size, address); }
  std::string name() override { return next->name(); }
};

// Never destroyed: tensors outlive static destruction.
Front* front = nullptr;

void Front::release(void* address) { front->freed(address); }

void Front::release_any(void* address) {
  if (!front->freed(address)) front->next->raw_deleter()(address);
}

}  // namespace

// Installs the front. Returns null, or what went wrong.
extern "C" const char* stalloc_front_install(const StallocCore* table, int device_count) {
  static std::string error;
  if (table == nullptr || table->version < STALLOC_CORE_VERSION) return "the shim is newer than the stalloc library";
  if (front != nullptr) return "it is installed already";
  try {
    core = table;
    auto installed = std::shared_ptr<Front>(new Front(native::allocator.load(), device_count), [](Front*) {});
    front = installed.get();
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(installed);
  } catch (const std::exception& e) {
    error = e.what();
    return error.c_str();
  }
  return nullptr;
}
