// Who holds the memory at a moment: a table by call site, module or category, and a flame graph of the call stacks.

import { type Child, choice, el, fill } from "./dom";
import { bytes, count, duration, percent, plural } from "./format";
import { type Device, UNIT } from "./model";
import type { View } from "./view";

type By = "site" | "module" | "category";

const SHOWN = 15;
/** Frames narrower than this share of the graph are not drawn. */
const NARROWEST = 1 / 1000;

/** A frame of the flame graph with all that is allocated under it. */
interface Node {
  label: string;
  /** 0: the user's code, 1: an installed package's, 2: PyTorch's, 3: none of Python. */
  distance: number;
  bytes: number;
  blocks: number;
  children: Map<string, Node>;
}

function node(label: string, distance: number): Node {
  return { label, distance, bytes: 0, blocks: 0, children: new Map() };
}

/** The blocks that live at a time. */
export function liveAt(device: Device, time: number): number[] {
  const { alloc, free, n } = device.blocks;
  const live: number[] = [];
  for (let i = 0; i < n && alloc[i] <= time; i++) if (free[i] > time) live.push(i);
  return live;
}

/** The last parts of a path, with its line and function. */
function short(file: string, line: number, name: string): string {
  return `${file.split(/[\\/]/).slice(-2).join("/")}${line ? `:${line}` : ""} ${name}`;
}

function tree(device: Device, live: number[], all: boolean): Node {
  const root = node("everything", 3);
  const byStack = new Map<number, [number, number]>();
  for (const i of live) {
    const sum = byStack.get(device.blocks.stack[i]) ?? [0, 0];
    sum[0] += device.blocks.units[i] * UNIT;
    sum[1] += 1;
    byStack.set(device.blocks.stack[i], sum);
  }
  for (const [stack, [size, blocks]] of byStack) {
    let at = root;
    root.bytes += size;
    root.blocks += blocks;
    const frames = device.frameList(stack).reverse();
    let path = frames.filter((frame) => all || frame.distance < 2).map((frame): [string, number] => [short(frame.file, frame.line, frame.name), frame.distance]);
    if (path.length === 0) path = [[device.site(stack), 3]];
    for (const [label, distance] of path) {
      let next = at.children.get(label);
      if (!next) at.children.set(label, (next = node(label, distance)));
      next.bytes += size;
      next.blocks += blocks;
      at = next;
    }
  }
  return root;
}

export class Holders {
  readonly element: HTMLElement;
  private by: By = "site";
  private all = false;
  private readonly when = el("p", { class: "lead", "aria-live": "polite" });
  private readonly body = el("div", { class: "scroll" });
  private readonly flame = el("div", { class: "flame", role: "tree", "aria-label": "Flame graph of the call stacks" });
  private readonly flameKey = el("div", { class: "legend" });
  private zoomed: string[] = [];

  constructor(
    private readonly device: Device,
    private readonly view: View,
    private readonly select: (block: number) => void,
  ) {
    const { figures } = device;
    const options: [By, string][] = [["site", "Call site"]];
    if (device.modules) options.push(["module", "Module"]);
    if (device.liveBy.length > 0) options.push(["category", "Category"]);
    const step = (label: string, key: string, by: number): HTMLElement =>
      el("button", { type: "button", title: `${label} (${key})`, "aria-label": label, "data-step": by, click: () => view.stepMoment(by, figures.peak_time) }, by < 0 ? "\u2039" : "\u203a");
    const peak = el("button", { type: "button", id: "at-peak", click: () => view.at(null) }, "Peak");
    const failed = figures.out_of_memory;
    this.element = el(
      "section",
      { id: "who", "aria-labelledby": "who-title" },
      el("h2", { id: "who-title" }, "Who holds the memory"),
      el(
        "div",
        { class: "tools" },
        options.length > 1 ? choice("Group by", options, "site", (value) => {
          this.by = value;
          this.show();
        }) : null,
        el(
          "div",
          { class: "right" },
          el("span", { class: "muted" }, "Moment"),
          el("div", { class: "zoom", role: "group", "aria-label": "Moment" }, step("Previous event", ",", -1), peak, step("Next event", ".", 1)),
          failed && el("button", { type: "button", id: "at-failure", click: () => view.at(failed.time + 1) }, "Out of memory"),
        ),
      ),
      this.when,
      this.body,
      figures.has_stacks &&
        el(
          "div",
          {},
          el("div", { class: "title" }, el("h3", {}, "Flame graph"), el("button", { type: "button", class: "toggle", id: "all-frames", "aria-pressed": "false", click: (event) => {
            this.all = !this.all;
            (event.currentTarget as HTMLElement).setAttribute("aria-pressed", String(this.all));
            this.zoomed = [];
            this.show();
          } }, "PyTorch's frames too")),
          el("p", { class: "muted" }, "The program's outermost line is at the top; below each line is what it called. As wide as the bytes that were allocated under it. Click, or Enter, to look closer."),
          this.flame,
          this.flameKey,
        ),
    );
    const swatch = (kind: string, text: string): Child => el("span", { class: "entry" }, el("span", { class: `swatch area frame-${kind}` }), text);
    fill(this.flameKey, swatch("0", "your code"), swatch("1", "an installed package"), swatch("2", "PyTorch or the interpreter"), swatch("3", "unknown, or no Python line"));
    view.onMoment(() => this.show());
    this.show();
  }

  /** The moment that is shown. */
  private get time(): number {
    return this.view.moment ?? this.device.figures.peak_time;
  }

