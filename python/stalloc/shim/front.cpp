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
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

constexpr size_t kSmallSize = 1 << 20;  // the native allocator's border between its two pools
constexpr size_t AGGREGATE = 0, SMALL = 1, LARGE = 2;

const StallocCore* core = nullptr;

// Statistics that both sides have, and whose peaks are of their sum.
constexpr StatArray DeviceStats::* kSums[] = {
    &DeviceStats::allocation,      &DeviceStats::active,       &DeviceStats::segment,        &DeviceStats::allocated_bytes,
    &DeviceStats::reserved_bytes,  &DeviceStats::active_bytes, &DeviceStats::requested_bytes};

// One device's share of what the shim keeps: the arena's statistics and its history.
struct Device {
  std::mutex mutex;
  DeviceStats arena;    // of arena blocks alone
  DeviceStats outside;  // the native allocator's, as last read
  DeviceStats peaks;    // .peak: of the sum of both
  std::atomic<bool> outside_changed{true};
  std::atomic<int> redirected{0};  // private pools that are being allocated to
  std::deque<TraceEntry> history;
};

struct Front final : native::CUDAAllocator {
  native::CUDAAllocator* next;
  std::vector<std::unique_ptr<Device>> devices;
  std::atomic<bool> history{false};
  std::atomic<native::CreateContextFn> context{nullptr};
  std::atomic<RecordContext> when{RecordContext::NEVER};
  std::atomic<size_t> history_length{1};

  Front(native::CUDAAllocator* native_allocator, int count) : next(native_allocator) {
    for (int i = 0; i < count; ++i) devices.push_back(std::make_unique<Device>());
    // Called under the native allocator's lock: it may only leave a note.
    next->attachAllocatorTraceTracker([this](const TraceEntry& entry) {
      if (auto* device = find(entry.device_)) device->outside_changed.store(true, std::memory_order_relaxed);
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
    size_t rounded = 0;
    void* address = core->serve(index, size, stream, &rounded);
    if (address == nullptr) return nullptr;
    count(index, *device, rounded, size, +1);
    if (history.load(std::memory_order_relaxed)) remember(index, *device, TraceEntry::ALLOC, address, size, stream);
    return address;
  }

  static void release(void* address);

  void freed(void* address) {
    StallocBlock block{};
    bool remembered = history.load(std::memory_order_relaxed) && core->find(address, &block);
    int index = 0;
    size_t requested = 0;
    size_t rounded = core->release(address, &index, &requested);
    auto* device = find(index);
    if (rounded == 0 || device == nullptr) return;
    count(index, *device, rounded, requested, -1);
    if (!remembered) return;
    remember(index, *device, TraceEntry::FREE_REQUESTED, address, requested, block.stream);
    remember(index, *device, TraceEntry::FREE_COMPLETED, address, requested, block.stream);
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
    if (auto* device = find(index)) {
      std::lock_guard<std::mutex> lock(device->mutex);
      refresh(index, *device);
    }
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
        size_t allocated = 0;
        if (auto* device = find(index)) {
          std::lock_guard<std::mutex> lock(device->mutex);
          allocated = size_t(device->arena.allocated_bytes[AGGREGATE].current);
        }
        error.add_context("stalloc: the planned arena holds " + mib(arena.reserved) + " of this GPU beside what is named "
                          "above, " + mib(allocated) + " of it in use by tensors.");
      }
      throw;
    }
  }

