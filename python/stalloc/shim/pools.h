// Which requests go to which pool of graphs, and who holds the pools.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core.h"
#include "history.h"

namespace stalloc {

// Adds what a pool holds, and the most that it held, to PyTorch's statistics. What it holds only grows as long as somebody holds
// it. Older versions do not tell.
template <typename Stats>
auto add_reserved(Stats& stats, c10::cuda::MempoolId_t pool, int64_t bytes, int64_t most, int)
    -> decltype(void(stats.reserved_bytes_by_private_pools)) {
  constexpr size_t AGGREGATE = 0, LARGE = 2;
  for (size_t type : {AGGREGATE, LARGE}) {
    auto& reserved = stats.reserved_bytes_by_private_pools[pool][type];
    reserved.current += bytes;
    reserved.peak += most;
    reserved.allocated += most;
    reserved.freed += most - bytes;
  }
}
template <typename Stats>
void add_reserved(Stats&, c10::cuda::MempoolId_t, int64_t, int64_t, long) {}

// The pools of one device.
class Pools {
 public:
  using Id = c10::cuda::MempoolId_t;
  using Filter = std::function<bool(cudaStream_t)>;

  // Where a request goes.
  struct Route {
    bool is_redirected = false;  // to a pool
    bool is_ours = false;        // which is the arena's
    Id pool{0, 0};
  };

  Pools(const StallocCore* core, int index) : core_(core), index_(index) {}

  // Requests that a filter lets through go to a pool from now on. A pool that was made before anything was allocated to it is the
  // program's own (MemPool), and not a graph's.
  void begin(Id pool, Filter filter) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool is_ours = made_.count(pool) == 0 && core_->pool_begin(index_, pool.first, pool.second) == 1;
    if (is_ours) ++ours_[pool];
    // As the native allocator looks for them: the first that fits.
    routes_.push_back({pool, std::move(filter), is_ours});
  }
  void end(Id pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto is_it = [&](const Redirection& route) { return route.pool == pool; };
    if (auto found = std::find_if(routes_.begin(), routes_.end(), is_it); found != routes_.end()) routes_.erase(found);
  }

  // Somebody else holds a pool, too.
  void held(Id pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = ours_.find(pool);
    if (found == ours_.end())
      ++made_[pool];
    else if (core_->pool_begin(index_, pool.first, pool.second) == 1)
      ++found->second;
  }

  // One holder less.
  void released(Id pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = ours_.find(pool); found != ours_.end()) {
      if (found->second == 1) (void)held_now();
      core_->pool_end(index_, pool.first, pool.second);
      if (--found->second == 0) ours_.erase(found);
    }
  }

  Route route(cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& route : routes_)
      if (route.filter(stream)) return {true, route.is_ours, route.pool};
    return {};
  }

  // Adds what each pool holds to the statistics.
  template <typename Stats>
  void add_to(Stats& stats) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ours_.empty() && most_.empty()) return;
    auto held = held_now();
    for (const auto& [pool, most] : most_) add_reserved(stats, pool, held[pool], most, 0);
  }

  // The live blocks of a pool.
  std::vector<StallocBlock> blocks(Id pool) {
    std::vector<StallocBlock> found;
    for (const auto& part : pool_parts(core_, index_))
      if (part.free == 0 && part.block.pending == 0 && Id{part.pool[0], part.pool[1]} == pool) found.push_back(part.block);
    return found;
  }

 private:
  struct Redirection {
    Id pool;
    Filter filter;
    bool is_ours;
  };
  const StallocCore* core_;
  const int index_;
  std::mutex mutex_;
  std::vector<Redirection> routes_;
  std::map<Id, int> ours_;  // and how many hold each
  std::map<Id, int> made_;
  std::map<Id, int64_t> most_;  // bytes that each was seen to hold, also of those that are gone

  // What each holds. The lock is held.
  std::map<Id, int64_t> held_now() {
    std::map<Id, int64_t> held;
    for (const auto& part : pool_parts(core_, index_)) held[{part.pool[0], part.pool[1]}] += int64_t(part.block.size);
    for (const auto& [pool, bytes] : held) most_[pool] = std::max(most_[pool], bytes);
    return held;
  }
};

}  // namespace stalloc
