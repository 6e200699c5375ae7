// clang-format off
// The C interface between the shims and the Rust core. The core fills the table; a shim calls through it.
//
// Made from crates/runtime/src/table.rs and what it names: change that, then `UPDATE_HEADER=1 cargo test -p stalloc-runtime header`.

#pragma once

#include <cstddef>
#include <cstdint>

// A shim refuses a core of another version than it was compiled for.
constexpr uint32_t STALLOC_CORE_VERSION = 13;

/// A live block of an arena.
struct StallocBlock {
  uint64_t address;
  /// Bytes, rounded up.
  uint64_t size;
  /// Bytes asked for.
  uint64_t requested;
  void *stream;
  /// 1: given back, but another stream has not done with it.
  uint32_t pending;
};

/// An arena as PyTorch's side sees it: its range of addresses, and the device memory in it, bytes.
struct StallocArena {
  /// Start of its address range; 0 if there is none.
  uint64_t address;
  /// Length of its address range, bytes.
  uint64_t size;
  /// Device memory behind it, bytes.
  uint64_t reserved;
};

/// One quantity: what there is, the most there was, and what came and went.
struct StallocCounter {
  /// Now.
  uint64_t current;
  /// The most at once.
  uint64_t peak;
  /// All that ever came.
  uint64_t allocated;
  /// All that ever went.
  uint64_t freed;
};

/// Counts blocks of one class: how many, their rounded bytes, the bytes that were asked for.
struct StallocPool {
  /// How many.
  StallocCounter blocks;
  /// Their bytes, rounded up.
  StallocCounter bytes;
  /// The bytes asked for.
  StallocCounter requested;
};

/// Everything that is counted of one arena.
struct StallocCounters {
  /// All blocks.
  StallocPool all;
  /// Those of at most 1 MiB.
  StallocPool small;
  /// The others.
  StallocPool large;
  /// Device memory behind the arena, bytes.
  StallocCounter reserved;
  /// Times that this became more.
  uint64_t grown;
  /// Times that it became less.
  uint64_t shrunk;
};

/// A part of an arena's address range.
struct StallocRange {
  uint64_t address;
  uint64_t size;
};

/// A part of a segment of the arena's memory: a live block, or what lies between two.
struct StallocPart {
  uint64_t address;
  /// Bytes; a block's are rounded up.
  uint64_t size;
  /// Bytes asked for; 0 if it is free.
  uint64_t requested;
  /// Its segment's.
  void *stream;
  /// 0: free; 1: in use; 2: given back, but another stream has not done with it.
  uint32_t state;
  /// 1: the first of its segment.
  uint32_t begins;
  /// 1: its segment is for small requests.
  uint32_t small;
};

/// A block of a pool of graphs, or a gap between two. Memory behind two addresses is listed once.
struct StallocPoolPart {
  uint64_t pool[2];
  StallocBlock block;
  /// 1: no block.
  uint32_t free;
};

/// How long calls of one kind took, microseconds.
struct StallocDurations {
  /// All together.
  uint64_t total;
  /// The longest.
  uint64_t longest;
  /// The shortest; 0 before the first.
  uint64_t shortest;
  /// How many.
  uint64_t count;
};

/// What is counted of pinned memory.
struct StallocPinned {
  /// Blocks that the program has, or that streams have not done with.
  StallocCounter blocks;
  /// Their bytes, rounded up.
  StallocCounter bytes;
  /// The bytes that the program asked for and has.
  StallocCounter requested;
  /// Regions.
  StallocCounter regions;
  /// Their bytes.
  StallocCounter reserved;
  /// Calls of the driver that took a region.
  StallocDurations taking;
  /// Calls that gave one back.
  StallocDurations giving_back;
};

/// How another process opens a block: by descriptors of this process, one for each page that the block lies on.
struct StallocExport {
  /// Bytes of a page.
  uint64_t page;
  /// Of the block in the first page.
  uint64_t offset;
  /// With the descriptors' numbers it names these pages for good.
  uint64_t serial;
};

