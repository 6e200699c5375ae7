// All devices of all inputs in one table, where there are several: which of them is in trouble, and the way to each.

import { baseline } from "./answer";
import { type Child, el, table } from "./dom";
import { bytes } from "./format";
import type { DeviceFigures, Figures } from "./schema";

/** One device of one input, as the picker names it. */
export interface Choice {
  /** Index of the input, a slash, index of the device in it. */
  key: string;
  label: string;
  figures: DeviceFigures;
}

/** Every device, in order. */
export function choices(figures: Figures): Choice[] {
  return figures.inputs.flatMap((input, i) =>
    input.devices.map((device, d) => ({
      key: `${i}/${d}`,
      label: input.devices.length > 1 ? `${input.name}, ${device.name}` : input.name,
      figures: device,
    })),
  );
}

/** The device to begin with: the first that ran out of memory, else the fullest of the first input. */
export function first(all: Choice[]): Choice | undefined {
  const held = (one: Choice): number => Math.max(one.figures.peak_allocated, one.figures.allocators[0]?.peak_reserved ?? 0);
  const own = all.filter((one) => one.key.startsWith("0/"));
  return all.find((one) => one.figures.out_of_memory) ?? own.reduce((a, b) => (held(b) > held(a) ? b : a), own[0]);
}

/** The table; nothing where there is only one device. */
export function overview(all: Choice[], shown: string, show: (key: string) => void): Child {
  if (all.length < 2) return null;
  const rows = all.map((one) => {
    const { figures } = one;
    const before = baseline(figures);
    const plan = figures.allocators.find((each) => each.allocator === "stalloc");
    return [
      el("button", { type: "button", class: "link", "aria-current": one.key === shown && "true", click: () => show(one.key) }, one.label),
      bytes(figures.peak_allocated),
      before ? bytes(before.peak_reserved) : "\u2013",
      before ? el("span", { class: "bad" }, bytes(before.wasted)) : "\u2013",
      plan ? bytes(plan.peak_reserved) : "\u2013",
      figures.out_of_memory ? el("strong", { class: "bad" }, "ran out of memory") : "",
    ];
  });
  return el(
    "div",
    { class: "overview" },
    el("h3", {}, "All devices"),
    el("div", { class: "scroll" }, table("devices", ["Device", ">Allocated", ">Reserved", ">Wasted", ">Reserved with a plan", ""], rows)),
  );
}
