// Stands in front of PyTorch's own CUDA allocator: serves what the plan knows from the arena and forwards the rest.
//
// Everything that the native allocator can do keeps working, since it is still there: a request that the arena does not
// serve gets the native allocator's own DataPtr. What is ours to add is the arena's share of the statistics, of the
// snapshots and of the history, and the care for arena addresses where PyTorch asks about an address.
//
// Compiled once per version of PyTorch, whose allocators have different virtual methods. A method that overrides nothing in
// this version is never called, and, in a class template, never compiled either: so there is one for each that any version
// has, and for each of its signatures. A pure virtual one that is missing here ends the compilation, and the job runs
// without this shim.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "figures.h"
#include "history.h"
#include "limit.h"
#include "segments.h"
#include "versions.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using stalloc::DeviceStats;
using c10::cuda::MempoolId_t;
using native::RecordContext;
using native::TraceEntry;

const StallocCore* core = nullptr;

// What torch.compile says that it is compiling.
thread_local std::vector<std::string> compile_contexts;

// What the shim keeps of one device.
struct Device {
  explicit Device(int index) : figures(core, index), history(index), limit(core, index) {}
  stalloc::Figures figures;
  stalloc::History history;
  stalloc::Limit limit;
  std::once_flag limit_is_known;
  std::atomic<int> redirected{0};  // private pools that are being allocated to
  std::atomic<int> captures{0};
  std::atomic<int64_t> out_of_memory{0};  // exceptions that the program got; the native allocator counts its attempts
};

// What an out-of-memory observer of the native allocator was last told in this thread.
struct Told {
  int64_t device = -1;
  size_t size = 0, total = 0, free = 0;
};
thread_local Told told;

// Larger requests are refused by the native allocator without being counted.
constexpr size_t kLargestCounted = size_t(1) << 60;

// Whether torch_memory_saver, loaded before everything else, wants what this thread allocates: it can only pause what the
// native allocator takes by cudaMalloc.
using IsInteresting = bool (*)();
IsInteresting memory_saver() { return reinterpret_cast<IsInteresting>(dlsym(RTLD_DEFAULT, "tms_get_interesting_region")); }

template <typename Native>
struct Front final : Native {
  inline static Front* installed = nullptr;  // never destroyed: tensors outlive static destruction
  Native* next;
  std::vector<std::unique_ptr<Device>> devices;
  // From now to a snapshot it sees how fast the processor's clock runs: one that is made then sees next to nothing.
  c10::ApproximateClockToUnixTimeConverter clock;
  std::atomic<bool> is_caching{true};
  const IsInteresting is_saved = memory_saver();
  std::mutex observers_mutex;
  std::vector<native::OutOfMemoryObserver> observers;

  Front(Native* native_allocator, int count) : next(native_allocator) {
    for (int i = 0; i < count; ++i) devices.push_back(std::make_unique<Device>(i));
    // Called under the native allocator's lock: it may only leave a note.
    next->attachAllocatorTraceTracker([this](const TraceEntry& entry) {
      if (auto* device = find(entry.device_)) device->figures.outside_changes();
    });
  }

  Device* find(int device) { return device >= 0 && size_t(device) < devices.size() ? devices[device].get() : nullptr; }

  // ---- serving ------------------------------------------------------------------------------------------------------

  c10::DataPtr allocate(size_t size) {
    c10::DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    if (void* address = serve(index, size, c10::cuda::getCurrentCUDAStream(index).stream()))
      return {address, address, &release, c10::Device(c10::DeviceType::CUDA, index)};
    return fall_back(index, size, [&] { return next->allocate(size); });
  }

  void* serve(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
    auto* device = find(index);
    if (size == 0 || device == nullptr || device->redirected.load(std::memory_order_acquire) > 0) return nullptr;
    if (C10_UNLIKELY(!is_caching.load(std::memory_order_relaxed) || (is_saved != nullptr && is_saved()))) return nullptr;
    if (C10_UNLIKELY(device->figures.is_outside_changed())) refresh(index, *device);
    size_t rounded = 0;
    void* address = core->serve(index, size, stream, &rounded);
    if (C10_LIKELY(address != nullptr)) tell_allocated(index, *device, address, size, rounded, stream);
    return address;
  }

