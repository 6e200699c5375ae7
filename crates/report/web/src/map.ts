// The maps: address against time, one panel for each allocator, all on the axes of one view.

import { describe, describeGap, find } from "./describe";
import { choice, el, fill, toggle } from "./dom";
import { type Device, UNIT } from "./model";
import type { Painter } from "./painter";
import { type Host, Panel } from "./panel";
import type { RasterRequest } from "./raster";
import type { Hole } from "./schema";
import { Shades } from "./shading";
import { onTheme, rgb } from "./theme";
import type { Window } from "./tiles";
import type { View } from "./view";

/** Frames of a call stack in a tip, and in a description that is kept. */
const TIP_FRAMES = 5;
const KEPT_FRAMES = 64;

export class Maps implements Host {
  readonly element: HTMLElement;
  showHoles = true;
  marked: { panel: number; block: number } | null = null;
  /** Called when another block is marked. */
  chosen: () => void = () => {};
  private readonly panels: Panel[];
  private readonly shades: Shades;
  private readonly grid = el("div", { class: "panels" });
  private readonly tip = el("div", { class: "tip", role: "status", hidden: true });
  private readonly detail = el("div", { class: "detail", hidden: true, "aria-live": "polite" });

  constructor(
    private readonly deviceKey: string,
    readonly device: Device,
    readonly view: View,
    private readonly painter: Painter,
  ) {
    this.panels = device.layouts.map((layout, i) => new Panel(this, i, layout));
    this.shades = new Shades(device);
    const holes = toggle("Holes at the peak", true, (on) => {
      this.showHoles = on;
      for (const panel of this.panels) panel.draw();
    }, { id: "holes" });
    const colours = choice("Colour blocks by", this.shades.options(), this.shades.chosen, (value) => {
      this.shades.choose(value);
      this.repaint();
    });
    this.element = el(
      "div",
      { class: "maps" },
      el(
        "div",
        { class: "tools" },
        el("div", { class: "chips", role: "group", "aria-label": "Allocators shown" }, ...this.chips()),
        el("div", { class: "right" }, el("span", { class: "muted" }, "Colour"), colours, holes),
      ),
      this.grid,
      this.shades.key,
      this.detail,
      this.tip,
    );
    view.onChange(() => {
      for (const panel of this.shown()) panel.refresh();
    });
    view.onMoment(() => {
      for (const panel of this.shown()) panel.draw();
    });
    view.onCursor(() => {
      for (const panel of this.shown()) panel.draw();
    });
    onTheme((atOnce) => {
      this.shades.buildKey();
      if (atOnce) for (const panel of this.shown()) panel.paintNow();
      else this.repaint();
    });
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

  paint(layout: number, window: Window): Promise<ImageData> {
    return this.painter.paint(this.deviceKey, this.device, this.picture(layout, window));
  }

  paintNow(layout: number, window: Window): ImageData {
    return this.painter.paintNow(this.device, this.picture(layout, window));
  }

  private picture(layout: number, window: Window): RasterRequest {
    const { shades } = this;
    return { layout, ...window, shade: shades.of(layout), palette: shades.palette(), paper: rgb("paper"), waste: rgb("waste-soft") };
  }

  hover(panel: Panel, time: number, address: number, x: number, y: number): void {
    const { device } = this;
    const block = find(device, panel.layout, time, address);
    const text = block === null ? describeGap(device, panel.layout, time, address) : describe(device, panel.layout, block, TIP_FRAMES);
    if (!text) return this.leave();
    fill(this.tip, ...text);
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
    this.choose(panel, find(this.device, panel.layout, time, address));
  }

  /** Marks a block and describes it; null: none. */
  choose(panel: Panel, block: number | null): void {
    this.detail.hidden = block === null;
    this.marked = block === null ? null : { panel: panel.index, block };
    if (block !== null) fill(this.detail, ...describe(this.device, panel.layout, block, KEPT_FRAMES));
    for (const one of this.shown()) one.draw();
    this.chosen();
  }

  /** Goes to the next or the one before of the blocks that are seen, in the order of time. */
  stepBlock(panel: Panel, by: number): void {
    const { blocks } = this.device;
    const { view } = this;
    const seen = (i: number): boolean => {
      const place = panel.layout.address[i] - 1;
      return place >= 0 && blocks.alloc[i] < view.t1 && blocks.free[i] > view.t0 && place < view.a1 && place + blocks.units[i] > view.a0;
    };
    let at = this.marked?.block ?? (by > 0 ? -1 : blocks.n);
    do at += by;
    while (at >= 0 && at < blocks.n && !seen(at));
    if (at >= 0 && at < blocks.n) this.choose(panel, at);
  }

  /** Keeps the description of the marked block in view; where none is marked, of the one in the middle. */
  keep(panel: Panel): void {
    const { view } = this;
    if (!this.marked) this.pin(panel, (view.t0 + view.t1) / 2, (view.a0 + view.a1) / 2);
    if (this.marked) this.detail.scrollIntoView({ block: "nearest" });
  }

  /** Shows a block on the first map that has it, with what surrounds it. */
  showBlock(block: number, map?: string): void {
    const { blocks } = this.device;
    const has = (one: Panel): boolean => one.layout.address[block] > 0;
    const panel = this.panels.find((one) => one.layout.figures.allocator === map && has(one)) ?? this.shown().find(has) ?? this.panels.find(has);
    if (!panel) return;
    if (!panel.element.isConnected) this.element.querySelector<HTMLButtonElement>(`[data-chip="${panel.layout.figures.allocator}"]`)?.click();
    const around = Math.max(blocks.free[block] - blocks.alloc[block], this.view.end / 200);
    this.view.times(blocks.alloc[block] - around, blocks.free[block] + around);
    this.view.addresses(0, this.view.height);
    this.choose(panel, block);
    panel.canvas.scrollIntoView({ block: "center" });
    panel.canvas.focus({ preventScroll: true });
  }

  /** Marks a block without moving anything, as a link does. */
  mark(block: number, map?: string): void {
    const panel = this.panels.find((one) => one.layout.figures.allocator === map) ?? this.panels[0];
    if (panel && block < this.device.blocks.n) this.choose(panel, block);
  }

  /** The name of the map that the marked block is on. */
  get markedMap(): string | undefined {
    return this.marked ? this.panels[this.marked.panel]?.layout.figures.allocator : undefined;
  }

  private shown(): Panel[] {
    return this.panels.filter((panel) => panel.element.isConnected);
  }

  private repaint(): void {
    for (const panel of this.panels) panel.invalidate();
  }

  // A button for each allocator; at first what happened (or PyTorch's) and the plan are shown.
  private chips(): HTMLElement[] {
    const names = this.panels.map((panel) => panel.layout.figures.allocator);
    const first = names.includes("actual") ? "actual" : names[0];
    const on = new Set([first, "stalloc"]);
    const place = (): void => {
      const panels = this.panels.filter((panel) => on.has(panel.layout.figures.allocator));
      this.grid.replaceChildren(...panels.map((panel) => panel.element));
    };
    place();
    return this.panels.map((panel) => {
      const { allocator, label } = panel.layout.figures;
      return toggle(label, on.has(allocator), (pressed) => {
        if (pressed) on.add(allocator);
        else on.delete(allocator);
        place();
      }, { "data-chip": allocator });
    });
  }
}
