// One allocator's map on a canvas: a picture that a worker painted, moved and stretched to what is seen, and marks on it.

import { GUTTER } from "./curves";
import { el } from "./dom";
import { bytes } from "./format";
import { listen } from "./gestures";
import { type Device, type Layout, UNIT } from "./model";
import { colour } from "./theme";
import type { View } from "./view";

interface Picture {
  image: HTMLCanvasElement;
  t0: number;
  t1: number;
  a0: number;
  a1: number;
  /** Width, in time and addresses, of the view that it was painted for. */
  span: [number, number];
}

/** What a panel needs of the maps around it. */
export interface Host {
  readonly view: View;
  readonly device: Device;
  readonly showHoles: boolean;
  paint(layout: number, range: PaintRange): Promise<ImageData>;
  paintNow(layout: number, range: PaintRange): ImageData;
  hover(panel: Panel, time: number, address: number, x: number, y: number): void;
  leave(): void;
  pin(panel: Panel, time: number, address: number): void;
  show(time: number): void;
  /** The block that is marked on a panel. */
  readonly marked: { panel: number; block: number } | null;
  stepBlock(panel: Panel, by: number): void;
  keep(panel: Panel): void;
  choose(panel: Panel, block: number | null): void;
}

/** A range of time and addresses, and the size of its picture in pixels. */
export interface PaintRange {
  /** Width, in time and addresses, of the view that it is painted for. */
  span: [number, number];
  t0: number;
  t1: number;
  a0: number;
  a1: number;
  width: number;
  height: number;
}

/** One allocator's map. */
export class Panel {
  readonly element: HTMLElement;
  readonly canvas = el("canvas", { tabindex: 0, role: "img" });
  private picture: Picture | null = null;
  private busy = false;
  private stale = true;
  private painted: [number, number] = [0, 0];

  constructor(
    readonly maps: Host,
    readonly index: number,
    readonly layout: Layout,
  ) {
    const { figures } = layout;
    this.canvas.setAttribute(
      "aria-label",
      `Memory map of ${figures.label}: reserved ${bytes(figures.peak_reserved)} at its peak, ${bytes(figures.wasted)} wasted. Arrow keys move, plus and minus zoom, 0 shows all, Home goes to the peak, N and P go from block to block, Enter keeps a description, comma and full stop go from event to event.`,
    );
    this.element = el(
      "figure",
      { class: "panel", "data-allocator": figures.allocator },
      el(
        "figcaption",
        {},
        el("strong", {}, figures.label),
        el("span", {}, `${bytes(figures.peak_reserved)} reserved, `),
        el("span", { class: figures.allocator === "stalloc" ? "good" : "bad" }, `${bytes(figures.wasted)} wasted`),
      ),
      this.canvas,
    );
    listen(this);
    new ResizeObserver(() => this.refresh()).observe(this.canvas);
  }

  /** The whole picture is out of date (colours, data). */
  invalidate(): void {
    this.painted = [0, 0];
    this.refresh();
  }

  /** Paints what is seen before it returns. */
  paintNow(): void {
    if (this.width <= GUTTER) return;
    const range = this.range();
    this.take(this.maps.paintNow(this.index, range), range, [0, 0]);
  }

  refresh(): void {
    this.draw();
    this.stale = !this.covers();
    void this.request();
  }

  // Whether the picture is of the view's scale and reaches beyond it, so that panning needs no new one yet.
  private covers(): boolean {
    const { picture } = this;
    const { view } = this.maps;
    if (!picture || this.width !== this.painted[0] || this.height !== this.painted[1]) return false;
    const [time, address] = [view.t1 - view.t0, view.a1 - view.a0];
    const near = (a: number, b: number): boolean => Math.abs(a - b) <= 1e-6 * b;
    if (!near(time, picture.span[0]) || !near(address, picture.span[1])) return false;
    const reaches = (low: number, high: number, end: number, from: number, to: number, margin: number): boolean =>
      low <= Math.max(0, from - margin) && high >= Math.min(end, to + margin);
    return reaches(picture.t0, picture.t1, view.end, view.t0, view.t1, time / 8) && reaches(picture.a0, picture.a1, view.height, view.a0, view.a1, 0);
  }

  get width(): number {
    return this.canvas.clientWidth;
  }

  get height(): number {
    return this.canvas.clientHeight;
  }

  private async request(): Promise<void> {
    if (this.busy || !this.stale || this.width <= GUTTER || !this.element.isConnected) return;
    this.busy = true;
    this.stale = false;
    const range = this.range();
    const size: [number, number] = [this.width, this.height];
    const pixels = await this.maps.paint(this.index, range);
    this.busy = false;
    this.take(pixels, range, size);
    this.canvas.dataset.painted = String(Number(this.canvas.dataset.painted ?? 0) + 1);
    void this.request();
  }

  // What to paint for what is seen now.
  private range(): PaintRange {
    const { view } = this.maps;
    // Half a screen more on each side, so that panning shows something at once.
    const time = (view.t1 - view.t0) / 2;
    const address = view.a1 - view.a0 < view.height ? (view.a1 - view.a0) / 4 : 0;
    const t0 = Math.max(0, view.t0 - time);
    const t1 = Math.min(view.end, view.t1 + time);
    const a0 = Math.max(0, view.a0 - address);
    const a1 = Math.min(view.height, view.a1 + address);
    const ratio = Math.min(2, devicePixelRatio);
    const width = Math.round(((this.width - GUTTER) * ratio * (t1 - t0)) / (view.t1 - view.t0));
    const height = Math.round((this.height * ratio * (a1 - a0)) / (view.a1 - view.a0));
    return { t0, t1, a0, a1, span: [view.t1 - view.t0, view.a1 - view.a0], width: Math.max(1, width), height: Math.max(1, height) };
  }

