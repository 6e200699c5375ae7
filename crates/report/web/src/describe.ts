// What is known of the place under the pointer, in words.

import { type Child, el } from "./dom";
import { bytes, count, duration, percent } from "./format";
import { type Device, type Layout, SOURCES, UNIT, valueAt } from "./model";

/** The block at a time and address. */
export function find(device: Device, layout: Layout, time: number, address: number): number | null {
  const { alloc, free, units } = device.blocks;
  for (let i = 0; i < alloc.length && alloc[i] <= time; i++) {
    if (free[i] > time && layout.address[i] > 0 && layout.address[i] - 1 <= address && address < layout.address[i] - 1 + units[i]) return i;
  }
  return null;
}

/** What is known of a block, with the first of its call stack. */
export function describe(device: Device, layout: Layout, i: number, frames: number): Child[] {
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
  if (device.modules) facts.push(["module", device.moduleOf(i)]);
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

/** What is known of a place where no block is; null where nothing is held. */
export function describeGap(device: Device, layout: Layout, time: number, address: number): Child[] | null {
  const { segments } = layout;
  for (let i = 0; i < segments.begin.length; i++) {
    const inside = segments.begin[i] <= time && time < segments.end[i] && segments.offset[i] <= address && address < segments.offset[i] + segments.size[i];
    if (!inside) continue;
    const hole = layout.figures.holes.find((one) => one.begin <= time && time < one.end && one.offset <= address * UNIT && address * UNIT < one.offset + one.bytes);
    const reserved = valueAt(layout.reserved, time);
    return [
      el("p", { class: "size" }, hole ? `${bytes(hole.bytes)} hole` : "Reserved but empty"),
      el("p", { class: "muted" }, `in a segment of ${bytes(segments.size[i] * UNIT)}; ${percent(1 - valueAt(device.live, time) / Math.max(1, reserved))} of what is reserved now is empty`),
    ];
  }
  return null;
}
