// The maps: address against time, one panel for each allocator, all on the axes of one view.

import { GUTTER } from "./curves";
import { type Child, choice, el, toggle } from "./dom";
import { bytes, count, duration, percent } from "./format";
import { type Device, type Layout, SOURCES, UNIT, valueAt } from "./model";
import type { Painter } from "./painter";
import type { Hole } from "./schema";
import { type Rgb, colour, onTheme, palette, rgb } from "./theme";
import type { View } from "./view";

type Shading = "source" | "category" | "stream" | "site" | "size";

interface Picture {
  image: HTMLCanvasElement;
  t0: number;
  t1: number;
  a0: number;
  a1: number;
  /** Width, in time and addresses, of the view that it was painted for. */
  span: [number, number];
}

/** One allocator's map. */
class Panel {
  readonly element: HTMLElement;
  readonly canvas = el("canvas", { tabindex: 0, role: "img" });
  private picture: Picture | null = null;
  private busy = false;
  private stale = true;
  private painted: [number, number] = [0, 0];

  constructor(
    private readonly maps: Maps,
    readonly index: number,
    readonly layout: Layout,
  ) {
    const { figures } = layout;
    this.canvas.setAttribute(
      "aria-label",
      `Memory map of ${figures.label}: reserved ${bytes(figures.peak_reserved)} at its peak, ${bytes(figures.wasted)} wasted. Arrow keys move, plus and minus zoom, 0 shows all, Home goes to the peak.`,
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
    this.listen();
    new ResizeObserver(() => this.refresh()).observe(this.canvas);
  }

  /** The whole picture is out of date (colours, data). */
  invalidate(): void {
    this.picture = null;
    this.refresh();
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

  private get width(): number {
    return this.canvas.clientWidth;
  }

  private get height(): number {
    return this.canvas.clientHeight;
  }

  private async request(): Promise<void> {
    if (this.busy || !this.stale || this.width <= GUTTER || !this.element.isConnected) return;
    this.busy = true;
    this.stale = false;
    const { view } = this.maps;
    // Half a screen more on each side, so that panning shows something at once.
    const time = (view.t1 - view.t0) / 2;
    const address = view.a1 - view.a0 < view.height ? (view.a1 - view.a0) / 4 : 0;
    const t0 = Math.max(0, view.t0 - time);
    const t1 = Math.min(view.end, view.t1 + time);
    const a0 = Math.max(0, view.a0 - address);
    const a1 = Math.min(view.height, view.a1 + address);
    const span: [number, number] = [view.t1 - view.t0, view.a1 - view.a0];
    const size: [number, number] = [this.width, this.height];
    const ratio = Math.min(2, devicePixelRatio);
    const width = Math.round(((this.width - GUTTER) * ratio * (t1 - t0)) / (view.t1 - view.t0));
    const height = Math.round((this.height * ratio * (a1 - a0)) / (view.a1 - view.a0));
    const pixels = await this.maps.paint(this.index, { t0, t1, a0, a1, width: Math.max(1, width), height: Math.max(1, height) });
    this.busy = false;
    const image = el("canvas", { width: pixels.width, height: pixels.height });
    image.getContext("2d")?.putImageData(pixels, 0, 0);
    this.picture = { image, t0, t1, a0, a1, span };
    this.painted = size;
    this.canvas.dataset.painted = String(Number(this.canvas.dataset.painted ?? 0) + 1);
    this.draw();
    void this.request();
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
    g.setLineDash([4, 3]);
    g.beginPath();
    g.moveTo(this.x(figures.peak_time), 0);
    g.lineTo(this.x(figures.peak_time), this.height);
    g.stroke();
    g.setLineDash([]);
    g.font = "600 11px system-ui";
    g.textAlign = this.x(figures.peak_time) > this.width - 60 ? "right" : "left";
    g.textBaseline = "top";
    g.fillText(" peak ", this.x(figures.peak_time), 3);
  }

  /** Time and address under a point of the canvas. */
  private locate(event: MouseEvent): { time: number; address: number } {
    const { view } = this.maps;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - GUTTER;
    const y = event.clientY - box.top;
    return {
      time: view.t0 + (x / (this.width - GUTTER)) * (view.t1 - view.t0),
      address: view.a1 - (y / this.height) * (view.a1 - view.a0),
    };
  }

  private listen(): void {
    const { canvas } = this;
    const { view } = this.maps;
    let drag: { x: number; y: number; t0: number; a0: number; moved: boolean } | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, y: event.clientY, t0: view.t0, a0: view.a0, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      const at = this.locate(event);
      if (!drag) {
        view.point(at.time >= view.t0 ? at.time : null);
        this.maps.hover(this, at.time, at.address, event.clientX, event.clientY);
        return;
      }
      const dx = event.clientX - drag.x;
      const dy = event.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag.moved = true;
      this.maps.leave();
      const time = drag.t0 - (dx / (this.width - GUTTER)) * (view.t1 - view.t0);
      const address = drag.a0 + (dy / this.height) * (view.a1 - view.a0);
      view.times(time, time + (view.t1 - view.t0));
      view.addresses(address, address + (view.a1 - view.a0));
    });
    canvas.addEventListener("pointerup", (event) => {
      const at = this.locate(event);
      if (drag && !drag.moved) this.maps.pin(this, at.time, at.address);
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    canvas.addEventListener("pointerleave", () => {
      view.point(null);
      this.maps.leave();
    });
    canvas.addEventListener("dblclick", (event) => {
      const at = this.locate(event);
      view.zoomTime(at.time, event.shiftKey ? 2 : 0.5);
      view.zoomAddress(at.address, event.shiftKey ? 2 : 0.5);
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        const at = this.locate(event);
        const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
        // A plain wheel scrolls the page; with Ctrl (or a pinch) it zooms time, with Alt addresses.
        if (event.ctrlKey || event.metaKey) view.zoomTime(at.time, Math.exp(event.deltaY * 0.004));
        else if (event.altKey) view.zoomAddress(at.address, Math.exp(event.deltaY * 0.004));
        else if (sideways) view.pan(event.deltaX / this.width, 0);
        else return;
        event.preventDefault();
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey) return;
      const middle = (view.t0 + view.t1) / 2;
      const level = (view.a0 + view.a1) / 2;
      const actions: Record<string, () => void> = {
        ArrowLeft: () => view.pan(-0.1, 0),
        ArrowRight: () => view.pan(0.1, 0),
        ArrowUp: () => view.pan(0, 0.1),
        ArrowDown: () => view.pan(0, -0.1),
        "+": () => view.zoomTime(middle, 0.5),
        "=": () => view.zoomTime(middle, 0.5),
        "-": () => view.zoomTime(middle, 2),
        PageUp: () => view.zoomAddress(level, 0.5),
        PageDown: () => view.zoomAddress(level, 2),
        "0": () => view.reset(),
        Home: () => this.maps.show(this.layout.figures.peak_time),
      };
      const action = actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }
}

export class Maps {
  readonly element: HTMLElement;
  showHoles = true;
  private readonly panels: Panel[];
  private readonly grid = el("div", { class: "panels" });
  private readonly tip = el("div", { class: "tip", role: "status", hidden: true });
  private readonly detail = el("div", { class: "detail", hidden: true });
  private readonly key = el("div", { class: "legend" });
  private shading: Shading = "source";
  private readonly shades = new Map<string, Uint8Array>();

  constructor(
    private readonly deviceKey: string,
    readonly device: Device,
    readonly view: View,
    private readonly painter: Painter,
  ) {
    this.panels = device.layouts.map((layout, i) => new Panel(this, i, layout));
    const shadings: [Shading, string][] = [["source", "Kind"]];
    if (device.liveBy.length > 0) shadings.push(["category", "Category"]);
    shadings.push(["size", "Size"]);
    if (device.blocks.stream.some((stream) => stream > 0)) shadings.push(["stream", "Stream"]);
    if (device.figures.has_stacks) shadings.push(["site", "Call site"]);
    this.element = el(
      "div",
      { class: "maps" },
      el(
        "div",
        { class: "tools" },
        el("div", { class: "chips", role: "group", "aria-label": "Allocators shown" }, ...this.chips()),
        el(
          "div",
          { class: "right" },
          el("span", { class: "muted" }, "Colour"),
          choice("Colour blocks by", shadings, this.shading, (value) => {
            this.shading = value;
            this.recolour();
          }),
          toggle("Holes at the peak", true, (on) => {
            this.showHoles = on;
            for (const panel of this.panels) panel.draw();
          }, { id: "holes" }),
        ),
      ),
      this.grid,
      this.key,
      this.detail,
      this.tip,
    );
    view.onChange(() => {
      for (const panel of this.shown()) panel.refresh();
    });
    view.onCursor(() => {
      for (const panel of this.shown()) panel.draw();
    });
    onTheme(() => this.recolour());
    this.buildKey();
  }

  /** Shows some range around a time, of a tenth of the trace. */
  show(time: number): void {
    const width = this.view.end / 10;
    this.view.times(time - width / 2, time + width / 2);
    this.view.addresses(0, this.view.height);
  }

  /** Shows a hole with what surrounds it, in the panel of its allocator. */
  showHole(allocator: string, hole: Hole): void {
    const panel = this.panels.find((one) => one.layout.figures.allocator === allocator);
    if (!panel) return;
    if (!panel.element.isConnected) this.element.querySelector<HTMLButtonElement>(`[data-chip="${allocator}"]`)?.click();
    const around = Math.max(hole.end - hole.begin, this.view.end / 200);
    this.view.times(hole.begin - around, hole.end + around);
    const tall = (hole.bytes / UNIT) * 4;
    const middle = (hole.offset + hole.bytes / 2) / UNIT;
    this.view.addresses(middle - tall, middle + tall);
    panel.canvas.scrollIntoView({ block: "center" });
    panel.canvas.focus({ preventScroll: true });
  }

  paint(layout: number, range: { t0: number; t1: number; a0: number; a1: number; width: number; height: number }): Promise<ImageData> {
    const paletteOf: Rgb[] = this.colours().map((one) => rgb(one));
    return this.painter.paint(this.deviceKey, this.device, {
      layout,
      ...range,
      shade: this.shade(layout),
      palette: paletteOf,
      paper: rgb("paper"),
      waste: rgb("waste-soft"),
    });
  }

  hover(panel: Panel, time: number, address: number, x: number, y: number): void {
    const block = this.find(panel.layout, time, address);
    const text = block === null ? this.describeGap(panel.layout, time, address) : this.describe(panel.layout, block, 5);
    if (!text) return this.leave();
    this.tip.replaceChildren(...text.filter((child): child is Node => child instanceof Node));
    this.tip.hidden = false;
    const box = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(8, Math.min(x + 16, innerWidth - box.width - 8))}px`;
    this.tip.style.top = `${y + 20 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 20}px`;
  }

  leave(): void {
    this.tip.hidden = true;
  }

  /** Keeps a block's description on the page, with its whole call stack. */
  pin(panel: Panel, time: number, address: number): void {
    const block = this.find(panel.layout, time, address);
    this.detail.hidden = block === null;
    if (block !== null) this.detail.replaceChildren(...this.describe(panel.layout, block, 64).filter((child): child is Node => child instanceof Node));
  }

  private shown(): Panel[] {
    return this.panels.filter((panel) => panel.element.isConnected);
  }

  private chips(): HTMLElement[] {
    const names = this.panels.map((panel) => panel.layout.figures.allocator);
    const first = names.includes("actual") ? "actual" : names[0];
    const initial = new Set([first, "stalloc"]);
    const place = (): void => {
      this.grid.replaceChildren(...this.panels.filter((panel) => initial.has(panel.layout.figures.allocator)).map((panel) => panel.element));
      this.grid.dataset.count = String(this.grid.childElementCount);
    };
    place();
    return this.panels.map((panel) => {
      const { allocator, label } = panel.layout.figures;
      return toggle(label, initial.has(allocator), (on) => {
        if (on) initial.add(allocator);
        else initial.delete(allocator);
        place();
      }, { "data-chip": allocator });
    });
  }

  private recolour(): void {
    this.shades.clear();
    this.buildKey();
    for (const panel of this.panels) panel.invalidate();
  }

  // Names of custom properties; a block's shade is an index into them.
  private colours(): string[] {
    if (this.shading === "source") return ["block", "plan", "dynamic", "fallback"];
    return [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `class-${i}`);
  }

  private shade(layout: number): Uint8Array {
    const key = this.shading === "source" ? `source-${layout}` : this.shading;
    const known = this.shades.get(key);
    if (known) return known;
    const { blocks, layouts } = this.device;
    const from: Record<Shading, (i: number) => number> = {
      source: (i) => layouts[layout].source?.[i] ?? 0,
      category: (i) => blocks.category[i] % 8,
      stream: (i) => blocks.stream[i] % 8,
      site: (i) => (blocks.stack[i] * 2654435761) >>> 29,
      size: (i) => sizeClass(blocks.units[i] * UNIT),
    };
    const shade = new Uint8Array(blocks.n).map((_, i) => from[this.shading](i));
    this.shades.set(key, shade);
    return shade;
  }

  private buildKey(): void {
    const colours = this.shading === "source" ? this.colours().map(colour) : palette();
    const names: Record<Shading, string[]> = {
      source: this.device.layouts.some((layout) => layout.source) ? SOURCES : SOURCES.slice(0, 1),
      category: this.device.page.categories,
      stream: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `stream ${i}`).slice(0, 1 + this.device.blocks.stream.reduce((a, b) => Math.max(a, b), 0)),
      site: [],
      size: SIZE_CLASSES,
    };
    const entry = (name: string, swatchColour: string): Child => {
      const swatch = el("span", { class: "swatch area" });
      swatch.style.setProperty("--swatch", swatchColour);
      return el("span", { class: "entry" }, swatch, name);
    };
    this.key.replaceChildren(
      ...names[this.shading].map((name, i) => entry(name, colours[i])).filter((child): child is Node => child instanceof Node),
      el("span", { class: "entry" }, this.shading === "site" ? "one of eight colours for each call site" : ""),
      entry("reserved but empty", colour("waste-soft")) as Node,
    );
  }

  private find(layout: Layout, time: number, address: number): number | null {
    const { alloc, free, units } = this.device.blocks;
    for (let i = 0; i < alloc.length && alloc[i] <= time; i++) {
      if (free[i] > time && layout.address[i] > 0 && layout.address[i] - 1 <= address && address < layout.address[i] - 1 + units[i]) return i;
    }
    return null;
  }

  private describe(layout: Layout, i: number, frames: number): Child[] {
    const { device } = this;
    const { blocks } = device;
    const { alloc, free, stack, category, stream } = blocks;
    const asked = device.requested[blocks.size[i]];
    const forever = free[i] >= device.end;
    const clock = device.hasClock ? `, ${duration(device.microseconds(free[i]) - device.microseconds(alloc[i]))}` : "";
    const steps = [device.step(alloc[i]), forever ? null : device.step(free[i])].filter(Boolean);
    const facts: [string, string][] = [
      ["lifetime", `events ${count(alloc[i])} to ${forever ? "the end" : count(free[i])} (${count(free[i] - alloc[i])}${clock})${steps.length ? `, ${[...new Set(steps)].join(" to ")}` : ""}`],
      ["stream", String(device.columns.streams[stream[i]] ?? stream[i])],
      ["place", `${bytes((layout.address[i] - 1) * UNIT)} up the map${layout.source ? `, ${SOURCES[layout.source[i]]}` : ""}`],
    ];
    if (device.liveBy.length > 0) facts.push(["category", device.page.categories[category[i]]]);
    const lines = device.stack(stack[i]);
    return [
      el("p", { class: "size" }, bytes(blocks.units[i] * UNIT), el("span", {}, ` ${count(asked)} bytes asked for`)),
      el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      lines.length > 0
        ? el("ol", { class: "stack" }, ...lines.slice(0, frames).map((line) => el("li", {}, line)), lines.length > frames && el("li", { class: "muted" }, `${lines.length - frames} more; click the block to keep all of them`))
        : el("p", { class: "muted" }, "No call stack was recorded."),
    ];
  }

  private describeGap(layout: Layout, time: number, address: number): Child[] | null {
    const { segments } = layout;
    for (let i = 0; i < segments.begin.length; i++) {
      const inside = segments.begin[i] <= time && time < segments.end[i] && segments.offset[i] <= address && address < segments.offset[i] + segments.size[i];
      if (!inside) continue;
      const hole = layout.figures.holes.find((one) => one.begin <= time && time < one.end && one.offset <= address * UNIT && address * UNIT < one.offset + one.bytes);
      const reserved = valueAt(layout.reserved, time);
      return [
        el("p", { class: "size" }, hole ? `${bytes(hole.bytes)} hole` : "Reserved but empty"),
        el("p", { class: "muted" }, `in a segment of ${bytes(segments.size[i] * UNIT)}; ${percent(1 - valueAt(this.device.live, time) / Math.max(1, reserved))} of what is reserved now is empty`),
      ];
    }
    return null;
  }
}

const SIZE_CLASSES = ["up to 1 MiB", "to 4 MiB", "to 16 MiB", "to 64 MiB", "to 256 MiB", "to 1 GiB", "to 4 GiB", "over 4 GiB"];

function sizeClass(size: number): number {
  return Math.max(0, Math.min(7, Math.ceil(Math.log2(size / 2 ** 20) / 2)));
}
