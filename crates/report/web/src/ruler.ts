// The strip above the curves: steps and phases, on the same time axis.

import { GUTTER } from "./curves";
import { el } from "./dom";
import type { Device } from "./model";
import type { Span } from "./schema";
import { colour, onTheme } from "./theme";
import type { View } from "./view";

const ROW = 18;

export class Ruler {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { role: "img" });
  private readonly rows: { name: string; spans: Span[] }[];

  constructor(
    device: Device,
    private readonly view: View,
  ) {
    const { steps, phases } = device.columns;
    this.rows = [
      { name: "steps", spans: steps },
      { name: "phases", spans: phases },
    ].filter((row) => row.spans.length > 0);
    this.canvas.setAttribute("aria-label", this.rows.map((row) => `${row.spans.length} ${row.name}`).join(", ") || "no steps found");
    this.element = el("div", { class: "ruler", hidden: this.rows.length === 0 }, this.canvas);
    view.onChange(() => this.draw());
    onTheme(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio;
    const height = this.rows.length * (ROW + 2);
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const g = this.canvas.getContext("2d");
    if (!g) return;
    g.scale(ratio, ratio);
    g.font = "12px system-ui";
    g.textBaseline = "middle";
    const { t0, t1 } = this.view;
    const x = (time: number): number => GUTTER + ((time - t0) / (t1 - t0)) * (width - GUTTER);
    this.rows.forEach(({ name, spans }, row) => {
      const top = row * (ROW + 2);
      g.fillStyle = colour("muted");
      g.textAlign = "right";
      g.fillText(name, GUTTER - 8, top + ROW / 2);
      g.textAlign = "left";
      let drawn = -1;
      spans.forEach((span, i) => {
        if (span.end <= t0 || span.begin >= t1) return;
        const left = Math.max(GUTTER, x(span.begin));
        const right = Math.min(width, x(span.end));
        // Narrower than a pixel and next to one already drawn: nothing more to see.
        if (right - drawn < 0.5) return;
        drawn = right;
        g.fillStyle = colour(i % 2 ? "band-b" : "band-a");
        g.fillRect(left, top, Math.max(0.5, right - left - 0.5), ROW);
        const room = right - left - 10;
        if (room > 12 && g.measureText(span.label).width <= room) {
          g.fillStyle = colour("ink");
          g.fillText(span.label, left + 5, top + ROW / 2 + 1);
        }
      });
    });
  }
}