  private show(): void {
    const { device, view } = this;
    const live = liveAt(device, this.time);
    const sum = live.reduce((bytesSoFar, i) => bytesSoFar + device.blocks.units[i] * UNIT, 0);
    const clock = device.hasClock && !device.figures.state_only ? `, ${duration(device.microseconds(this.time) - device.microseconds(0))} after the start` : "";
    const moment = device.figures.state_only ? "now" : view.moment === null ? `at the peak (event ${count(this.time)}${clock})` : `at event ${count(this.time)}${clock}`;
    const step = device.step(this.time);
    this.when.textContent = `${bytes(sum)} in ${plural(live.length, "block")} ${moment}${step ? `, in ${step}` : ""}. ${device.figures.state_only ? "" : "Click the curves below to look at any other moment."}`;
    this.when.dataset.bytes = String(sum);
    this.when.dataset.time = String(this.time);
    fill(this.body, this.table(live, sum));
    this.drawFlame(tree(device, live, this.all));
  }

  private name(i: number): string {
    const { device } = this;
    if (this.by === "module") return device.moduleOf(i);
    return this.by === "category" ? device.page.categories[device.blocks.category[i]] : device.site(device.blocks.stack[i]);
  }

  private table(live: number[], sum: number): HTMLElement {
    const groups = new Map<string, { bytes: number; blocks: number[] }>();
    // At the peak the figures are those of --json, which leave nothing out.
    for (const i of live) {
      const name = this.name(i);
      const group = groups.get(name) ?? { bytes: 0, blocks: [] };
      group.bytes += this.device.blocks.units[i] * UNIT;
      group.blocks.push(i);
      groups.set(name, group);
    }
    const rows = [...groups].sort((a, b) => b[1].bytes - a[1].bytes || (a[0] < b[0] ? -1 : 1));
    const rest = rows.slice(SHOWN);
    const row = ([name, group]: [string, { bytes: number; blocks: number[] }]): HTMLElement => {
      const bar = el("span", { class: "used" });
      bar.style.width = `${(100 * group.bytes) / Math.max(1, sum)}%`;
      const largest = group.blocks.reduce((a, b) => (this.device.blocks.units[b] > this.device.blocks.units[a] ? b : a));
      return el(
        "tr",
        {},
        el("td", { class: "num", "data-bytes": group.bytes }, bytes(group.bytes)),
        el("td", { class: "num" }, percent(group.bytes / Math.max(1, sum))),
        el("td", { class: "small-bar", "aria-hidden": "true" }, el("div", { class: "bar" }, bar)),
        el("th", { scope: "row" }, el("button", { type: "button", class: "link site", title: "Show its largest block on the map", click: () => this.select(largest) }, name)),
        el("td", { class: "num" }, count(group.blocks.length)),
      );
    };
    return el(
      "table",
      { class: "holders" },
      el("thead", {}, el("tr", {}, ...[">Bytes", ">Share", "", { site: "Call site", module: "Module", category: "Category" }[this.by], ">Blocks"].map((head) => el("th", { scope: "col", class: head.startsWith(">") && "num" }, head.replace(">", ""))))),
      el(
        "tbody",
        {},
        ...rows.slice(0, SHOWN).map(row),
        rest.length > 0 && el("tr", { class: "muted" }, el("td", { class: "num" }, bytes(rest.reduce((all, [, one]) => all + one.bytes, 0))), el("td", {}), el("td", {}), el("td", {}, `in ${plural(rest.length, "more")}`.replace("mores", "more")), el("td", {})),
      ),
    );
  }

  private drawFlame(root: Node): void {
    let shown = root;
    const path: Node[] = [];
    for (const label of this.zoomed) {
      const next = shown.children.get(label);
      if (!next) break;
      path.push(shown);
      shown = next;
    }
    const rows: HTMLElement[] = [];
    const place = (one: Node, depth: number, left: number, width: number, to: string[], level: number): void => {
      const row = (rows[depth] ??= el("div", { class: "flame-row" }));
      const frame = el(
        "button",
        { type: "button", role: "treeitem", class: `frame frame-${one.distance}`, "aria-level": level + 1, title: `${one.label}\n${bytes(one.bytes)}, ${percent(one.bytes / Math.max(1, root.bytes))} of all, ${plural(one.blocks, "block")}`, click: () => {
          this.zoomed = to;
          this.drawFlame(root);
          this.flame.querySelector<HTMLElement>(`[aria-level="${level + 1}"]`)?.focus();
        } },
        el("span", {}, `${one.label}  ${bytes(one.bytes)}`),
      );
      frame.style.left = `${left * 100}%`;
      frame.style.width = `${width * 100}%`;
      row.append(frame);
    };
    path.forEach((one, depth) => place(one, depth, 0, 1, this.zoomed.slice(0, depth), depth));
    const walk = (one: Node, depth: number, left: number, to: string[]): void => {
      const width = one.bytes / Math.max(1, shown.bytes);
      if (width < NARROWEST) return;
      place(one, depth, left, width, to, depth);
      let at = left;
      for (const child of [...one.children.values()].sort((a, b) => b.bytes - a.bytes)) {
        walk(child, depth + 1, at, [...to, child.label]);
        at += child.bytes / Math.max(1, shown.bytes);
      }
    };
    walk(shown, path.length, 0, this.zoomed.slice(0, path.length));
    fill(this.flame, ...rows);
  }
}
