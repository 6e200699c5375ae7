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

#include "devices.h"

namespace stalloc {

using c10::cuda::MempoolId_t;

struct Graphs {
  const Devices& devices;

  // Requests that a filter lets through go to a pool.
  void begin(c10::DeviceIndex index, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
    auto* device = devices.find(index);
    if (device == nullptr) return;
    device->pools.begin(pool, std::move(filter));
    bool is_first = device->redirected.fetch_add(1, std::memory_order_acq_rel) == 0;
    if (!MarksCaptures<>::value && is_first) device->core->capturing(index, 1);
  }
  void end(c10::DeviceIndex index, MempoolId_t pool) {
    auto* device = devices.find(index);
    if (device == nullptr) return;
    bool is_last = device->redirected.fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (!MarksCaptures<>::value && is_last) device->core->capturing(index, 0);
    device->pools.end(pool);
  }

  // Several threads may capture at once.
  void capture_begins(c10::DeviceIndex index) {
    if (auto* device = devices.find(index); device != nullptr && device->captures.fetch_add(1) == 0)
      device->core->capturing(index, 1);
  }
  void capture_ends(c10::DeviceIndex index) {
    if (auto* device = devices.find(index); device != nullptr && device->captures.fetch_sub(1) == 1)
      device->core->capturing(index, 0);
  }

  void held(c10::DeviceIndex index, MempoolId_t pool) {
    if (auto* device = devices.find(index)) device->pools.held(pool);
  }
  void released(c10::DeviceIndex index, MempoolId_t pool) {
    if (auto* device = devices.find(index)) device->pools.released(pool);
  }

  // Takes the arena's blocks of a pool out of those that are said to live there; false if one is missing.
  bool take_live(c10::DeviceIndex index, MempoolId_t pool, std::unordered_set<void*>& live) {
    for (const auto& block : blocks(index, pool))
      if (live.erase(reinterpret_cast<void*>(block.address)) == 0) return false;
    return true;
  }

  // What lives in a pool at one moment: the native allocator's part and the arena's.
  struct State final : native::AllocatorState {
    std::shared_ptr<native::AllocatorState> of_native;
    MempoolId_t pool;
    std::vector<StallocBlock> blocks;
  };
  std::shared_ptr<State> state(c10::DeviceIndex index, MempoolId_t pool, std::shared_ptr<native::AllocatorState> of_native) {
    auto state = std::make_shared<State>();
    state->of_native = std::move(of_native);
    state->pool = pool;
    state->blocks = blocks(index, pool);
    return state;
  }

  // Puts the arena's part of a pool back, and adds it to what the native allocator says of its own: what was freed, and what
  // lives again, with its deleter.
  void restore(c10::DeviceIndex index, const State& state, native::CheckpointDelta& delta, c10::DeleterFnPtr deleter) {
    auto* device = devices.find(index);
    if (device == nullptr) return;
    const bool is_remembered = History::any_enabled();
    for (const auto& block : device->pools.blocks(state.pool)) {
      delta.ptrs_freed.push_back(reinterpret_cast<void*>(block.address));
      if (is_remembered) device->history.free_requested(block, device->notes());
    }
    const auto& [first, second] = state.pool;
    const size_t live = device->core->pool_restore(index, first, second, state.blocks.data(), state.blocks.size());
    TORCH_CHECK(live == state.blocks.size(), "stalloc: a block of a graph's pool cannot be put back");
    if (is_remembered) device->history.complete_frees(device->core);
    for (const auto& block : state.blocks) {
      auto* address = reinterpret_cast<void*>(block.address);
      delta.dataptrs_allocd.emplace_back(address, address, deleter, c10::Device(c10::DeviceType::CUDA, index));
      if (is_remembered)
        device->history.allocated(address, block.requested, block.size, static_cast<cudaStream_t>(block.stream), state.pool,
                                  device->notes());
    }
  }

 private:
  std::vector<StallocBlock> blocks(c10::DeviceIndex index, MempoolId_t pool) const {
    auto* device = devices.find(index);
    return device != nullptr ? device->pools.blocks(pool) : std::vector<StallocBlock>();
  }
};

}  // namespace stalloc
