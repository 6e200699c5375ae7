// Live and reserved bytes over time. uPlot draws; each frame it gets one value or extreme per pixel, however long the
// trace is.

import uPlot from "uplot";
import { el, toggle } from "./dom";
import { bytes, compact, count, duration } from "./format";
import { type Curve, type Device, atOrBefore, valueAt } from "./model";
import { colour, onTheme, palette, stroke } from "./theme";
import type { View } from "./view";

/** Width of the axis at the left of the curves, CSS pixels; maps and the ruler leave the same. */
export const GUTTER = 64;

interface Line {
  key: string;
  label: string;
  curve: Curve;
  colour: string;
  fill?: string;
  width: number;
  dash: number[];
}

/** Largest and smallest value of a curve in each of `n` equal parts of [t0, t1): two rows, interleaved. */
export function sample(curve: Curve, t0: number, t1: number, n: number): Float64Array {
  const out = new Float64Array(n * 2);
  let at = atOrBefore(curve.time, t0);
  let last = at < 0 ? 0 : curve.value[at];
  at++;
  for (let i = 0; i < n; i++) {
    const until = t0 + ((i + 1) / n) * (t1 - t0);
    let high = last;
    let low = last;
    for (; at < curve.time.length && curve.time[at] < until; at++) {
      last = curve.value[at];
      if (last > high) high = last;
      if (last < low) low = last;
    }
    out[2 * i] = high;
    out[2 * i + 1] = low;
  }
  return out;
}

/** The times that `sample`'s values stand at. */
function grid(t0: number, t1: number, n: number): Float64Array {
  const step = (t1 - t0) / n;
  return new Float64Array(n * 2).map((_, i) => t0 + (i >> 1) * step + (i & 1) * 0.5 * step);
}

export class Curves {
  readonly element: HTMLElement;
  private plot: uPlot | null = null;
  private lines: Line[] = [];
  private readonly hidden = new Set<string>();
  private readonly host = el("div", { class: "plot" });
  private readonly legend = el("div", { class: "legend" });
  private readonly readout = el("p", { class: "readout", "aria-live": "off" });
  private byCategory = false;
  private seconds = false;
  private dragged = false;
  private resting = 0;

  constructor(
    private readonly device: Device,
    private readonly view: View,
  ) {
    const categories = device.liveBy.length > 0;
    this.element = el(
      "div",
      { class: "curves" },
      el(
        "div",
        { class: "tools" },
        this.legend,
        el(
          "div",
          { class: "right" },
          categories &&
            toggle("By category", false, (on) => {
              this.byCategory = on;
              this.build();
            }, { id: "by-category" }),
          device.hasClock &&
            toggle("Clock time", false, (on) => {
              this.seconds = on;
              this.plot?.redraw();
            }),
        ),
      ),
      this.host,
      this.readout,
    );
    view.onChange(() => this.update());
    view.onCursor(() => this.showCursor());
    view.onMoment(() => {
      this.plot?.over.setAttribute("aria-valuenow", String(view.moment ?? device.figures.peak_time));
      this.plot?.redraw(false);
    });
    onTheme(() => this.build());
    new ResizeObserver(() => this.resize()).observe(this.host);
    this.build();
  }

  /** How a time is written on axes and in tips. */
  time(event: number): string {
    return this.seconds ? duration(this.device.microseconds(event)) : compact(event);
  }

  private allLines(): Line[] {
    const { device } = this;
    const lines: Line[] = [];
    if (this.byCategory) {
      // Stacked: each category's line is the sum of itself and those below it; drawn from the top down.
      const sum = new Float64Array(device.live.value.length);
      const colours = palette();
      device.liveBy.forEach((values, i) => {
        values.forEach((value, at) => (sum[at] += value));
        if (!values.some((value) => value > 0)) return;
        const curve = { time: device.live.time, value: sum.slice() };
        lines.unshift({ key: `category-${i}`, label: device.page.categories[i], curve, colour: colours[i], fill: colours[i], width: 0, dash: [] });
      });
    } else {
      lines.push({ key: "live", label: "allocated (live)", curve: device.live, colour: colour("live"), fill: colour("live"), width: 0, dash: [] });
    }
    for (const layout of device.layouts) {
      const { allocator, label } = layout.figures;
      lines.push({ key: allocator, label: `${label}, reserved`, curve: layout.reserved, ...stroke(allocator) });
    }
    return lines;
  }

