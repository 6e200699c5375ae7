// Why memory is wasted: the holes at the moment of most reserved memory, what pins them, and what keeps the plan from 100 %.

import { baseline } from "./answer";
import { type Child, choice, el, fill, table } from "./dom";
import { bytes, count, percent, plural, unbroken } from "./format";
import type { AllocatorFigures, DeviceFigures, Hole, Neighbour } from "./schema";

const SHOWN = 12;

/** Who holds the memory, as the subject of a sentence. */
function holder(one: AllocatorFigures): string {
  return one.allocator === "actual" ? "the job" : one.label;
}

/** How much is empty at the peak, in how many holes, and next to what. */
function summary(one: AllocatorFigures, stateOnly: boolean): string {
  const empty = one.reserved_at_peak - one.allocated_at_peak;
  const worst = one.pins[0];
  const who = holder(one);
  const parts = [`${stateOnly ? `${who[0].toUpperCase()}${who.slice(1)}` : `At its peak ${who}`} holds ${bytes(one.reserved_at_peak)}, of which ${bytes(empty)} is empty, in ${plural(one.holes_total, "hole")}.`];
  if (Math.abs(empty - one.wasted) > one.peak_reserved / 100) {
    parts.push(`(The ${bytes(one.wasted)} above are what is reserved at most less what is allocated at most, which need not be at the same moment.)`);
  }
  if (one.free_segments > 0) {
    parts.push(`${plural(one.free_segments, "segment")} of ${bytes(one.free_segments_bytes)} ${one.free_segments === 1 ? "is" : "in all are"} wholly free: cached, but of no use to requests that are larger or on another stream.`);
  }
  if (worst && one.holes_bytes > one.free_segments_bytes) {
    const site = worst.site.includes(worst.size_class) ? worst.site : `blocks of ${worst.size_class} from ${worst.site}`;
    parts.push(`Of what live blocks pin, the most is next to ${site}: ${bytes(worst.bytes)}.`);
  }
  return unbroken(parts.join(" "));
}

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
    hole.below || hole.above ? neighbour(hole.below, "start") : el("span", { class: "muted" }, "none: the whole segment is free"),
    hole.below || hole.above ? neighbour(hole.above, "end") : "",
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
    el("span", {}, ...segment.pins.map((pin, i) => el("span", {}, i > 0 && "; ", neighbour(pin, "")))),
  ]);
  return el("div", { class: "scroll" }, table("segments", ["Segment", ">Live", ">Empty", ">Blocks", "Blocks that keep it"], rows));
}

export function why(device: DeviceFigures, showHole: (allocator: string, hole: Hole) => void): HTMLElement {
  const first = baseline(device);
  const body = el("div");
  const explain = (name: string): void => {
    const one = device.allocators.find((each) => each.allocator === name);
    if (!one) return;
    body.dataset.allocator = name;
    const rest = one.holes_total - SHOWN;
    fill(
      body,
      el("p", { class: "lead" }, summary(one, device.state_only)),
      el("h3", {}, "Largest holes"),
      holes(one, (hole) => showHole(name, hole)),
      rest > 0 && el("p", { class: "muted" }, `${count(rest)} more ${rest === 1 ? "is" : "are"} smaller.`),
      one.pins.length > 0 && el("h3", {}, "What pins them, by call site and size class"),
      pins(one),
      one.segments.length > 0 && el("h3", {}, "Emptiest segments, and the blocks that keep them from being given back"),
      segments(one),
    );
  };
  if (first) explain(first.allocator);
  const planning =
    device.causes.length > 0 &&
    el(
      "div",
      { class: "causes" },
      el("h3", {}, "What keeps the plan from 100\u00a0%"),
      el("ul", {}, ...device.causes.map((cause) => el("li", {}, el("strong", {}, bytes(cause.bytes)), ` ${cause.text}`))),
    );
  const tools = el("div", { class: "tools" }, choice("Explain the holes of", device.allocators.map((one) => [one.allocator, one.label]), first?.allocator ?? "", explain));
  const matters = device.verdict !== "growth" && device.verdict !== "too_large";
  return el(
    "section",
    { id: "why", "aria-labelledby": "why-title" },
    el("h2", { id: "why-title" }, "Why"),
    ...(matters ? [tools, body, planning] : [el("details", {}, el("summary", {}, "Holes and segments, which are not the cause here"), tools, body, planning)]),
  );
}
