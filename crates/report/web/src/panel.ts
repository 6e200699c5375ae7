// One allocator's map on a canvas: tiles that a worker painted, and marks on them.

import { GUTTER } from "./curves";
import { el } from "./dom";
import { bytes } from "./format";
import { listen } from "./gestures";
import { type Device, type Layout, UNIT } from "./model";
import { colour } from "./theme";
import { Tiles, type Window } from "./tiles";
import type { View } from "./view";

/** What a panel needs of the maps around it. */
export interface Host {
  readonly view: View;
  readonly device: Device;
  readonly showHoles: boolean;
  paint(layout: number, window: Window): Promise<ImageData>;
  paintNow(layout: number, window: Window): ImageData;
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

/** One allocator's map. */
export class Panel {
  readonly element: HTMLElement;
  readonly canvas = el("canvas", { tabindex: 0, role: "img" });
  /** Size of the canvas, CSS pixels: known without asking, which would lay the page out in the midst of a frame. */
  width = 0;
  height = 0;
  private readonly tiles: Tiles;

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
    this.tiles = new Tiles(maps.view.end, maps.view.height, (window) => maps.paint(index, window), () => this.draw());
    listen(this);
    new ResizeObserver(() => {
      this.measure();
      this.refresh();
    }).observe(this.canvas);
  }

  /** The whole picture is out of date (colours, data). */
  invalidate(): void {
    this.tiles.invalidate();
    this.refresh();
  }

  /** Paints what is seen before it returns. */
  paintNow(): void {
    this.measure();
    if (this.width <= GUTTER) return;
    this.tiles.take(this.window(), (window) => this.maps.paintNow(this.index, window));
    this.draw();
  }

  refresh(): void {
    if (this.width <= GUTTER || !this.element.isConnected) return;
    this.draw();
    this.tiles.look(this.window());
  }

  private measure(): void {
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
  }

  // What is seen, in pixels of the tiles: two for a CSS pixel at most.
  private window(): Window {
    const { view } = this.maps;
    const ratio = Math.min(2, devicePixelRatio);
    const width = Math.max(1, Math.round((this.width - GUTTER) * ratio));
    const height = Math.max(1, Math.round(this.height * ratio));
    const [perTime, perUnit] = [width / view.span[0], height / view.span[1]];
    return { perTime, perUnit, left: Math.round(view.t0 * perTime), top: -Math.round(view.a0 * perUnit) - height, width, height };
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
    const g = canvas.getContext("2d");
    if (!g) return;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = colour("paper");
    g.fillRect(0, 0, width, height);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, width - GUTTER, height);
    g.clip();
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.imageSmoothingEnabled = false;
    const whole = this.tiles.draw(g, this.window(), Math.round(GUTTER * ratio), Math.max(1, ratio / 2));
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
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
    const { dataset } = canvas;
    for (const edge of ["t0", "t1", "a0", "a1"] as const) dataset[edge] = String(view[edge]);
    if (whole) dataset.painted = "yes";
    else delete dataset.painted;
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