  static std::string mib(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

  // ---- statistics ---------------------------------------------------------------------------------------------------

  static void add(StatArray& stat, size_t pool, int64_t amount) {
    for (size_t type : {AGGREGATE, pool})
      amount >= 0 ? stat[type].increase(size_t(amount)) : stat[type].decrease(size_t(-amount));
  }

  void count(c10::DeviceIndex index, Device& device, size_t rounded, size_t requested, int64_t sign) {
    size_t pool = rounded <= kSmallSize ? SMALL : LARGE;
    std::lock_guard<std::mutex> lock(device.mutex);
    auto& arena = device.arena;
    add(arena.allocation, pool, sign);
    add(arena.active, pool, sign);
    add(arena.allocated_bytes, pool, sign * int64_t(rounded));
    add(arena.active_bytes, pool, sign * int64_t(rounded));
    add(arena.requested_bytes, pool, sign * int64_t(requested));
    if (sign < 0) return;
    if (device.outside_changed.load(std::memory_order_relaxed))
      refresh(index, device);
    else
      raise(index, device);
  }

  // Reads the native allocator's figures again. Takes its lock, so only when they may have changed.
  void refresh(c10::DeviceIndex index, Device& device) {
    device.outside_changed.store(false, std::memory_order_relaxed);
    if (next->initialized()) device.outside = next->getDeviceStats(index);
    core->fallback_reserved(index, uint64_t(device.outside.reserved_bytes[AGGREGATE].current));
    raise(index, device);
  }

  // The arena's reserved memory is the core's to know.
  void read_arena(c10::DeviceIndex index, Device& device) {
    StallocArena now{};
    core->arena(index, &now);
    auto set = [](Stat& stat, int64_t value) {
      if (value > stat.current) stat.increase(size_t(value - stat.current));
      if (value < stat.current) stat.decrease(size_t(stat.current - value));
    };
    for (size_t type : {AGGREGATE, LARGE}) {
      set(device.arena.reserved_bytes[type], int64_t(now.reserved));
      set(device.arena.segment[type], now.reserved > 0 ? 1 : 0);
    }
  }

  void raise(c10::DeviceIndex index, Device& device) {
    read_arena(index, device);
    for (auto sum : kSums)
      for (size_t type : {AGGREGATE, SMALL, LARGE}) {
        auto& peak = (device.peaks.*sum)[type].peak;
        peak = std::max(peak, (device.arena.*sum)[type].current + (device.outside.*sum)[type].current);
      }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    auto stats = next->getDeviceStats(index);
    auto* device = find(index);
    if (device == nullptr) return stats;
    std::lock_guard<std::mutex> lock(device->mutex);
    device->outside = stats;
    raise(index, *device);
    for (auto sum : kSums)
      for (size_t type : {AGGREGATE, SMALL, LARGE}) {
        auto& out = (stats.*sum)[type];
        const auto& ours = (device->arena.*sum)[type];
        out.current += ours.current;
        out.allocated += ours.allocated;
        out.freed += ours.freed;
        // The native peak alone can be higher: of the time before the arena was looked at.
        out.peak = std::max({out.peak, ours.peak, (device->peaks.*sum)[type].peak});
      }
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    next->resetAccumulatedStats(index);
    auto* device = find(index);
    if (device == nullptr) return;
    std::lock_guard<std::mutex> lock(device->mutex);
    for (auto sum : kSums)
      for (auto& stat : device->arena.*sum) stat.reset_accumulated();
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    next->resetPeakStats(index);
    auto* device = find(index);
    if (device == nullptr) return;
    std::lock_guard<std::mutex> lock(device->mutex);
    device->outside = next->getDeviceStats(index);
    for (auto sum : kSums)
      for (size_t type : {AGGREGATE, SMALL, LARGE}) {
        (device->arena.*sum)[type].reset_peak();
        (device->peaks.*sum)[type].peak = 0;
      }
    raise(index, *device);
  }

  // ---- history and snapshots ----------------------------------------------------------------------------------------

  void remember(c10::DeviceIndex index, Device& device, TraceEntry::Action action, void* address, size_t size, void* stream) {
    bool alloc = action == TraceEntry::ALLOC;
    auto least = alloc ? RecordContext::ALLOC : RecordContext::ALL;
    auto gather = context.load();
    // The recorder may take the interpreter's lock: no lock of ours is held here.
    std::shared_ptr<c10::GatheredContext> stack = gather != nullptr && when.load() >= least ? gather() : nullptr;
    TraceEntry entry(action, index, size_t(address), size, stream, c10::MempoolId_t{0, 0}, c10::getApproximateTime(),
                     std::move(stack));
    std::lock_guard<std::mutex> lock(device.mutex);
    device.history.push_back(std::move(entry));
    while (device.history.size() > history_length.load()) device.history.pop_front();
  }

  bool isHistoryEnabled() override { return next->isHistoryEnabled(); }

  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t length, RecordContext level, bool clear,
                     const std::vector<std::string>& skip) override {
    next->recordHistory(enabled, recorder, length, level, clear, skip);
    context.store(level > RecordContext::NEVER ? recorder : nullptr);
    when.store(level);
    history_length.store(std::max<size_t>(length, 1));
    history.store(enabled);
    if (!enabled || clear)
      for (auto& device : devices) {
        std::lock_guard<std::mutex> lock(device->mutex);
        device->history.clear();
      }
  }

