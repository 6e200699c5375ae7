// The answer first: what is wasted, what a plan would save, what fits where, what to do.

import { type Child, el, table } from "./dom";
import { bytes, count, percent, unbroken } from "./format";
import type { Advice, AllocatorFigures, DeviceFigures, Fit, Verdict } from "./schema";

const CARDS: [string, number][] = [
  ["40", 40],
  ["80", 80],
  ["141", 141],
];

const FITS: Record<Fit, [string, string]> = {
  yes: ["fits", "\u2713"],
  tight: ["fits only by giving cached memory back", "~"],
  no: ["does not fit", "\u2717"],
  unknown: ["not known", "\u2013"],
};

function fit(value: Fit, card: string): HTMLElement {
  const [words, sign] = FITS[value];
  return el("span", { class: `fit ${value}`, title: `${card} GB: ${words}` }, el("span", { "aria-hidden": "true" }, sign), el("span", { class: "hidden" }, words));
}

function tile(value: string, label: string, kind = ""): HTMLElement {
  return el("div", { class: `tile ${kind}` }, el("span", { class: "value" }, value), el("span", { class: "label" }, label));
}

/** Text between backticks as code. */
function withCode(text: string): Child[] {
  return text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

const VERDICTS: Record<NonNullable<Verdict>, string> = { fragmentation: "Fragmentation", growth: "Memory grows", too_large: "Too large", healthy: "Healthy" };

/** Who holds the memory in Python, as found when it ran out. */
function pythons(device: DeviceFigures): Child {
  if (device.holders.length === 0) return null;
  const rows = device.holders.slice(0, 5).map((one) => [
    el("span", {}, ...withCode(one.holder)),
    bytes(one.bytes),
    percent(one.bytes / Math.max(1, device.peak_allocated)),
    el("span", { class: "site" }, one.site ?? ""),
  ]);
  return el("div", { class: "scroll" }, table("pythons", ["Held in Python by", ">Bytes", ">Of the peak", "Allocated at"], rows));
}

/** What to do, with lines to copy. */
function todo(list: Advice[]): Child {
  if (list.length === 0) return null;
  const copy = (command: string): HTMLElement => {
    const button = el("button", { type: "button", class: "copy", "aria-label": "Copy the command" }, "Copy");
    button.addEventListener("click", () => {
      const done = navigator.clipboard?.writeText(command) ?? Promise.reject(new Error("no clipboard"));
      done.then(
        () => (button.textContent = "Copied"),
        () => {
          // Without a clipboard, as in a frame: the line is selected instead.
          getSelection()?.selectAllChildren(button.previousElementSibling ?? button);
        },
      );
    });
    return button;
  };
  return el(
    "ol",
    { class: "todo" },
    ...list.map((one) => el("li", {}, el("p", { class: "advice" }, ...withCode(unbroken(one.text))), one.command && el("div", { class: "command" }, el("code", {}, one.command), copy(one.command)))),
  );
}

/** The allocator that the rest is measured against: what happened, else PyTorch's. */
export function baseline(device: DeviceFigures): AllocatorFigures | undefined {
  return device.allocators.find((one) => one.allocator === "actual") ?? device.allocators.find((one) => one.allocator === "pytorch") ?? device.allocators[0];
}

function bar(one: AllocatorFigures, scale: number): HTMLElement {
  const share = (value: number): string => `${(100 * value) / scale}%`;
  const live = el("span", { class: one.allocator === "stalloc" ? "used plan" : "used" });
  live.style.width = share(Math.min(one.peak_allocated, one.peak_reserved));
  const waste = el("span", { class: "waste" });
  waste.style.width = share(one.wasted);
  return el("div", { class: "bar", "aria-hidden": "true" }, live, waste);
}

/** A tenth that lies empty is worth a colour. */
const alarm = (one: AllocatorFigures): string => (one.efficiency < 0.9 ? "bad" : "");

export function answer(device: DeviceFigures): HTMLElement {
  const before = baseline(device);
  const plan = device.allocators.find((one) => one.allocator === "stalloc");
  const scale = Math.max(1, ...device.allocators.map((one) => one.peak_reserved)) * 1.02;
  const tiles: Child[] = [];
  const peak = device.out_of_memory?.size ? "needed at the peak, with the request that failed" : "allocated at the peak";
  tiles.push(tile(bytes(device.peak_allocated), device.state_only ? "allocated" : peak));
  if (before) {
    tiles.push(tile(bytes(before.peak_reserved), before.allocator === "actual" ? "reserved, as recorded" : `reserved by ${before.label}`));
    tiles.push(tile(bytes(before.wasted), `wasted, ${percent(1 - before.efficiency)} of what is reserved`, alarm(before)));
  }
  const grows = device.verdict === "growth";
  // What a plan would save is no help against a leak.
  if (plan && plan !== before && !grows && (device.verdict === "healthy" || device.verdict === "fragmentation")) tiles.push(tile(bytes(plan.peak_reserved), `reserved with a plan, ${percent(plan.efficiency)} efficient`, "good"));
  const failed = device.out_of_memory !== null;
  const heads = ["Allocator", "", "Peak allocated", "Peak reserved", "Wasted", "Efficiency", ...(failed ? ["This GPU"] : []), ...CARDS.map(([name]) => (grows ? `${name} GB full at step` : `${name} GB`))];
  const rows = device.allocators.map((one) =>
    el(
      "tr",
      { "data-allocator": one.allocator, class: one.allocator === "stalloc" && "ours" },
      el("th", { scope: "row" }, one.label, one.oom && el("span", { class: "bad" }, " ran out of memory")),
      el("td", { class: "bars" }, bar(one, scale)),
      el("td", { class: "num", "data-field": "peak_allocated", "data-bytes": one.peak_allocated }, bytes(one.peak_allocated)),
      el("td", { class: "num", "data-field": "peak_reserved", "data-bytes": one.peak_reserved }, bytes(one.peak_reserved)),
      el("td", { class: `num ${alarm(one)}`, "data-field": "wasted", "data-bytes": one.wasted }, bytes(one.wasted)),
      el("td", { class: "num", "data-field": "efficiency" }, percent(one.efficiency)),
      failed && el("td", { class: "fits same" }, fit(one.allocator === "actual" ? "no" : (one.same_device ?? "unknown"), "this")),
      ...CARDS.map(([name]) => el("td", { class: "fits" }, one.dies_at_step[name] === undefined ? fit(one.fits[name] ?? "unknown", name) : count(one.dies_at_step[name]))),
    ),
  );
  return el(
    "section",
    { id: "answer", "aria-labelledby": "headline" },
    el("p", { class: `verdict ${device.verdict ?? "unknown"}` }, device.verdict === null ? (device.cause === "failed" ? "Failed" : "Cut off") : VERDICTS[device.verdict]),
    el("h1", { id: "headline" }, unbroken(device.headline)),
    device.out_of_memory && device.verdict === "too_large" && el("p", { class: "failure" }, unbroken(device.out_of_memory.sentence)),
    device.facts.length > 0 && el("ul", { class: "rests" }, ...device.facts.filter((fact) => !device.headline.includes(fact)).map((fact) => el("li", {}, ...withCode(unbroken(fact))))),
    pythons(device),
    todo(device.advice),
    el("div", { class: "tiles" }, ...tiles),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "allocators" },
        el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i > 5 ? "fits" : i > 1 && "num" }, head)))),
        el("tbody", {}, ...rows),
      ),
    ),
    el(
      "p",
      { class: "muted key" },
      el("span", { class: "swatch area block" }),
      "allocated  ",
      el("span", { class: "swatch area plan" }),
      "allocated, with a plan  ",
      el("span", { class: "swatch area waste" }),
      "wasted: reserved, never used at the peak.",
      !grows && "  \u2713 fits, ~ fits only when cached memory is given back in time (slow, and near the edge), \u2717 does not.",
      !grows && device.out_of_memory && " This GPU: whether it gets past the request that failed, which is part of every figure but the recorded ones.",
    ),
    device.notes.length > 0 && el("p", { class: "muted key" }, `Found in the input: ${device.notes.join("; ")}.`),
  );
}