  private take(pixels: ImageData, { t0, t1, a0, a1, span }: PaintRange, size: [number, number]): void {
    const image = el("canvas", { width: pixels.width, height: pixels.height });
    image.getContext("2d")?.putImageData(pixels, 0, 0);
    this.picture = { image, t0, t1, a0, a1, span };
    this.painted = size;
    this.draw();
  }

  x(time: number): number {
    const { t0, t1 } = this.maps.view;
    return GUTTER + ((time - t0) / (t1 - t0)) * (this.width - GUTTER);
  }

  y(address: number): number {
    const { a0, a1 } = this.maps.view;
    return ((a1 - address) / (a1 - a0)) * this.height;
  }

  draw(): void {
    const { width, height, canvas } = this;
    const { view } = this.maps;
    if (!width) return;
    const ratio = devicePixelRatio;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    canvas.dataset.t0 = String(view.t0);
    canvas.dataset.t1 = String(view.t1);
    canvas.dataset.a0 = String(view.a0);
    canvas.dataset.a1 = String(view.a1);
    const g = canvas.getContext("2d");
    if (!g) return;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = colour("paper");
    g.fillRect(0, 0, width, height);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, width - GUTTER, height);
    g.clip();
    const { picture } = this;
    if (picture) {
      g.imageSmoothingEnabled = false;
      g.drawImage(picture.image, this.x(picture.t0), this.y(picture.a1), this.x(picture.t1) - this.x(picture.t0), this.y(picture.a0) - this.y(picture.a1));
    }
    this.drawPeak(g);
    const failed = this.maps.device.figures.out_of_memory;
    if (failed) this.drawMoment(g, failed.time, "out of memory", 18);
    this.drawMarked(g);
    if (view.moment !== null) this.drawMoment(g, view.moment, "chosen", 33, "ink");
    if (view.cursor !== null) {
      g.fillStyle = colour("muted");
      g.fillRect(this.x(view.cursor), 0, 1, height);
    }
    g.restore();
    this.drawAxis(g);
  }

  private drawAxis(g: CanvasRenderingContext2D): void {
    const { a0, a1 } = this.maps.view;
    const span = (a1 - a0) * UNIT;
    const power = 2 ** Math.floor(Math.log2(span / 4));
    g.fillStyle = colour("muted");
    g.font = "12px system-ui";
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (let at = Math.ceil((a0 * UNIT) / power) * power; at <= a1 * UNIT; at += power) {
      const y = Math.min(this.height - 7, Math.max(7, this.y(at / UNIT)));
      g.fillText(at === 0 ? "0" : bytes(at), GUTTER - 8, y);
    }
    g.strokeStyle = colour("rule");
    g.strokeRect(GUTTER - 0.5, 0.5, this.width - GUTTER, this.height - 1);
  }

  // The block that is chosen: a frame around it.
  private drawMarked(g: CanvasRenderingContext2D): void {
    const { marked, device } = this.maps;
    if (!marked) return;
    const { block } = marked;
    const place = this.layout.address[block];
    if (!place) return;
    const left = this.x(device.blocks.alloc[block]);
    const top = this.y(place - 1 + device.blocks.units[block]);
    const wide = Math.max(3, this.x(device.blocks.free[block]) - left);
    const tall = Math.max(3, this.y(place - 1) - top);
    g.strokeStyle = colour("paper");
    g.lineWidth = 4;
    g.strokeRect(left, top, wide, tall);
    g.strokeStyle = colour("ink");
    g.lineWidth = 2;
    g.strokeRect(left, top, wide, tall);
  }

  // A moment that matters, as a broken line with a word next to it.
  private drawMoment(g: CanvasRenderingContext2D, time: number, word: string, top: number, name = "waste-strong"): void {
    const x = this.x(time);
    g.strokeStyle = colour(name);
    g.fillStyle = colour(name);
    g.lineWidth = 1;
    g.setLineDash([4, 3]);
    g.beginPath();
    g.moveTo(x, 0);
    g.lineTo(x, this.height);
    g.stroke();
    g.setLineDash([]);
    g.font = "600 11px system-ui";
    g.textAlign = x > this.width - 100 ? "right" : "left";
    g.textBaseline = "top";
    g.fillText(` ${word} `, x, top);
  }

  // The moment of most reserved memory, and the holes that it has.
  private drawPeak(g: CanvasRenderingContext2D): void {
    const { figures } = this.layout;
    if (!this.maps.showHoles) return;
    g.strokeStyle = colour("waste-strong");
    g.fillStyle = colour("waste-strong");
    for (const hole of figures.holes) {
      const top = this.y((hole.offset + hole.bytes) / UNIT);
      const tall = Math.max(1, this.y(hole.offset / UNIT) - top);
      const left = this.x(hole.begin);
      const wide = Math.max(2, this.x(hole.end) - left);
      g.globalAlpha = 0.35;
      g.fillRect(left, top, wide, tall);
      g.globalAlpha = 1;
      g.lineWidth = 1;
      if (tall > 3) g.strokeRect(left + 0.5, top + 0.5, wide - 1, tall - 1);
    }
    if (!this.maps.device.figures.state_only) this.drawMoment(g, figures.peak_time, "peak", 3);
  }
}
