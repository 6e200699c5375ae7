// Paints a map into pixels. Every block counts with the exact share of each pixel that it covers, so a picture of a
// million blocks shows how full the memory is instead of whichever block happened to be painted last.

import type { Rgb } from "./theme";

/** What the painter knows of a device. */
export interface RasterDevice {
  alloc: Uint32Array;
  free: Uint32Array;
  units: Uint32Array;
  layouts: { address: Uint32Array; segments: { begin: Uint32Array; end: Uint32Array; offset: Uint32Array; size: Uint32Array } }[];
}

export interface RasterRequest {
  layout: number;
  t0: number;
  t1: number;
  a0: number;
  a1: number;
  width: number;
  height: number;
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

/** The picture, RGBA. O(blocks + pixels). */
export function paint(device: RasterDevice, request: RasterRequest): Uint8ClampedArray<ArrayBuffer> {
  const { t0, t1, a0, a1, width, height, palette, shade, paper, waste } = request;
  const { address, segments } = device.layouts[request.layout];
  const perTime = width / (t1 - t0);
  const perUnit = height / (a1 - a0);
  const blocks = new Float32Array(width * height * 4);
  const held = new Float32Array(width * height * 4);
  const fillBlock = painter(blocks, width, height);
  const fillHeld = painter(held, width, height);
  for (let i = 0; i < segments.begin.length; i++) {
    const low = segments.offset[i];
    const high = low + segments.size[i];
    if (segments.begin[i] >= t1 || segments.end[i] <= t0 || low >= a1 || high <= a0) continue;
    fillHeld((segments.begin[i] - t0) * perTime, (segments.end[i] - t0) * perTime, (a1 - high) * perUnit, (a1 - low) * perUnit, 0, 0, 0, false);
  }
  const { alloc, free, units } = device;
  for (let i = 0; i < alloc.length; i++) {
    if (alloc[i] >= t1) break;
    if (free[i] <= t0 || address[i] === 0) continue;
    const low = address[i] - 1;
    const high = low + units[i];
    if (low >= a1 || high <= a0) continue;
    const [r, g, b] = palette[shade[i]];
    fillBlock((alloc[i] - t0) * perTime, (free[i] - t0) * perTime, (a1 - high) * perUnit, (a1 - low) * perUnit, r, g, b, true);
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
