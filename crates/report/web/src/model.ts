// One device of one input, decoded: what the drawing code works on.

import type { Store } from "./data";
import type { AllocatorFigures, DeviceColumns, DeviceFigures, Page } from "./schema";

/** A step function: `value[i]` holds from `time[i]` until `time[i + 1]`. */
export interface Curve {
  time: Uint32Array;
  /** Bytes. */
  value: Float64Array;
}

/** Where one allocator put every block; addresses in units of 512 bytes. */
export interface Layout {
  figures: AllocatorFigures;
  height: number;
  reserved: Curve;
  /** Address plus one; 0: not placed. */
  address: Uint32Array;
  source: Uint32Array | null;
  segments: { begin: Uint32Array; end: Uint32Array; offset: Uint32Array; size: Uint32Array };
}

export interface Blocks {
  n: number;
  alloc: Uint32Array;
  free: Uint32Array;
  /** Units of 512 bytes. */
  units: Uint32Array;
  /** Index into `requested`. */
  size: Uint32Array;
  stream: Uint32Array;
  stack: Uint32Array;
  category: Uint32Array;
}

export const UNIT = 512;
export const SOURCES = ["placed online", "planned", "dynamic, in the arena", "fallback pool"];

export class Device {
  readonly columns: DeviceColumns;
  readonly figures: DeviceFigures;
  readonly end: number;
  readonly live: Curve;
  /** Live bytes of each category, at the times of `live`. */
  readonly liveBy: Float64Array[];
  readonly blocks: Blocks;
  readonly requested: Float64Array;
  readonly layouts: Layout[];
  private readonly clock: { time: Uint32Array; us: Float64Array } | null;
  private readonly stackStart: Uint32Array;
  private readonly stackFrame: Uint32Array;
  private readonly frames: { file: Uint32Array; fn: Uint32Array; line: Uint32Array; distance: Uint32Array };
  private readonly sites: Uint32Array;
  /** String of each block's module, plus one; null where there are no marks of modules. */
  readonly modules: Uint32Array | null;

  constructor(
    store: Store,
    readonly page: Page,
    input: number,
    device: number,
  ) {
    const columns = page.devices[input][device];
    this.columns = columns;
    this.figures = page.figures.inputs[input].devices[device];
    this.end = Math.max(1, columns.end);
    const bytes = (column: DeviceColumns["live"]["total"]): Float64Array => store.numbers(column).map((units) => units * UNIT);
    const time = store.ints(columns.live.time);
    this.live = { time, value: bytes(columns.live.total) };
    this.liveBy = columns.live.categories.map(bytes);
    const alloc = store.ints(columns.blocks.alloc);
    this.requested = store.numbers(columns.sizes);
    const size = store.ints(columns.blocks.size);
    this.blocks = {
      n: alloc.length,
      alloc,
      free: store.ints(columns.blocks.life).map((life, i) => alloc[i] + life),
      units: size.map((at) => Math.max(1, Math.ceil(this.requested[at] / UNIT))),
      size,
      stream: store.ints(columns.blocks.stream),
      stack: store.ints(columns.blocks.stack),
      category: store.ints(columns.blocks.category),
    };
    this.layouts = columns.maps.map((map, i) => ({
      figures: this.figures.allocators[i],
      height: map.height,
      reserved: { time: store.ints(map.reserved.time), value: bytes(map.reserved.value) },
      address: store.ints(map.address),
      source: map.source && store.ints(map.source),
      segments: {
        begin: store.ints(map.segments.begin),
        end: store.ints(map.segments.end),
        offset: store.ints(map.segments.offset),
        size: store.ints(map.segments.size),
      },
    }));
    this.clock = columns.clock && { time: store.ints(columns.clock.time), us: store.numbers(columns.clock.us) };
    this.stackStart = store.ints(columns.stacks.start);
    this.stackFrame = store.ints(columns.stacks.frame);
    this.frames = { file: store.ints(page.frames.file), fn: store.ints(page.frames.function), line: store.ints(page.frames.line), distance: store.ints(page.frames.distance) };
    this.sites = store.ints(columns.stacks.site);
    this.modules = columns.blocks.module && store.ints(columns.blocks.module);
  }

  /** The call site of a stack. */
  site(stack: number): string {
    return this.page.strings[this.sites[stack]] ?? "unknown";
  }

  /** The module that ran when a block was made. */
  moduleOf(block: number): string {
    const name = this.modules?.[block] ?? 0;
    return name > 0 ? this.page.strings[name - 1] : "none";
  }

  /** The frames of a call stack, innermost first. */
  frameList(stack: number): { file: string; name: string; line: number; distance: number }[] {
    const list = [];
    for (let i = this.stackStart[stack]; i < (this.stackStart[stack + 1] ?? 0); i++) {
      const frame = this.stackFrame[i];
      list.push({ file: this.page.strings[this.frames.file[frame]], name: this.page.strings[this.frames.fn[frame]], line: this.frames.line[frame], distance: this.frames.distance[frame] });
    }
    return list;
  }

  /** For each call stack whether it or its site has a text in it, in any case. */
  stacksWith(text: string): boolean[] {
    const has = this.page.strings.map((one) => one.toLowerCase().includes(text));
    const { file, fn, line } = this.frames;
    const lines = /^(.+):(\d+)$/.exec(text);
    const frameHas = [...file].map((at, i) => has[at] || has[fn[i]] || (lines !== null && line[i] === Number(lines[2]) && this.page.strings[at].toLowerCase().endsWith(lines[1])));
    return [...this.sites].map((site, stack) => {
      if (has[site]) return true;
      for (let i = this.stackStart[stack]; i < this.stackStart[stack + 1]; i++) if (frameHas[this.stackFrame[i]]) return true;
      return false;
    });
  }

  get hasClock(): boolean {
    return this.clock !== null;
  }

  /** Microseconds at an event; between known points in proportion. */
  microseconds(event: number): number {
    if (!this.clock) return 0;
    const { time, us } = this.clock;
    const at = atOrBefore(time, event);
    if (at < 0) return us[0] ?? 0;
    if (at + 1 >= time.length) return us[at];
    const share = (event - time[at]) / Math.max(1, time[at + 1] - time[at]);
    return us[at] + share * (us[at + 1] - us[at]);
  }

  /** The frames of a call stack, innermost first, as text. */
  stack(id: number): string[] {
    const lines: string[] = [];
    for (let i = this.stackStart[id]; i < (this.stackStart[id + 1] ?? 0); i++) {
      const frame = this.stackFrame[i];
      const file = this.page.strings[this.frames.file[frame]];
      const line = this.frames.line[frame];
      lines.push(`${file}${line ? `:${line}` : ""}  ${this.page.strings[this.frames.fn[frame]]}`);
    }
    return lines;
  }

  /** The step that an event lies in. */
  step(event: number): string | null {
    return this.columns.steps.find((step) => step.begin <= event && event < step.end)?.label ?? null;
  }
}

/** Index of the last entry at or before `time` in an ascending column; -1 if none. */
export function atOrBefore(times: Uint32Array, time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** A step function's value at a time. */
export function valueAt(curve: Curve, time: number): number {
  const at = atOrBefore(curve.time, time);
  return at < 0 ? 0 : curve.value[at];
}