  native::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override {
    auto result = next->snapshot(pool, traces);
    if (pool != c10::MempoolId_t{0, 0}) return result;
    c10::ApproximateClockToUnixTimeConverter clock;
    auto to_unix = clock.makeConverter();
    for (size_t index = 0; index < devices.size(); ++index) {
      append_arena(int(index), result.segments);
      if (traces && index < result.device_traces.size()) merge(*devices[index], result.device_traces[index], to_unix);
    }
    return result;
  }

  // The arena as one expandable segment: live blocks, and what lies between them.
  static void append_arena(int index, std::vector<SegmentInfo>& segments) {
    StallocArena arena{};
    core->arena(index, &arena);
    if (arena.reserved == 0) return;
    std::vector<StallocBlock> blocks(core->blocks(index, nullptr, 0) + 64);
    blocks.resize(std::min(blocks.size(), core->blocks(index, blocks.data(), blocks.size())));
    SegmentInfo segment;
    segment.device = c10::DeviceIndex(index);
    segment.address = arena.address;
    segment.is_large = true;
    segment.is_expandable = true;
    uint64_t end = arena.address;
    auto push = [&](uint64_t size, uint64_t requested, bool allocated, bool active) {
      if (size == 0) return;
      BlockInfo info;
      info.size = size;
      info.requested_size = requested;
      info.allocated = allocated;
      info.active = active;
      segment.blocks.push_back(std::move(info));
      end += size;
    };
    for (const auto& block : blocks) {
      if (block.address < end) continue;
      push(block.address - end, 0, false, false);
      push(block.size, block.requested, block.pending == 0, true);
      segment.active_size += block.size;
      if (block.pending == 0) segment.allocated_size += block.size;
      segment.requested_size += block.requested;
      if (segment.stream == nullptr) segment.stream = block.stream;
    }
    uint64_t top = std::max(arena.address + arena.size, end);
    push(top - end, 0, false, false);
    segment.total_size = top - arena.address;
    segments.push_back(std::move(segment));
  }

  template <typename Clock>
  static void merge(Device& device, std::vector<TraceEntry>& trace, Clock& to_unix) {
    size_t middle = trace.size();
    {
      std::lock_guard<std::mutex> lock(device.mutex);
      trace.insert(trace.end(), device.history.begin(), device.history.end());
    }
    // Theirs are converted already.
    for (size_t i = middle; i < trace.size(); ++i) trace[i].time_.t_ = to_unix(trace[i].time_.approx_t_) / 1000;
    std::inplace_merge(trace.begin(), trace.begin() + ptrdiff_t(middle), trace.end(),
                       [](const TraceEntry& a, const TraceEntry& b) { return a.time_.t_ < b.time_.t_; });
  }

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
  StallocBlock block{};
  if (ours(address, &block) && block.address == reinterpret_cast<uint64_t>(address))
    front->freed(address);
  else
    front->next->raw_deleter()(address);
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
