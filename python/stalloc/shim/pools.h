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

// Adds what a pool holds to PyTorch's statistics. Older versions do not tell.
template <typename Stats>
auto add_reserved(Stats& stats, c10::cuda::MempoolId_t pool, const StallocCounter& held, int)
    -> decltype(void(stats.reserved_bytes_by_private_pools)) {
  constexpr size_t AGGREGATE = 0, LARGE = 2;
  for (size_t type : {AGGREGATE, LARGE}) {
    auto& reserved = stats.reserved_bytes_by_private_pools[pool][type];
    reserved.current += int64_t(held.current);
    reserved.peak += int64_t(held.peak);
    reserved.allocated += int64_t(held.allocated);
    reserved.freed += int64_t(held.freed);
  }
}
template <typename Stats>
void add_reserved(Stats&, c10::cuda::MempoolId_t, const StallocCounter&, long) {}

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
      if (found->second == 1) look();
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
    look();
    for (const auto& [pool, held] : held_) add_reserved(stats, pool, held, 0);
  }
  void reset_peaks() {
    std::lock_guard<std::mutex> lock(mutex_);
    look();
    for (auto& [pool, held] : held_) held.peak = held.current;
  }
  void reset_totals() {
    std::lock_guard<std::mutex> lock(mutex_);
    look();
    for (auto& [pool, held] : held_) held.allocated = held.freed = 0;
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
  std::map<Id, StallocCounter> held_;  // bytes of each, also of those that are gone

  // Counts what each holds now: it only grows as long as somebody holds it. The lock is held.
  void look() {
    if (ours_.empty() && held_.empty()) return;
    std::map<Id, uint64_t> now;
    for (const auto& part : pool_parts(core_, index_)) now[{part.pool[0], part.pool[1]}] += part.block.size;
    for (const auto& [pool, bytes] : now) held_[pool];
    for (auto& [pool, held] : held_) {
      const uint64_t bytes = now[pool];
      (bytes > held.current ? held.allocated : held.freed) += std::max(bytes, held.current) - std::min(bytes, held.current);
      held.current = bytes;
      held.peak = std::max(held.peak, bytes);
    }
  }
};

}  // namespace stalloc