  static void release(void* address) { installed->freed(address); }

  // Takes a block of the arena back; false if the address is none.
  bool freed(void* address) {
    if (C10_UNLIKELY(stalloc::History::any_enabled())) tell_requested(address);
    int index = 0;
    size_t requested = 0;
    size_t rounded = core->release(address, &index, &requested);
    if (C10_UNLIKELY(rounded == 0)) return false;
    if (auto* device = find(index)) tell_freed(c10::DeviceIndex(index), *device, address, rounded);
    return true;
  }

  // ---- whoever listens: the history, the sanitizer for streams, the profiler ------------------------------------------

  void tell_allocated(c10::DeviceIndex index, Device& device, void* address, size_t size, size_t rounded, cudaStream_t stream) {
    if (C10_UNLIKELY(stalloc::History::any_enabled())) {
      device.history.memory_changed(core, RecordContext::ALLOC, notes());
      device.history.allocated(address, size, rounded, stream, notes());
    }
    if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
      stalloc::tell_allocation(*python, reinterpret_cast<uintptr_t>(address), 0);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) profile(index, device, address, int64_t(rounded));
  }

  // Before the block is given back, or another thread's request of its address would be remembered first.
  C10_NOINLINE void tell_requested(void* address) {
    StallocBlock block{};
    int index = 0;
    if (core->owns(address, &index) && core->find(address, &block))
      if (auto* device = find(index)) device->history.free_requested(block, notes());
  }

  void tell_freed(c10::DeviceIndex index, Device& device, void* address, size_t rounded) {
    if (C10_UNLIKELY(stalloc::History::any_enabled())) device.history.complete_frees(core);
    if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
      stalloc::tell_deallocation(*python, reinterpret_cast<uintptr_t>(address), 0);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) profile(index, device, address, -int64_t(rounded));
  }

  void profile(c10::DeviceIndex index, Device& device, void* address, int64_t bytes) {
    auto [allocated, reserved] = device.figures.totals();
    c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, c10::Device(c10::DeviceType::CUDA, index));
  }

  // Calls the native allocator; when the device is full, gives the arena's idle memory back and tries once more.
  template <typename Allocate>
  auto fall_back(c10::DeviceIndex index, size_t size, Allocate&& allocate) -> decltype(allocate()) {
    auto* device = find(index);
    if (device == nullptr) return allocate();
    learn_limit(index, *device);
    try {
      return reread(index, *device, allocate);
    } catch (const c10::OutOfMemoryError&) {
      if (trim(index, *device) == 0) explain(index, *device, size);
    }
    told.device = -1;  // the program never hears of that attempt
    try {
      return reread(index, *device, allocate);
    } catch (const c10::OutOfMemoryError&) {
      explain(index, *device, size);
    }
  }

  template <typename Allocate>
  auto reread(c10::DeviceIndex index, Device& device, Allocate&& allocate) -> decltype(allocate()) {
    stalloc::Limit::Asking asking(device.limit, [&](double share) { next->setMemoryFraction(share, index); });
    auto result = allocate();
    refresh(index, device);
    return result;
  }

  // The native allocator's exception as the program gets it: with its own limit and with the arena's share in the text, after
  // its observers were told, once.
  [[noreturn]] void explain(c10::DeviceIndex index, Device& device, size_t size) {
    const bool is_limited = device.limit.exists();
    if (size < kLargestCounted) device.out_of_memory.fetch_add(1, std::memory_order_relaxed);
    if (std::exchange(told.device, -1) == index) {
      std::vector<native::OutOfMemoryObserver> listening;
      {
        std::lock_guard<std::mutex> lock(observers_mutex);
        listening = observers;
      }
      const auto last = told;
      for (const auto& observer : listening)
        observer(index, last.size, is_limited ? size_t(device.limit.allowed()) : last.total, last.free);
    }
    StallocArena arena{};
    core->arena(index, &arena);
    auto add_arena = [&](c10::OutOfMemoryError& error) {
      if (arena.reserved == 0) return;
      StallocCounters counters{};
      core->counters(index, &counters, 0, 0);
      error.add_context("stalloc: the planned arena holds " + mib(arena.reserved) + " of this GPU in addition to what is named "
                        "above, " + mib(counters.all.bytes.current) + " of it in use by tensors.");
    };
    try {
      throw;
    } catch (c10::OutOfMemoryError& error) {
      if (is_limited) {
        auto text = stalloc::with_limit(error.msg(), written(device.limit.allowed()));
        c10::OutOfMemoryError limited({__func__, __FILE__, uint32_t(__LINE__)}, std::move(text));
        add_arena(limited);
        throw limited;
      }
      add_arena(error);
      throw;
    }
  }

  static std::string mib(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

  // Bytes as the native allocator writes them.
  static std::string written(uint64_t bytes) {
    char text[32];
    const double kib = 1024.0;
    if (bytes <= 1024)
      std::snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
    else if (bytes <= (1 << 20))
      std::snprintf(text, sizeof text, "%.2f KiB", double(bytes) / kib);
    else if (bytes <= (1 << 30))
      std::snprintf(text, sizeof text, "%.2f MiB", double(bytes) / kib / kib);
    else
      std::snprintf(text, sizeof text, "%.2f GiB", double(bytes) / kib / kib / kib);
    return text;
  }

  // ---- statistics ---------------------------------------------------------------------------------------------------

  // Reads the native allocator's figures again. Takes its lock, so only when they may have changed.
  C10_NOINLINE void refresh(c10::DeviceIndex index, Device& device) {
    learn_limit(index, device);
    device.figures.refresh([&] { return next->initialized() ? next->getDeviceStats(index) : DeviceStats(); });
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) {
    auto* device = find(index);
    auto stats = next->getDeviceStats(index);
    if (device == nullptr) return stats;
    stats.num_ooms = device->out_of_memory.load(std::memory_order_relaxed);
    return device->figures.sum(stats);
  }

  void resetAccumulatedStats(c10::DeviceIndex index) {
    next->resetAccumulatedStats(index);
    if (auto* device = find(index)) {
      device->figures.reset_totals();
      device->out_of_memory.store(0, std::memory_order_relaxed);
    }
  }

  void resetPeakStats(c10::DeviceIndex index) {
    next->resetPeakStats(index);
    if (auto* device = find(index)) device->figures.reset_peaks(next->getDeviceStats(index));
  }

  // ---- history and snapshots ----------------------------------------------------------------------------------------

  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t length, RecordContext level, bool clear,
                     const std::vector<std::string>& skip) {
    next->recordHistory(enabled, recorder, length, level, clear, skip);
    remember(enabled, recorder, length, level, clear, skip);
  }

  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t length, RecordContext level, bool clear) {
    next->recordHistory(enabled, recorder, length, level, clear);
    remember(enabled, recorder, length, level, clear, {});
  }
  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t length, RecordContext level) {
    next->recordHistory(enabled, recorder, length, level);
    remember(enabled, recorder, length, level, false, {});
  }
  void remember(bool on, native::CreateContextFn recorder, size_t length, RecordContext level, bool clear,
                const std::vector<std::string>& skip) {
    if (!on) stalloc::History::enable(false);
    for (auto& device : devices) device->history.set(core, on, recorder, length, level, clear, skip);
    if (on) stalloc::History::enable(true);
  }

  native::SnapshotInfo snapshot(MempoolId_t pool, bool traces) {
    auto result = next->snapshot(pool, traces);
    return pool == MempoolId_t{0, 0} ? with_arena(std::move(result), traces) : result;
  }
  native::SnapshotInfo snapshot(MempoolId_t pool) {
    auto result = next->snapshot(pool);
    return pool == MempoolId_t{0, 0} ? with_arena(std::move(result), true) : result;
  }
  native::SnapshotInfo snapshot() { return with_arena(next->snapshot(), true); }

  native::SnapshotInfo with_arena(native::SnapshotInfo result, bool traces) {
    auto to_unix = clock.makeConverter();
    for (size_t index = 0; index < devices.size(); ++index) {
      stalloc::append_arena(core, int(index), devices[index]->history, result.segments);
      if (!traces || index >= result.device_traces.size()) continue;
      devices[index]->history.complete_frees(core);
      devices[index]->history.merge_into(result.device_traces[index], to_unix);
    }
    return result;
  }

  bool isHistoryEnabled() { return next->isHistoryEnabled(); }

  void annotateMemory(const void* address, const std::string& text) {
    StallocBlock block{};
    int index = 0;
    auto* device = core->owns(address, &index) && ours(address, &block) ? find(index) : nullptr;
    if (device == nullptr) return next->annotateMemory(address, text);
    if (stalloc::History::any_enabled()) device->history.annotated(block, {notes().compile_context, text});
  }

  void pushCompileContext(std::string& text) {
    compile_contexts.push_back(text);
    next->pushCompileContext(text);
  }
  void popCompileContext() {
    if (!compile_contexts.empty()) compile_contexts.pop_back();
    next->popCompileContext();
  }

  // What the thread says of itself, in the native allocator's words.
  stalloc::Notes notes() {
    stalloc::Notes found{compile_contexts.empty() ? "N/A" : compile_contexts.back(), ""};
    if constexpr (stalloc::HasUserMetadata<Native>::value) found.user_metadata = next->getUserMetadata();
    return found;
  }

  // ---- limits and what happens at them --------------------------------------------------------------------------------

  // The limit that the environment sets (PYTORCH_ALLOC_CONF=per_process_memory_fraction:...).
  void learn_limit(c10::DeviceIndex index, Device& device) {
    if constexpr (stalloc::TellsMemoryFraction<Native>::value) {
      if (!next->initialized()) return;
      std::call_once(device.limit_is_known, [&] {
        double share = next->getMemoryFraction(index);
        if (share < 1.0) device.limit.set(share, device_bytes(index));
      });
    }
  }

  static uint64_t device_bytes(c10::DeviceIndex index) {
    c10::DeviceIndex current = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&current));
    C10_CUDA_CHECK(c10::cuda::SetDevice(index));
    size_t free = 0, total = 0;
    auto result = cudaMemGetInfo(&free, &total);
    C10_CUDA_CHECK(c10::cuda::SetDevice(current));
    C10_CUDA_CHECK(result);
    return total;
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
    if (device->limit.exists() && arena.reserved > device->limit.allowed()) trim(index, *device);
  }

  double getMemoryFraction(c10::DeviceIndex index) {
    auto* device = find(index);
    return device != nullptr && device->limit.exists() ? device->limit.share() : next->getMemoryFraction(index);
  }

  // The program's observers are told of exceptions that it gets, not of attempts that are made again.
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
    bool is_first = false;
    {
      std::lock_guard<std::mutex> lock(observers_mutex);
      is_first = observers.empty();
      observers.push_back(std::move(observer));
    }
    if (is_first)
      next->attachOutOfMemoryObserver([](int64_t device, size_t size, size_t total, size_t free) {
        told = {device, size, total, free};
      });
  }

  // ---- addresses ----------------------------------------------------------------------------------------------------

  static bool ours(const void* address, StallocBlock* block) { return core->find(address, block) == 1; }

  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) {
    StallocBlock block{};
    if (!ours(pointer.get(), &block)) return next->recordStream(pointer, stream);
    core->record_stream(pointer.get(), stream.stream());
  }

  void* getBaseAllocation(void* address, size_t* size) {
    StallocBlock block{};
    if (!ours(address, &block)) return next->getBaseAllocation(address, size);
    if (auto arena = solid_arena(address); arena.size > 0) {
      if (size != nullptr) *size = arena.size;
      return reinterpret_cast<void*>(arena.address);
    }
    if (size != nullptr) *size = block.size;
    return reinterpret_cast<void*>(block.address);
  }

  // The arena that an address lies in, if it is one allocation of the driver's.
  static StallocArena solid_arena(const void* address) {
    StallocArena arena{};
    int index = 0;
    if (core->owns(address, &index) && core->is_solid(index)) core->arena(index, &arena);
    return arena;
  }

  // As the native allocator shares what it has from cudaMalloc: the allocation's handle, and where in it the block is.
  native::ShareableHandle shareIpcHandle(void* address) {
    StallocBlock block{};
    if (!ours(address, &block)) return next->shareIpcHandle(address);
    auto arena = solid_arena(address);
    TORCH_CHECK(arena.size > 0, "stalloc: this tensor lives in the planned arena, whose memory is mapped by pages and cannot be "
                "shared with another process; run with `stalloc run --solid` (STALLOC_SOLID=1), or share tensor.clone() made under "
                "torch.cuda.use_mem_pool(torch.cuda.MemPool())");
    cudaIpcMemHandle_t handle;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(arena.address)));
    // Version 1 of the format, which every reader knows; 'c': memory from cudaMalloc.
    std::string text("\1c");
    text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
    return {reinterpret_cast<char*>(block.address) - reinterpret_cast<char*>(arena.address), std::move(text)};
  }

  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* address) {
    StallocBlock block{};
    if (!ours(address, &block)) return next->getContextForPointer(address);
    int index = 0;
    auto* device = block.address == uint64_t(address) && core->owns(address, &index) ? find(index) : nullptr;
    return device != nullptr ? device->history.stack_of(block.address) : nullptr;
  }

  // PyTorch tells by it what it may take out of a graph's pool. Pools are the native allocator's, and so is its deleter.
  c10::DeleterFnPtr raw_deleter() const { return next->raw_deleter(); }

  void copy_data(void* to, const void* from, size_t bytes) const { next->copy_data(to, from, bytes); }

  void* raw_alloc(size_t size) {
    c10::DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    return raw_alloc_on(index, size, c10::cuda::getCurrentCUDAStream(index).stream());
  }
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) {
    c10::DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    return raw_alloc_on(index, size, stream);
  }
  void* raw_alloc_on(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
    if (void* address = serve(index, size, stream)) return address;
    return fall_back(index, size, [&] { return next->raw_alloc_with_stream(size, stream); });
  }
  void raw_delete(void* address) {
    // What lies in an arena and is not live there (after a fault, or in a forked child) is nobody else's either.
    if (!freed(address) && !core->owns(address, nullptr)) next->raw_delete(address);
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
    for (size_t index = 0; index < devices.size(); ++index) trim(c10::DeviceIndex(index), *devices[index]);
  }
  // Gives the arena's idle memory back; returns the bytes.
  uint64_t trim(c10::DeviceIndex index, Device& device) {
    const uint64_t bytes = core->trim(index);
    if (stalloc::History::any_enabled()) device.history.memory_changed(core, RecordContext::ALL, notes());
    return bytes;
  }

  // ---- private pools and graph capture: the native allocator's ------------------------------------------------------

  void beginAllocateToPool(c10::DeviceIndex index, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
    next->beginAllocateToPool(index, pool, std::move(filter));
    auto* device = find(index);
    if (device == nullptr) return;
    bool is_first = device->redirected.fetch_add(1, std::memory_order_acq_rel) == 0;
    if (!stalloc::MarksCaptures<Native>::value && is_first) core->capturing(index, 1);
  }
  void endAllocateToPool(c10::DeviceIndex index, MempoolId_t pool) {
    if (auto* device = find(index)) {
      bool is_last = device->redirected.fetch_sub(1, std::memory_order_acq_rel) == 1;
      if (!stalloc::MarksCaptures<Native>::value && is_last) core->capturing(index, 0);
    }
    next->endAllocateToPool(index, pool);
  }
  // Several threads may capture at once.
  void markCaptureBegin(c10::DeviceIndex index) {
    if (auto* device = find(index); device != nullptr && device->captures.fetch_add(1) == 0) core->capturing(index, 1);
    next->markCaptureBegin(index);
  }
  void markCaptureEnd(c10::DeviceIndex index) {
    next->markCaptureEnd(index);
    if (auto* device = find(index); device != nullptr && device->captures.fetch_sub(1) == 1) core->capturing(index, 0);
  }

  // ---- several devices ----------------------------------------------------------------------------------------------

  // `user` may use the memory of `owner` from now on. Memory that is mapped by pages has to be told.
  void enablePeerAccess(c10::DeviceIndex user, c10::DeviceIndex owner) {
    next->enablePeerAccess(user, owner);
    TORCH_CHECK(core->allow_peer(owner, user), "stalloc: the planned arena of GPU ", int(owner), " cannot be opened to GPU ",
                int(user));
  }

  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
                          bool p2p) {
    // Without peer access this is the only call that copies what is mapped by pages.
    if (!p2p && to_device != from_device && (core->owns(to, nullptr) || core->owns(from, nullptr)))
      return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
    return next->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p);
  }

  // ---- forwarded as they are ----------------------------------------------------------------------------------------

  bool initialized() { return next->initialized(); }
  void init(int count) { next->init(count); }
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex d) {
    return next->getExpandableSegmentSizes(d);
  }
  // Off: every request takes memory from the device and gives it back, as tools that check accesses need it.
  void enable(bool on) {
    is_caching.store(on, std::memory_order_relaxed);
    next->enable(on);
  }
  bool isEnabled() const { return next->isEnabled(); }
  void cacheInfo(c10::DeviceIndex d, size_t* largest) { next->cacheInfo(d, largest); }
  void releasePool(c10::DeviceIndex d, MempoolId_t p) { next->releasePool(d, p); }
  int getPoolUseCount(c10::DeviceIndex d, MempoolId_t p) { return next->getPoolUseCount(d, p); }
  void createOrIncrefPool(c10::DeviceIndex d, MempoolId_t p, std::shared_ptr<Native> a) {
    next->createOrIncrefPool(d, p, std::move(a));
  }
  void createOrIncrefPool(c10::DeviceIndex d, MempoolId_t p, Native* a) { next->createOrIncrefPool(d, p, a); }
  void ensureExistsAndIncrefPool(c10::DeviceIndex d, MempoolId_t p) { next->ensureExistsAndIncrefPool(d, p); }
  void setUseOnOOM(c10::DeviceIndex d, MempoolId_t p, bool use) { next->setUseOnOOM(d, p, use); }
  void setUseOnOOM(c10::DeviceIndex d, MempoolId_t p) { next->setUseOnOOM(d, p); }
  void setNoSplit(c10::DeviceIndex d, MempoolId_t p) { next->setNoSplit(d, p); }
  bool checkPoolLiveAllocations(c10::DeviceIndex d, MempoolId_t p, const std::unordered_set<void*>& live) {
    return next->checkPoolLiveAllocations(d, p, live);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) { return next->getIpcDevPtr(std::move(handle)); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& md) { next->recordAnnotation(md); }
  bool supportsUserMetadata() { return next->supportsUserMetadata(); }
  void setUserMetadata(const std::string& md) { next->setUserMetadata(md); }
  std::string getUserMetadata() { return next->getUserMetadata(); }
  void attachOomRejectionObserver(native::OomRejectionObserver o) { next->attachOomRejectionObserver(std::move(o)); }
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker t) { next->attachAllocatorTraceTracker(std::move(t)); }
  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex d, MempoolId_t p) {
    return next->getCheckpointState(d, p);
  }
  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex d, std::shared_ptr<native::AllocatorState> s) {
    return next->setCheckpointPoolState(d, std::move(s));
  }
  c10::DataPtr allocateWithAddress(size_t size, void* address) { return next->allocateWithAddress(size, address); }
  std::string name() { return next->name(); }
};

}  // namespace

// Installs the front. Returns null, or what went wrong.
extern "C" const char* stalloc_front_install(const StallocCore* table, int device_count) {
  static std::string error;
  if (table == nullptr || table->version < STALLOC_CORE_VERSION) return "the shim is newer than the stalloc library";
  using Front = ::Front<native::CUDAAllocator>;
  if (Front::installed != nullptr) return "it is installed already";
  try {
    core = table;
    auto installed = std::shared_ptr<Front>(new Front(native::allocator.load(), device_count), [](Front*) {});
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
