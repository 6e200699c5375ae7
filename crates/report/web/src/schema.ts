// What the Rust side embeds: the figures (the same object that `stalloc report --json` prints) and, for each device,
// columns of numbers in one compressed block.

/** A column: where its bytes start, how many numbers it holds, and whether each is a difference to the one before. */
export interface Column {
  at: number;
  n: number;
  delta: boolean;
}

export type Fit = "yes" | "tight" | "no" | "unknown";

export interface Site {
  /** Short text of a call site, or of a size class where no call stack was recorded. */
  site: string;
  /** Bytes as PyTorch counts them. */
  size: number;
}

export interface SiteBytes {
  site: string;
  bytes: number;
  blocks: number;
}

export interface Advice {
  text: string;
  /** A line to copy. */
  command: string | null;
}

export interface Growth {
  bytes_per_step: number;
  steps: number;
  bytes: number;
  sites: SiteBytes[];
}

/** null: the recording does not say how it ended. */
export type Verdict = "fragmentation" | "growth" | "too_large" | "healthy" | null;

/** What holds memory in Python. */
export interface HolderBytes {
  holder: string;
  kind: string;
  line: string | null;
  bytes: number;
  blocks: number;
  site: string | null;
}

export interface Neighbour extends Site {
  category: string;
  begin: number;
  end: number;
}

export interface Hole {
  /** Place on the map's address axis, bytes. */
  offset: number;
  bytes: number;
  begin: number;
  end: number;
  segment: number;
  below: Neighbour | null;
  above: Neighbour | null;
}

export interface SegmentWaste {
  segment: number;
  offset: number;
  bytes: number;
  live: number;
  wasted: number;
  blocks: number;
  pins: Neighbour[];
}

export interface Pin {
  site: string;
  size_class: string;
  bytes: number;
  blocks: number;
}

export interface AllocatorFigures {
  allocator: string;
  label: string;
  peak_allocated: number;
  peak_reserved: number;
  efficiency: number;
  wasted: number;
  fits: Record<string, Fit>;
  /** Where memory grows: the step in which it no longer fits a card. */
  dies_at_step: Record<string, number>;
  /** Whether it gets past the request that failed, on the device that it failed on. */
  same_device: Fit | null;
  oom: boolean;
  peak_time: number;
  reserved_at_peak: number;
  allocated_at_peak: number;
  holes: Hole[];
  holes_total: number;
  holes_bytes: number;
  free_segments: number;
  free_segments_bytes: number;
  pins: Pin[];
  segments: SegmentWaste[];
}

export interface OutOfMemory {
  /** How many requests failed; the rest is about the last of them. */
  times: number;
  time: number;
  size: number;
  device_free: number;
  empty: number | null;
  sentence: string;
}

export interface CategoryFigures {
  category: string;
  bytes_at_peak: number;
  peak: number;
  requests: number;
}

export interface StepKind {
  kind: string;
  steps: number;
  requests: number;
  peak_allocated: number;
  reserved: { allocator: string; peak_reserved: number }[];
}

export interface Cause {
  bytes: number;
  text: string;
}

export interface PlanFigures {
  arena: number;
  lower_bound: number;
  planned_requests: number;
  dynamic_requests: number;
}

export interface DeviceFigures {
  device: number;
  /** Its name among the devices of the input. */
  name: string;
  device_name: string | null;
  events: number;
  requests: number;
  steps: number;
  state_only: boolean;
  has_stacks: boolean;
  has_times: boolean;
  peak_allocated: number;
  verdict: Verdict;
  cause: string | null;
  /** What the verdict rests on. */
  facts: string[];
  headline: string;
  advice: Advice[];
  /** When live bytes are at their peak. */
  peak_time: number;
  peak_by_site: SiteBytes[];
  holders: HolderBytes[];
  growth: Growth | null;
  notes: string[];
  out_of_memory: OutOfMemory | null;
  allocators: AllocatorFigures[];
  categories: CategoryFigures[];
  categories_from: string;
  step_kinds: StepKind[];
  plan: PlanFigures | null;
  causes: Cause[];
}

export interface InputFigures {
  name: string;
  format: string;
  warnings: string[];
  devices: DeviceFigures[];
}

export interface Difference {
  what: string;
  before: number;
  after: number;
}

export interface Comparison {
  before: { input: number; device: number };
  after: { input: number; device: number };
  sentence: string;
  figures: Difference[];
  categories: Difference[];
  sites: Difference[];
  sizes: Difference[];
}

export interface Figures {
  version: string;
  inputs: InputFigures[];
  comparisons: Comparison[];
}

export interface CurveColumns {
  time: Column;
  /** Units of 512 bytes. */
  value: Column;
}

export interface MapColumns {
  allocator: string;
  /** Highest address of the map, units of 512 bytes. */
  height: number;
  reserved: CurveColumns;
  /** Place on the address axis in units of 512 bytes, plus one; 0 where the block was not placed. */
  address: Column;
  /** 0 online, 1 planned, 2 dynamic, 3 fallback; null where all are online. */
  source: Column | null;
  segments: { begin: Column; end: Column; offset: Column; size: Column };
}

export interface Span {
  begin: number;
  end: number;
  label: string;
}

export interface DeviceColumns {
  /** Length of the time axis. */
  end: number;
  clock: { time: Column; us: Column } | null;
  live: { time: Column; total: Column; categories: Column[] };
  blocks: {
    alloc: Column;
    life: Column;
    size: Column;
    stream: Column;
    stack: Column;
    category: Column;
    /** String of the module that ran, plus one; null where there are no marks of modules. */
    module: Column | null;
  };
  /** Requests that are too small and too short-lived for the map. */
  omitted: number;
  /** Distinct sizes asked for, bytes. */
  sizes: Column;
  stacks: { start: Column; frame: Column; site: Column };
  maps: MapColumns[];
  steps: Span[];
  phases: Span[];
  /** The recorder's names of the streams. */
  streams: string[];
}

export interface Page {
  figures: Figures;
  categories: string[];
  strings: string[];
  frames: { file: Column; function: Column; line: Column; distance: Column };
  devices: DeviceColumns[][];
}