  private build(): void {
    this.lines = this.allLines();
    this.plot?.destroy();
    const top = Math.max(1, ...this.lines.flatMap((line) => line.curve.value.reduce((a, b) => Math.max(a, b), 0)));
    const axis = { stroke: colour("muted"), grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const unit = top >= 2 ** 30 ? 2 ** 30 : 2 ** 20;
    this.plot = new uPlot(
      {
        width: this.host.clientWidth || 900,
        height: this.height(),
        legend: { show: false },
        padding: [8, 0, 0, 0],
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
        scales: { x: { time: false, range: () => [this.view.t0, this.view.t1] }, y: { range: () => [0, top * 1.06] } },
        axes: [
          { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => this.time(tick)) },
          { ...axis, size: GUTTER, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].map((n) => (n * unit) / 10), values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : `${+(tick / unit).toFixed(1)} ${unit === 2 ** 30 ? "GiB" : "MiB"}`)) },
        ],
        series: [{}, ...this.lines.map((line) => ({ label: line.label, stroke: line.colour, width: line.width, dash: line.dash, fill: line.fill, points: { show: false }, show: !this.hidden.has(line.key) }))],
        hooks: {
          draw: [(plot) => this.drawMoments(plot)],
          ready: [
            (plot) => {
              plot.over.tabIndex = 0;
              plot.over.setAttribute("role", "slider");
              plot.over.setAttribute("aria-label", "The moment whose holders are shown: comma and full stop step event by event");
              plot.over.setAttribute("aria-valuemax", String(this.view.end));
              plot.over.setAttribute("aria-valuenow", String(this.view.moment ?? this.device.figures.peak_time));
              plot.over.addEventListener("click", (event) => {
                if (!this.dragged) this.view.at(plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x"));
                this.dragged = false;
              });
              plot.over.addEventListener("keydown", (event) => this.key(event));
            },
          ],
          setSelect: [
            (plot) => {
              const { left, width } = plot.select;
              if (width > 3) this.dragged = true;
              if (width > 3) this.view.times(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
          setCursor: [
            (plot) => {
              const { left } = plot.cursor;
              this.view.point(left === undefined || left < 0 ? null : plot.posToVal(left, "x"));
            },
          ],
        },
      },
      this.data(),
      this.host,
    );
    this.buildLegend();
    this.showCursor();
  }

  private key(event: KeyboardEvent): void {
    const { view } = this;
    const peak = this.device.figures.peak_time;
    const page = Math.max(1, Math.round((view.t1 - view.t0) / 100));
    const actions: Record<string, () => void> = {
      ",": () => view.stepMoment(-1, peak),
      ".": () => view.stepMoment(1, peak),
      ArrowLeft: () => view.stepMoment(-page, peak),
      ArrowRight: () => view.stepMoment(page, peak),
      Home: () => view.at(null),
      "0": () => view.reset(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  }

  // Where the job ran out of memory, and the moment whose holders are shown.
  private drawMoments(plot: uPlot): void {
    const failed = this.device.figures.out_of_memory;
    if (failed) this.drawMoment(plot, failed.time, " out of memory ", "waste-strong");
    if (this.view.moment !== null) this.drawMoment(plot, this.view.moment, " chosen ", "ink");
  }

  private drawMoment(plot: uPlot, time: number, word: string, name: string): void {
    if (time < this.view.t0 || time > this.view.t1) return;
    const { ctx } = plot;
    const { top, height } = plot.bbox;
    const x = Math.round(plot.valToPos(time, "x", true));
    ctx.save();
    ctx.strokeStyle = colour(name);
    ctx.fillStyle = colour(name);
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    ctx.font = `600 ${11 * devicePixelRatio}px system-ui`;
    ctx.textAlign = x > plot.bbox.left + plot.bbox.width / 2 ? "right" : "left";
    ctx.textBaseline = "top";
    ctx.fillText(word, x, top);
    ctx.restore();
  }

  private height(): number {
    return innerHeight < 800 ? 220 : 280;
  }

  private data(): uPlot.AlignedData {
    const { t0, t1 } = this.view;
    const n = Math.max(200, Math.round(((this.host.clientWidth || 900) - GUTTER) * Math.min(2, devicePixelRatio)));
    return [grid(t0, t1, n), ...this.lines.map((line) => sample(line.curve, t0, t1, n))] as unknown as uPlot.AlignedData;
  }

  private update(): void {
    const { t0, t1 } = this.view;
    this.host.dataset.t0 = String(t0);
    this.host.dataset.t1 = String(t1);
    this.plot?.setData(this.data());
    // New text has the page laid out anew, which takes as long as all else in a frame: it waits until the view rests.
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.showCursor(), 100);
  }

  private resize(): void {
    if (!this.plot || this.plot.width === this.host.clientWidth) return;
    this.plot.setSize({ width: this.host.clientWidth, height: this.height() });
    this.update();
  }

  private buildLegend(): void {
    this.legend.replaceChildren(
      ...this.lines.map((line, i) => {
        const swatch = el("span", { class: line.fill ? "swatch area" : "swatch" });
        swatch.style.setProperty("--swatch", line.colour);
        if (line.dash.length) swatch.classList.add("dashed");
        const button = toggle(swatch, !this.hidden.has(line.key), (on) => {
          if (on) this.hidden.delete(line.key);
          else this.hidden.add(line.key);
          this.plot?.setSeries(i + 1, { show: on });
        });
        button.append(line.label);
        return button;
      }),
    );
  }

  // The values under the pointer, wherever it is: over the curves or over a map.
  private showCursor(): void {
    const { cursor, t0, t1 } = this.view;
    if (cursor === null) {
      const span = this.device.hasClock ? ` (${duration(this.device.microseconds(t1) - this.device.microseconds(t0))})` : "";
      this.readout.textContent = `Events ${count(t0)} to ${count(t1)} of ${count(this.view.end)}${span}. Drag over the curves to zoom in, click to see who holds the memory then.`;
      return;
    }
    const step = this.device.step(cursor);
    const parts = [`event ${count(cursor)}`];
    if (this.device.hasClock) parts.push(duration(this.device.microseconds(cursor)));
    if (step) parts.push(step);
    parts.push(`allocated ${bytes(valueAt(this.device.live, cursor))}`);
    for (const layout of this.device.layouts) {
      parts.push(`${layout.figures.label} ${bytes(valueAt(layout.reserved, cursor))}`);
    }
    this.readout.textContent = parts.join("  \u00b7  ");
  }
}
