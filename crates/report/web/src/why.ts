// Why memory is wasted: the holes at the moment of most reserved memory, what pins them, and what keeps the plan from 100 %.

import { baseline } from "./answer";
import { type Child, choice, el, table } from "./dom";
import { bytes, count, percent, plural } from "./format";
import type { AllocatorFigures, DeviceFigures, Hole, Neighbour } from "./schema";

const SHOWN = 12;

function neighbour(one: Neighbour | null, side: string): Child {
  if (!one) return el("span", { class: "muted" }, `${side} of the segment`);
  return el("span", {}, el("span", { class: "site" }, one.site), el("span", { class: "muted" }, ` ${bytes(one.size)}`));
}

function holes(one: AllocatorFigures, show: (hole: Hole) => void): Child {
  if (one.holes.length === 0) return el("p", {}, "There are no holes at the peak.");
  const rows = one.holes.slice(0, SHOWN).map((hole, i) => [
    el("button", { type: "button", class: "link", click: () => show(hole), "aria-label": `Show hole ${i + 1} on the map` }, `${i + 1}`),
    el("span", { "data-bytes": hole.bytes }, bytes(hole.bytes)),
    percent(hole.bytes / Math.max(1, one.holes_bytes)),
    neighbour(hole.below, "start"),
    neighbour(hole.above, "end"),
  ]);
  return el("div", { class: "scroll" }, table("holes", ["Hole", ">Bytes", ">Of all holes", "Block below", "Block above"], rows));
}

function pins(one: AllocatorFigures): Child {
  if (one.pins.length === 0) return null;
  const rows = one.pins.slice(0, SHOWN).map((pin) => [
    el("span", { class: "site" }, pin.site),
    pin.size_class,
    bytes(pin.bytes),
    count(pin.blocks),
  ]);
  return el("div", { class: "scroll" }, table("pins", ["Call site", "Size class", ">Empty memory it borders", ">Blocks"], rows));
}

function segments(one: AllocatorFigures): Child {
  if (one.segments.length === 0) return null;
  const rows = one.segments.slice(0, SHOWN).map((segment) => [
    bytes(segment.bytes),
    bytes(segment.live),
    bytes(segment.wasted),
    count(segment.blocks),
    segment.pins.length === 0
      ? el("span", { class: "muted" }, "nothing: cached and free")
      : el("span", {}, ...segment.pins.map((pin, i) => el("span", {}, i > 0 && "; ", neighbour(pin, "")))),
  ]);
  return el("div", { class: "scroll" }, table("segments", ["Segment", ">Live", ">Empty", ">Blocks", "Blocks that keep it"], rows));
}

export function why(device: DeviceFigures, showHole: (allocator: string, hole: Hole) => void): HTMLElement {
  const first = baseline(device);
  const body = el("div");
  const fill = (name: string): void => {
    const one = device.allocators.find((each) => each.allocator === name);
    if (!one) return;
    const worst = one.pins[0];
    body.dataset.allocator = name;
    body.replaceChildren(
      el(
        "p",
        { class: "lead" },
        `At its peak ${one.label} holds ${bytes(one.reserved_at_peak)}, of which ${bytes(one.reserved_at_peak - one.allocated_at_peak)} is empty, in ${plural(one.holes_total, "hole")}.`,
        worst && one.holes_bytes > 0 ? ` The most is beside ${worst.site.includes(worst.size_class) ? worst.site : `blocks of ${worst.size_class} from ${worst.site}`}: ${bytes(worst.bytes)}.` : "",
      ),
      ...(
        [
          el("h3", {}, "Largest holes"),
          holes(one, (hole) => showHole(name, hole)),
          one.holes_total > SHOWN && el("p", { class: "muted" }, `${count(one.holes_total - SHOWN)} more are smaller.`),
          one.pins.length > 0 && el("h3", {}, "What pins them, by call site and size class"),
          pins(one),
          one.segments.length > 0 && el("h3", {}, "Emptiest segments, and the blocks that keep them from being given back"),
          segments(one),
        ] as Child[]
      ).filter((child): child is Node => child instanceof Node),
    );
  };
  if (first) fill(first.allocator);
  const planning =
    device.causes.length > 0 &&
    el(
      "div",
      { class: "causes" },
      el("h3", {}, "What keeps the plan from 100\u00a0%"),
      el("ul", {}, ...device.causes.map((cause) => el("li", {}, el("strong", {}, bytes(cause.bytes)), ` ${cause.text}`))),
    );
  return el(
    "section",
    { id: "why", "aria-labelledby": "why-title" },
    el("h2", { id: "why-title" }, "Why"),
    el(
      "div",
      { class: "tools" },
      choice("Explain the holes of", device.allocators.map((one) => [one.allocator, one.label]), first?.allocator ?? "", fill),
    ),
    body,
    planning,
  );
}
