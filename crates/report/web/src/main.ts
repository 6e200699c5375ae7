// Puts the page together.

import * as address from "./address";
import { answer } from "./answer";
import { compare } from "./compare";
import { Curves } from "./curves";
import { Store } from "./data";
import { el, fill } from "./dom";
import { duration, plural } from "./format";
import { Holders } from "./holders";
import { categories, stepKinds } from "./kinds";
import { Maps } from "./map";
import { Device } from "./model";
import { type Choice, choices, first, overview } from "./overview";
import { Painter } from "./painter";
import { Ruler } from "./ruler";
import type { DeviceFigures, InputFigures } from "./schema";
import { Search } from "./search";
import { View } from "./view";
import { why } from "./why";

function facts(input: InputFigures, figures: DeviceFigures, device: Device): string {
  const parts = [input.format];
  if (figures.device_name) parts.push(figures.device_name);
  if (figures.state_only) parts.push("a state without a history");
  else parts.push(plural(figures.events, "event"), plural(figures.requests, "request"));
  if (figures.steps > 0) parts.push(plural(figures.steps, "step"));
  if (device.hasClock && !figures.state_only) parts.push(duration(device.microseconds(device.end) - device.microseconds(0)));
  return parts.join(" \u00b7 ");
}

class PageView {
  private readonly painter = new Painter();
  private readonly devices = new Map<string, Device>();
  private readonly content = el("div");
  private readonly head = el("p", { class: "facts" });
  private readonly finder = el("div", { class: "finder" });
  private readonly all: Choice[];
  private shown: address.Shown = {};
  // The address is not written while it is being read.
  private restoring = false;

  constructor(
    private readonly store: Store,
    private readonly root: HTMLElement,
  ) {
    this.all = choices(store.page.figures);
  }

  start(): void {
    const { figures } = this.store.page;
    const wanted = address.read(location.hash);
    const begin = this.all.find((one) => one.key === wanted.device) ?? first(this.all);
    const options = this.all.map((one) => el("option", { value: one.key, selected: one === begin }, one.label));
    const picker =
      options.length > 1
        ? el("select", { id: "picker", "aria-label": "Input and device", change: (event) => this.show((event.target as HTMLSelectElement).value) }, ...options)
        : el("span", { class: "name" }, figures.inputs[0]?.name ?? "");
    const links = [["answer", "Answer"], ["who", "Who"], ["time", "Over time"], ["map", "Map"], ["why", "Why"], ...(figures.comparisons.length > 0 ? [["compare", "Compare"]] : [])];
    const comparisons = figures.comparisons.length > 0 && el("section", { id: "compare", "aria-labelledby": "compare-title" }, el("h2", { id: "compare-title" }, "Compared"), ...figures.comparisons.map((one) => compare(figures, one)));
    this.root.replaceChildren(
      el("header", {}, el("div", { class: "masthead" }, el("span", { class: "brand" }, "stalloc"), picker, this.finder, el("nav", { "aria-label": "Sections" }, ...links.map(([id, text]) => el("a", { href: `#${id}`, click: (event) => this.go(event, id) }, text)))), this.head),
      el("main", {}, this.content, comparisons),
      this.footer(),
    );
    if (begin) this.show(begin.key, wanted);
    else this.content.append(el("p", {}, "The input holds no device with memory in use."));
  }

  /** Shows another device, as the picker does. */
  private pick(key: string): void {
    const picker = this.root.querySelector<HTMLSelectElement>("#picker");
    if (picker) picker.value = key;
    this.show(key);
    scrollTo({ top: 0 });
  }

  private go(event: Event, id: string): void {
    event.preventDefault();
    document.getElementById(id)?.scrollIntoView();
    this.put({ section: id });
  }

  private put(change: address.Shown): void {
    if (this.restoring) return;
    Object.assign(this.shown, change);
    address.put(this.shown);
  }

