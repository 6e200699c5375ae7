// The methods of PyTorch's native allocator that the arena has no part in: called on the native allocator as they are.
//
// A method that overrides nothing in this version of PyTorch is never called, and, in a class template, never compiled
// either: so there is one for each that any version has, and for each of its signatures.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "versions.h"

namespace stalloc {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::cuda::MempoolId_t;

template <typename Native>
struct Forwarded : Native {
  Native* next;

  explicit Forwarded(Native* native_allocator) : next(native_allocator) {}

  bool initialized() { return next->initialized(); }
  void init(int count) { next->init(count); }
  std::string name() { return next->name(); }
  bool isEnabled() const { return next->isEnabled(); }
  void copy_data(void* to, const void* from, size_t bytes) const { next->copy_data(to, from, bytes); }
  c10::DataPtr allocateWithAddress(size_t size, void* address) { return next->allocateWithAddress(size, address); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) { return next->getIpcDevPtr(std::move(handle)); }

  // What it holds.
  void cacheInfo(c10::DeviceIndex d, size_t* largest) { next->cacheInfo(d, largest); }
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex d) {
    return next->getExpandableSegmentSizes(d);
  }

  // Private pools.
  int getPoolUseCount(c10::DeviceIndex d, MempoolId_t p) { return next->getPoolUseCount(d, p); }
  void setUseOnOOM(c10::DeviceIndex d, MempoolId_t p, bool use) { next->setUseOnOOM(d, p, use); }
  void setUseOnOOM(c10::DeviceIndex d, MempoolId_t p) { next->setUseOnOOM(d, p); }
  void setNoSplit(c10::DeviceIndex d, MempoolId_t p) { next->setNoSplit(d, p); }

  // Histories and observers.
  bool isHistoryEnabled() { return next->isHistoryEnabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& md) { next->recordAnnotation(md); }
  bool supportsUserMetadata() { return next->supportsUserMetadata(); }
  void setUserMetadata(const std::string& md) { next->setUserMetadata(md); }
  std::string getUserMetadata() { return next->getUserMetadata(); }
  void attachOomRejectionObserver(native::OomRejectionObserver o) { next->attachOomRejectionObserver(std::move(o)); }
};

}  // namespace stalloc
