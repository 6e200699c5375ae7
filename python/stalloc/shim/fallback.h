// Requests that the native allocator serves, and memory that ran out, as the program hears of it: once, after every attempt, with
// what both sides hold and the program's own limit in the exception's text.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "devices.h"

namespace stalloc {

using c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;

// Larger requests are refused by the native allocator without being counted.
constexpr size_t LARGEST_COUNTED = size_t(1) << 60;

// Bytes as the native allocator writes them.
inline std::string written(uint64_t bytes) {
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

// A text with the figure in front of some words, a number and its unit, in place of the one that is there.
inline std::string with_figure(std::string text, const char* words, const std::string& figure) {
  const size_t end = text.find(words);
  const size_t unit = end == std::string::npos || end == 0 ? std::string::npos : text.rfind(' ', end - 1);
  const size_t number = unit == std::string::npos || unit == 0 ? std::string::npos : text.rfind(' ', unit - 1);
  if (number == std::string::npos) return text;
  return text.replace(number + 1, end - number - 1, figure);
}

// The native allocator's text with what both sides hold in its own fields, and without its advice, which changes nothing here.
inline std::string with_arena(std::string text, const std::pair<uint64_t, uint64_t>& totals) {
  text = with_figure(std::move(text), " is allocated by PyTorch", written(totals.first));
  text = with_figure(std::move(text), " is reserved by PyTorch", written(totals.second - std::min(totals.first, totals.second)));
  const size_t advice = text.find(" If reserved but unallocated memory is large");
  const size_t end = advice == std::string::npos ? advice : text.find(" See documentation", advice);
  return end == std::string::npos ? text : text.erase(advice, end - advice);
}

// What the native allocator's observer was last told in this thread.
struct Told {
  int64_t device = -1;
  size_t size = 0, total = 0, free = 0;
};
inline thread_local Told told;

// The program's observers of memory that ran out. They are told of exceptions that it gets, not of attempts that are made again.
class OutOfMemory {
 public:
  // Adds an observer. True for the first: then `note` is to be attached to the native allocator.
  bool attach(OutOfMemoryObserver observer) {
    std::lock_guard<std::mutex> lock(mutex);
    observers.push_back(std::move(observer));
    return observers.size() == 1;
  }

  // The native allocator's observer: keeps what this thread's last attempt was told.
  static void note(int64_t device, size_t size, size_t total, size_t free) { told = {device, size, total, free}; }

  // False where even the arena's idle memory would not be enough for a request that just failed: most often a library's, which
  // has another way. What it would be given back for, other requests would have to map again.
  static bool may_fit(Device& device, size_t size) {
    const auto [live, held] = device.figures.totals();
    return told.device != device.index || told.free + (held - std::min(live, held)) >= size;
  }

  // The program never hears of this thread's last attempt.
  static void forget() { told.device = -1; }

  // To be called where the native allocator's exception is caught: throws it as the program gets it.
  [[noreturn]] void explain(Device& device, size_t size) {
    const bool is_limited = device.limit.exists();
    if (size < LARGEST_COUNTED) device.out_of_memory.fetch_add(1, std::memory_order_relaxed);
    if (std::exchange(told.device, -1) == device.index) {
      const auto last = told;
      for (const auto& observer : listening())
        observer(device.index, last.size, is_limited ? size_t(device.limit.allowed()) : last.total, last.free);
    }
    try {
      throw;
    } catch (c10::OutOfMemoryError& error) {
      auto text = with_arena(error.msg(), device.figures.totals());
      if (const auto bytes = device.core->asleep(device.index))
        text += " stalloc: this process is asleep with " + written(bytes) + " on the host; stalloc.wake() has them back.";
      if (is_limited) text = with_figure(std::move(text), " allowed; ", written(device.limit.allowed()));
      throw c10::OutOfMemoryError({__func__, __FILE__, uint32_t(__LINE__)}, std::move(text));
    }
  }

 private:
  std::mutex mutex;
  std::vector<OutOfMemoryObserver> observers;

  // A copy: an observer may attach another.
  std::vector<OutOfMemoryObserver> listening() {
    std::lock_guard<std::mutex> lock(mutex);
    return observers;
  }
};

// One request is asked for again: what the native allocator counts meanwhile is counted already.
class Again {
 public:
  explicit Again(Device& of) : device(of) { count(-1); }
  ~Again() { count(1); }
  Again(const Again&) = delete;
  Again& operator=(const Again&) = delete;

 private:
  Device& device;
  void count(int sign) noexcept {
    try {
      device.again.add(device.next->getDeviceStats(device.index), sign);
    } catch (...) {
      // A counter that cannot be read stays as it is.
    }
  }
};

struct Fallback {
  // Frees what the program can do without for a while, when a request is about to fail; false if there is no more of it.
  inline static std::atomic<bool (*)(int)> relieve{nullptr};
  OutOfMemory out_of_memory;

  // Calls the native allocator; when the device is full, gives the arena's idle memory back and tries once more, and begins anew
  // once the program did without something.
  template <typename Allocate, typename Anew>
  auto ask(Device* device, size_t size, Allocate&& allocate, Anew&& anew) -> decltype(allocate()) {
    if (device == nullptr) return allocate();
    device->learn_limit();
    const auto begun = c10::getApproximateTime();
    bool is_full = false;
    try {
      return asked(*device, allocate);
    } catch (const c10::OutOfMemoryError&) {
      const auto failed = c10::getApproximateTime();
      is_full = !out_of_memory.may_fit(*device, size) || device->trim() == 0;
      if (is_full && !is_relieved(*device)) out_of_memory.explain(*device, size);
      if (History::any_enabled()) device->history.leave_out(begun, failed);
    }
    OutOfMemory::forget();
    const Again again(*device);
    if (is_full) return anew();
    try {
      return asked(*device, allocate);
    } catch (const c10::OutOfMemoryError&) {
      if (!is_relieved(*device)) out_of_memory.explain(*device, size);
    }
    OutOfMemory::forget();
    return anew();
  }

 private:
  // Called with no lock held, as the callback takes Python's.
  static bool is_relieved(const Device& device) {
    const auto call = relieve.load();
    return call != nullptr && call(device.index);
  }

  template <typename Allocate>
  static auto asked(Device& device, Allocate&& allocate) -> decltype(allocate()) {
    // While a graph is captured, other threads come here too: taking memory from the driver would end the capture.
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    Limit::Asking asking(device.limit, [&](double share) { device.next->setMemoryFraction(share, device.index); });
    auto result = allocate();
    device.refresh();
    return result;
  }
};

}  // namespace stalloc
