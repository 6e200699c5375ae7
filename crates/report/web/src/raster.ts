// Paints a map into pixels. Every block counts with the exact share of each pixel that it covers, so a picture of a
// million blocks shows how full the memory is instead of whichever block happened to be painted last.

import type { Rgb } from "./theme";
import type { Window } from "./tiles";

/** What the painter knows of a device. */
export interface RasterDevice {
  alloc: Uint32Array;
  free: Uint32Array;
  units: Uint32Array;
  layouts: { address: Uint32Array; segments: { begin: Uint32Array; end: Uint32Array; offset: Uint32Array; size: Uint32Array } }[];
}

export interface RasterRequest extends Window {
  layout: number;
  /** Index into `palette` for each block. */
  shade: Uint8Array;
  palette: Rgb[];
  paper: Rgb;
  waste: Rgb;
}

// Adds weight * colour over a rectangle in pixels; edges count by the share that they cover.
type Fill = (x0: number, x1: number, y0: number, y1: number, r: number, g: number, b: number, edge: boolean) => void;

function painter(sum: Float32Array, width: number, height: number): Fill {
  return (x0, x1, y0, y1, r, g, b, edge) => {
    const left = Math.max(0, x0);
    const right = Math.min(width, x1);
    const top = Math.max(0, y0);
    const bottom = Math.min(height, y1);
    if (right <= left || bottom <= top) return;
    const firstColumn = Math.floor(left);
    const lastColumn = Math.min(width - 1, Math.ceil(right) - 1);
    const lastRow = Math.min(height - 1, Math.ceil(bottom) - 1);
    // A visible border between neighbours, once they are large enough to carry one.
    const outlined = edge && x1 - x0 >= 4 && y1 - y0 >= 4;
    for (let row = Math.floor(top); row <= lastRow; row++) {
      const down = Math.min(row + 1, bottom) - Math.max(row, top);
      const rim = outlined && row + 1 > y1 - 1;
      let at = (row * width + firstColumn) * 4;
      for (let column = firstColumn; column <= lastColumn; column++, at += 4) {
        const share = down * (Math.min(column + 1, right) - Math.max(column, left));
        const tone = rim || (outlined && column < x0 + 1) ? share * 0.72 : share;
        sum[at] += r * tone;
        sum[at + 1] += g * tone;
        sum[at + 2] += b * tone;
        sum[at + 3] += share;
      }
    }
  };
}

/** Blocks of which the latest end is known together. */
const CHUNK = 256;
const ends = new WeakMap<Uint32Array, Uint32Array>();

/** The latest end in each chunk of blocks, so that a chunk that is over before a time need not be looked at. */
function latest(free: Uint32Array): Uint32Array {
  let latest = ends.get(free);
  if (!latest) {
    latest = new Uint32Array(Math.ceil(free.length / CHUNK));
    for (let i = 0; i < free.length; i++) if (free[i] > latest[(i / CHUNK) | 0]) latest[(i / CHUNK) | 0] = free[i];
    ends.set(free, latest);
  }
  return latest;
}

/** The picture, RGBA. O(blocks that are seen + pixels). */
export function paint(device: RasterDevice, request: RasterRequest): Uint8ClampedArray<ArrayBuffer> {
  const { perTime, perUnit, left, top, width, height, palette, shade, paper, waste } = request;
  const { address, segments } = device.layouts[request.layout];
  const [t0, t1] = [left / perTime, (left + width) / perTime];
  const [a0, a1] = [-(top + height) / perUnit, -top / perUnit];
  const blocks = new Float32Array(width * height * 4);
  const held = new Float32Array(width * height * 4);
  const fillBlock = painter(blocks, width, height);
  const fillHeld = painter(held, width, height);
  for (let i = 0; i < segments.begin.length; i++) {
    const low = segments.offset[i];
    const high = low + segments.size[i];
    if (segments.begin[i] >= t1 || segments.end[i] <= t0 || low >= a1 || high <= a0) continue;
    fillHeld(segments.begin[i] * perTime - left, segments.end[i] * perTime - left, -high * perUnit - top, -low * perUnit - top, 0, 0, 0, false);
  }
  const { alloc, free, units } = device;
  const until = latest(free);
  for (let i = 0; i < alloc.length; i++) {
    if (i % CHUNK === 0 && until[i / CHUNK] <= t0) {
      i += CHUNK - 1;
      continue;
    }
    if (alloc[i] >= t1) break;
    if (free[i] <= t0 || address[i] === 0) continue;
    const low = address[i] - 1;
    const high = low + units[i];
    if (low >= a1 || high <= a0) continue;
    const [r, g, b] = palette[shade[i]];
    fillBlock(alloc[i] * perTime - left, free[i] * perTime - left, -high * perUnit - top, -low * perUnit - top, r, g, b, true);
  }
  const pixels = new Uint8ClampedArray(width * height * 4);
  for (let at = 0; at < pixels.length; at += 4) {
    const live = Math.min(1, blocks[at + 3]);
    const scale = live > 0 ? live / blocks[at + 3] : 0;
    const empty = Math.max(0, Math.min(1, held[at + 3]) - live);
    const rest = 1 - live - empty;
    for (let channel = 0; channel < 3; channel++) {
      pixels[at + channel] = blocks[at + channel] * scale + waste[channel] * empty + paper[channel] * rest;
    }
    pixels[at + 3] = 255;
  }
  return pixels;
}