/// The functions that a shim calls. None throws or ends the process, whatever goes wrong in it, and none calls back into the shim.
/// Every one may be called from any thread.
struct StallocCore {
  uint32_t version;
  /// Serves `bytes` on a stream of a device from its arena and says how many bytes the block really takes. Null: the
  /// request is the fallback's.
  void *(*serve)(int32_t device, size_t bytes, void *stream, size_t *rounded);
  /// Takes a block back and returns its rounded bytes; 0 if the address is no live block of an arena. Says what it was, if `block`
  /// is not null, and whether another stream has not done with it.
  size_t (*release)(void *address, int32_t *device, StallocBlock *block);
  /// Finds the live block that an address lies in: 1 if there is one.
  int32_t (*find)(const void *address, StallocBlock *block);
  /// A block is used on another stream: it is not handed out again before that stream is done with it.
  void (*record_stream)(void *address, void *stream);
  /// Work is being captured into a CUDA graph (or no longer): the arena serves nothing and polls no event meanwhile.
  void (*capturing)(int32_t device, int32_t active);
  /// Gives device memory back that no live block needs; returns the bytes.
  uint64_t (*trim)(int32_t device);
  /// The arena's range and the memory behind it.
  void (*arena)(int32_t device, StallocArena *out);
  /// What is counted of the arena; then peaks begin again at what there is, and totals at nothing, if they are to.
  void (*counters)(int32_t device, StallocCounters *out, int32_t restart_peaks, int32_t restart_totals);
  /// Whether an address lies in an arena, live or not, and of which device. Takes no lock.
  int32_t (*owns)(const void *address, int32_t *device);
  /// Lets the device `peer` use the memory of `device`'s arena; 0 if that cannot be had.
  int32_t (*allow_peer)(int32_t device, int32_t peer);
  /// What the fallback holds, after it may have changed: device memory, and the bytes of it that tensors use.
  void (*fallback_holds)(int32_t device, uint64_t reserved, uint64_t allocated);
  /// Arena and fallback together may hold so much device memory: the arena takes no more than the fallback leaves of it.
  /// It keeps what it has. UINT64_MAX: no limit.
  void (*limit)(int32_t device, uint64_t bytes);
  /// Whether the arena is one allocation of the driver's: 1 if so.
  int32_t (*is_solid)(int32_t device);
  /// How often the memory behind the arena changed so far. Takes no lock.
  uint64_t (*memory_changes)(int32_t device);
  /// Copies up to `capacity` parts of the arena's range that have memory behind them, in the order of addresses; returns how many
  /// there are. `changes` is how often that memory had changed then.
  size_t (*memory)(int32_t device, StallocRange *out, size_t capacity, uint64_t *changes);
  /// Copies up to `capacity` parts of the arena's segments, all as they are at one moment, in the order of addresses; returns how
  /// many there are. With `by_pool`, small blocks have segments of their own, so that the sums over segments of a kind are the
  /// statistics by pool.
  size_t (*parts)(int32_t device, int32_t by_pool, StallocPart *out, size_t capacity);
  /// A graph, or who runs before it is captured, holds a pool of the arena's from now on, until `pool_end`: 1; 0 if the arena has
  /// no pools. A pool's addresses stay its own while anybody holds it.
  int32_t (*pool_begin)(int32_t device, uint64_t first, uint64_t second);
  void (*pool_end)(int32_t device, uint64_t first, uint64_t second);
  /// As `serve`, from a pool; while a graph is captured, too.
  void *(*pool_serve)(int32_t device, uint64_t first, uint64_t second, size_t bytes, void *stream, size_t *rounded);
  /// Copies up to `capacity` parts of all pools, in the order of addresses; returns how many there are.
  size_t (*pool_parts)(int32_t device, StallocPoolPart *out, size_t capacity);
  /// What lives in a pool is freed, and these blocks, which lived there at one moment, live again; returns how many of them do.
  size_t (*pool_restore)(int32_t device, uint64_t first, uint64_t second, const StallocBlock *blocks, size_t count);
  /// Serves `bytes` of pinned memory; new memory is taken with the driver of a GPU. Null: the request is PyTorch's.
  void *(*pinned_serve)(int32_t device, size_t bytes);
  /// Takes back what `pinned_serve` handed out. It is handed out again once the streams that used it are done.
  void (*pinned_release)(void *address);
  /// A stream of a GPU was given work on the pinned block that an address lies in: 1; 0 if that is no block of ours.
  int32_t (*pinned_record)(const void *address, int32_t device, void *stream);
  /// Gives pinned memory back that holds no block; returns the bytes.
  uint64_t (*pinned_trim)();
  /// What is counted of pinned memory; then peaks begin again at what there is, and totals at nothing, if they are to.
  void (*pinned_counters)(StallocPinned *out, int32_t restart_peaks, int32_t restart_totals);
  /// Bytes of the arena that are on the host, and without device memory until the program has it wake; 0 while it is awake.
  uint64_t (*asleep)(int32_t device);
  /// Lets other processes open the block that begins at an address, until it is released. Copies up to `capacity` descriptors,
  /// which stay the core's, and returns how many there are. 0: they cannot; why is in `why`, at most `room` bytes with a zero at
  /// the end.
  size_t (*share)(const void *address, StallocExport *out, int32_t *descriptors, size_t capacity, char *why, size_t room);
};

static_assert(sizeof(StallocArena) == 24);
static_assert(sizeof(StallocBlock) == 40);
static_assert(sizeof(StallocCore) == 232);
static_assert(sizeof(StallocCounters) == 336);
static_assert(sizeof(StallocExport) == 24);
static_assert(sizeof(StallocPart) == 48);
static_assert(sizeof(StallocPinned) == 224);
static_assert(sizeof(StallocPoolPart) == 64);
static_assert(sizeof(StallocRange) == 16);
