// Graph capture and private pools.
//
// Pools of graphs are the arena's. The native allocator has each of them too, for what the arena does not serve. Pools that the
// program makes itself (MemPool) are the native allocator's alone.
#pragma once
#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core.h"
#include "pools.h"
#include "sharing.h"
#include "versions.h"

namespace stalloc {

template <typename Native>
struct Graphs : Sharing<Native> {
  using Sharing<Native>::Sharing;
  using Sharing<Native>::core;
  using Sharing<Native>::find;
  using Sharing<Native>::next;
  using Sharing<Native>::notes;

  void beginAllocateToPool(c10::DeviceIndex index, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
    next->beginAllocateToPool(index, pool, filter);
    auto* device = find(index);
    if (device == nullptr) return;
    device->pools.begin(pool, std::move(filter));
    bool is_first = device->redirected.fetch_add(1, std::memory_order_acq_rel) == 0;
    if (!MarksCaptures<Native>::value && is_first) core->capturing(index, 1);
  }
  void endAllocateToPool(c10::DeviceIndex index, MempoolId_t pool) {
    if (auto* device = find(index)) {
      bool is_last = device->redirected.fetch_sub(1, std::memory_order_acq_rel) == 1;
      if (!MarksCaptures<Native>::value && is_last) core->capturing(index, 0);
      device->pools.end(pool);
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

  void releasePool(c10::DeviceIndex d, MempoolId_t p) {
    next->releasePool(d, p);
    if (auto* device = find(d)) device->pools.released(p);
  }
  void createOrIncrefPool(c10::DeviceIndex d, MempoolId_t p, std::shared_ptr<Native> a) {
    next->createOrIncrefPool(d, p, std::move(a));
    if (auto* device = find(d)) device->pools.held(p);
  }
  void createOrIncrefPool(c10::DeviceIndex d, MempoolId_t p, Native* a) {
    next->createOrIncrefPool(d, p, a);
    if (auto* device = find(d)) device->pools.held(p);
  }
  void ensureExistsAndIncrefPool(c10::DeviceIndex d, MempoolId_t p) {
    next->ensureExistsAndIncrefPool(d, p);
    if (auto* device = find(d)) device->pools.held(p);
  }

  bool checkPoolLiveAllocations(c10::DeviceIndex d, MempoolId_t p, const std::unordered_set<void*>& live) {
    auto* device = find(d);
    auto others = live;
    if (device != nullptr)
      for (const auto& block : device->pools.blocks(p))
        if (others.erase(reinterpret_cast<void*>(block.address)) == 0) return false;
    return next->checkPoolLiveAllocations(d, p, others);
  }

  // What lives in a pool at one moment: the native allocator's part and the arena's.
  struct State final : native::AllocatorState {
    std::shared_ptr<native::AllocatorState> of_native;
    MempoolId_t pool;
    std::vector<StallocBlock> blocks;
  };
  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex d, MempoolId_t p) {
    auto state = std::make_shared<State>();
    state->of_native = next->getCheckpointState(d, p);
    state->pool = p;
    if (auto* device = find(d)) state->blocks = device->pools.blocks(p);
    return state;
  }
  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex d, std::shared_ptr<native::AllocatorState> given) {
    auto* state = dynamic_cast<State*>(given.get());
    if (state == nullptr) return next->setCheckpointPoolState(d, std::move(given));
    auto delta = next->setCheckpointPoolState(d, state->of_native);
    const auto deleter = this->raw_deleter();
    for (auto& pointer : delta.dataptrs_allocd) pointer.compare_exchange_deleter(next->raw_deleter(), deleter);
    auto* device = find(d);
    if (device == nullptr) return delta;
    const bool is_remembered = History::any_enabled();
    for (const auto& block : device->pools.blocks(state->pool)) {
      delta.ptrs_freed.push_back(reinterpret_cast<void*>(block.address));
      if (is_remembered) device->history.free_requested(block, notes());
    }
    const auto& [first, second] = state->pool;
    const size_t live = core->pool_restore(d, first, second, state->blocks.data(), state->blocks.size());
    TORCH_CHECK(live == state->blocks.size(), "stalloc: a block of a graph's pool cannot be put back");
    if (is_remembered) device->history.complete_frees(core);
    for (const auto& block : state->blocks) {
      auto* address = reinterpret_cast<void*>(block.address);
      delta.dataptrs_allocd.emplace_back(address, address, deleter, c10::Device(c10::DeviceType::CUDA, d));
      if (is_remembered)
        device->history.allocated(address, block.requested, block.size, static_cast<cudaStream_t>(block.stream), state->pool,
                                  notes());
    }
    return delta;
  }
};

}  // namespace stalloc
