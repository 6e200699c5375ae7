// A map's picture in tiles. Each is painted once for a scale, where it lies on a grid that begins at event 0 and address 0:
// what was panned to is, pixel for pixel, what would be painted anew, and panning paints only what came into view.

import { el } from "./dom";

const WIDE = 256;
const TALL = 512;
/** Tiles that are kept without being looked at. */
const KEPT = 64;

/** A rectangle of the grid: pixels from event 0 to the right and from address 0 downwards, so that addresses are negative. */
export interface Window {
  /** Pixels of an event. */
  perTime: number;
  /** Pixels of a unit of addresses. */
  perUnit: number;
  left: number;
  top: number;
  width: number;
  height: number;
}

interface Layer {
  perTime: number;
  perUnit: number;
  tiles: Map<string, { image: HTMLCanvasElement; column: number; row: number }>;
  /** Whether all of some view was painted: only such a layer is worth stretching under the next one. */
  whole: boolean;
}

/** Columns and rows of tiles, both ends included. */
type Area = [left: number, right: number, top: number, bottom: number];

export class Tiles {
  private layer: Layer = { perTime: 0, perUnit: 0, tiles: new Map(), whole: false };
  private under: Layer | null = null;
  private busy = false;
  private wanted: Window | null = null;

  /** `end` and `height`: the events and addresses that there are; `painted` is called when a picture came. */
  constructor(
    private readonly end: number,
    private readonly height: number,
    private readonly paint: (window: Window) => Promise<ImageData>,
    private readonly painted: () => void,
  ) {}

  /** Every tile is out of date; they are shown until there are others. */
  invalidate(): void {
    this.replace(0, 0);
  }

  /** Has what is missing of a view painted, and then what lies around it. */
  look(view: Window): void {
    this.wanted = view;
    this.request();
  }

  /** Takes a picture of all of a view, painted elsewhere. */
  take(view: Window, paint: (window: Window) => ImageData): void {
    this.replace(view.perTime, view.perUnit);
    const window = this.window(this.area(view));
    this.cut(window, paint(window));
  }

  /** Draws a view, `zoom` pixels for each of its own; whether all of it was there. */
  draw(g: CanvasRenderingContext2D, view: Window, x: number, zoom: number): boolean {
    this.scale(view);
    const missing = this.missing(this.area(view));
    if (missing && this.under) this.stretch(g, this.under, view, x, zoom);
    this.stretch(g, this.layer, view, x, zoom);
    if (!missing) {
      this.layer.whole = true;
      this.under = null;
    }
    return !missing;
  }

  private stretch(g: CanvasRenderingContext2D, layer: Layer, view: Window, x: number, zoom: number): void {
    const [across, down] = [view.perTime / layer.perTime, view.perUnit / layer.perUnit];
    for (const { image, column, row } of layer.tiles.values()) {
      const left = column * WIDE * across - view.left;
      const top = row * TALL * down - view.top;
      if (left >= view.width || top >= view.height || left + WIDE * across <= 0 || top + TALL * down <= 0) continue;
      g.drawImage(image, x + left * zoom, top * zoom, WIDE * across * zoom, TALL * down * zoom);
    }
  }

  private replace(perTime: number, perUnit: number): void {
    if (this.layer.whole) this.under = this.layer;
    this.layer = { perTime, perUnit, tiles: new Map(), whole: false };
  }

  private scale({ perTime, perUnit }: Window): void {
    if (this.layer.perTime !== perTime || this.layer.perUnit !== perUnit) this.replace(perTime, perUnit);
  }

  /** The tiles of a window that hold something, with so many more on each side. */
  private area(view: Window, across = 0, down = 0): Area {
    const last = Math.max(0, Math.ceil((this.end * view.perTime) / WIDE) - 1);
    const first = Math.min(-1, Math.floor((-this.height * view.perUnit) / TALL));
    return [
      Math.max(0, Math.floor(view.left / WIDE) - across),
      Math.min(last, Math.floor((view.left + view.width - 1) / WIDE) + across),
      Math.max(first, Math.floor(view.top / TALL) - down),
      Math.min(-1, Math.floor((view.top + view.height - 1) / TALL) + down),
    ];
  }

  /** The smallest area around the tiles of an area that are not there yet. */
  private missing([left, right, top, bottom]: Area): Area | null {
    let area: Area | null = null;
    for (let column = left; column <= right; column++) {
      for (let row = top; row <= bottom; row++) {
        if (this.layer.tiles.has(`${column} ${row}`)) continue;
        area = area ? [Math.min(area[0], column), Math.max(area[1], column), Math.min(area[2], row), Math.max(area[3], row)] : [column, column, row, row];
      }
    }
    return area;
  }

  // What is seen comes first, then a column at each side at a time.
  private next(view: Window): Area | null {
    const seen = this.area(view);
    const now = this.missing(seen);
    if (now) return now;
    const most = Math.ceil((seen[1] - seen[0] + 1) / 2);
    for (let across = 1; across <= most; across++) {
      const [left, right, top, bottom] = this.area(view, across, across === 1 ? 1 : 0);
      const next = this.missing([right, right, top, bottom]) ?? this.missing([left, left, top, bottom]) ?? this.missing([left, right, top, bottom]);
      if (next) return next;
    }
    return null;
  }

  private window([left, right, top, bottom]: Area): Window {
    const { perTime, perUnit } = this.layer;
    return { perTime, perUnit, left: left * WIDE, top: top * TALL, width: (right - left + 1) * WIDE, height: (bottom - top + 1) * TALL };
  }

  private request(): void {
    if (this.busy || !this.wanted) return;
    this.scale(this.wanted);
    const area = this.next(this.wanted);
    if (!area) return;
    const { layer } = this;
    const window = this.window(area);
    this.busy = true;
    void this.paint(window).then((pixels) => {
      this.busy = false;
      // Meanwhile the view may have been zoomed or the colours changed.
      if (layer === this.layer) this.cut(window, pixels);
      this.painted();
      this.request();
    });
  }

  private cut({ left, top, width, height }: Window, pixels: ImageData): void {
    const { tiles } = this.layer;
    for (let x = 0; x < width; x += WIDE) {
      for (let y = 0; y < height; y += TALL) {
        const image = el("canvas", { width: WIDE, height: TALL });
        image.getContext("2d")?.putImageData(pixels, -x, -y, x, y, WIDE, TALL);
        const [column, row] = [(left + x) / WIDE, (top + y) / TALL];
        tiles.set(`${column} ${row}`, { image, column, row });
      }
    }
    this.forget();
  }

  // The oldest tiles go, except those that are looked at or lie next to them.
  private forget(): void {
    if (!this.wanted) return;
    const [left, right, top, bottom] = this.area(this.wanted, 4, 1);
    const { tiles } = this.layer;
    for (const [key, { column, row }] of tiles) {
      if (tiles.size <= KEPT) return;
      if (column < left || column > right || row < top || row > bottom) tiles.delete(key);
    }
  }
}