  private show(key: string, wanted: address.Shown = {}): void {
    const [i, d] = key.split("/").map(Number);
    const { page } = this.store;
    const input = page.figures.inputs[i];
    const figures = input.devices[d];
    let device = this.devices.get(key);
    if (!device) {
      device = new Device(this.store, page, i, d);
      this.devices.set(key, device);
    }
    this.head.textContent = facts(input, figures, device);
    const height = Math.max(4, ...device.layouts.map((layout) => layout.height)) * 1.02;
    const view = new View(device.end, height);
    const curves = figures.state_only ? null : new Curves(device, view);
    const maps = new Maps(key, device, view, this.painter);
    const holders = new Holders(device, view, (block) => maps.showBlock(block));
    const search = new Search(device, (block) => maps.showBlock(block), (text) => this.put({ search: text }));
    fill(this.finder, search.element);
    this.shown = { device: this.all.length > 1 ? key : undefined };
    const tools = el(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      el("button", { type: "button", title: "Zoom in", "aria-label": "Zoom in", click: () => view.zoomTime((view.t0 + view.t1) / 2, 0.5) }, "+"),
      el("button", { type: "button", title: "Zoom out", "aria-label": "Zoom out", click: () => view.zoomTime((view.t0 + view.t1) / 2, 2) }, "\u2212"),
      el("button", { type: "button", id: "reset", click: () => view.reset() }, "Show all"),
    );
    const omitted = device.columns.omitted;
    const sections = [
      answer(figures),
      overview(this.all, key, (other) => this.pick(other)),
      ...input.warnings.map((warning) => el("p", { class: "note" }, warning)),
      holders.element,
      el(
        "section",
        { id: "time", "aria-labelledby": "time-title" },
        el("h2", { id: "time-title" }, "Over time"),
        figures.state_only ? el("p", {}, "This input is the state of one moment; it has no history to draw.") : el("div", {}, new Ruler(device, view).element, curves?.element ?? ""),
        el("div", { class: "halves" }, categories(figures), stepKinds(figures)),
      ),
      el(
        "section",
        { id: "map", "aria-labelledby": "map-title" },
        el("div", { class: "title" }, el("h2", { id: "map-title" }, "Map"), tools),
        el("p", { class: "muted" }, "Every block is a rectangle: when it lived, from left to right, and where it lay, from the bottom up. Drag to move, Ctrl and wheel to zoom time, Alt and wheel to zoom addresses, click to keep a description."),
        maps.element,
        omitted > 0 && el("p", { class: "muted" }, `${plural(omitted, "request")}, the smallest and shortest-lived, ${omitted === 1 ? "is" : "are"} left out of the map; the curves and figures count them.`),
      ),
      why(figures, (allocator, hole) => maps.showHole(allocator, hole)),
    ];
    fill(this.content, ...sections);
    this.restoring = true;
    if (wanted.times) view.times(...wanted.times);
    else view.times(0, view.end);
    if (wanted.addresses) view.addresses(...wanted.addresses);
    else view.addresses(0, view.height);
    if (wanted.moment !== undefined) view.at(wanted.moment);
    if (wanted.block !== undefined) maps.mark(wanted.block, wanted.map);
    if (wanted.search) search.look(wanted.search);
    if (wanted.section) document.getElementById(wanted.section)?.scrollIntoView();
    this.shown = { ...wanted, ...this.shown };
    this.restoring = false;
    // Writing the address is slow in some browsers: not in the midst of panning.
    let timer = 0;
    view.onChange(() => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const whole = view.t0 <= 0 && view.t1 >= view.end;
        const high = view.a0 <= 0 && view.a1 >= view.height;
        this.put({ times: whole ? undefined : [view.t0, view.t1], addresses: high ? undefined : [view.a0, view.a1] });
      }, 200);
    });
    view.onMoment(() => this.put({ moment: view.moment ?? undefined }));
    maps.chosen = () => this.put({ block: maps.marked?.block, map: maps.markedMap });
  }

  private footer(): HTMLElement {
    return el(
      "footer",
      {},
      el("p", {}, "Allocated: live bytes, each block rounded up to 512 as PyTorch counts. Reserved: device memory held. Efficiency: peak allocated over peak reserved. Wasted: peak reserved less peak allocated. 1 GiB is 2", el("sup", {}, "30"), " bytes."),
      el("p", {}, "On a map that has the focus: arrows move, + and \u2212 zoom time, Page Up and Page Down zoom addresses, 0 shows all, Home goes to the peak, N and P go from block to block, Enter or Space keeps a description, comma and full stop go from event to event. The address of this page says what is shown: copy it to come back."),
      el("p", {}, `stalloc ${this.store.page.figures.version}`),
    );
  }
}

async function main(): Promise<void> {
  const root = document.getElementById("page");
  const data = document.getElementById("data");
  if (!root || !data) return;
  try {
    const store = await Store.open(data.textContent ?? "");
    data.remove();
    new PageView(store, root).start();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    root.append(el("p", { class: "note" }, `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}. It needs a browser from 2023 or later.`));
    throw error;
  }
}

void main();
