// Two inputs side by side: their figures, then what differs most.

import { type Child, el, table } from "./dom";
import { bytes, unbroken } from "./format";
import type { Comparison, Difference, Figures } from "./schema";

function change(one: Difference): HTMLElement {
  const by = one.after - one.before;
  const text = by === 0 ? "same" : `${by > 0 ? "+" : ""}${bytes(by)}`;
  return el("span", { class: by > 0 ? "bad" : by < 0 ? "good" : "muted", "data-bytes": by }, text);
}

function differences(title: string, head: string, list: Difference[]): Child {
  if (list.length === 0) return null;
  const rows = list.map((one) => [el("span", { class: "site" }, one.what), bytes(one.before), bytes(one.after), change(one)]);
  return el("div", {}, el("h3", {}, title), el("div", { class: "scroll" }, table("differences", [head, ">Before", ">After", ">Change"], rows)));
}

/** A comparison; where there are several, all but the first are folded up. */
export function compare(figures: Figures, comparison: Comparison): HTMLElement {
  const name = ({ input, device }: Comparison["before"]): string => {
    const one = figures.inputs[input];
    return one.devices.length > 1 ? `${one.name}, device ${one.devices[device].device}` : one.name;
  };
  const folds = figures.comparisons.length > 1;
  const sentence = unbroken(comparison.sentence);
  const names = `Before: ${name(comparison.before)}. After: ${name(comparison.after)}.`;
  return el(
    folds ? "details" : "article",
    { class: "comparison", open: folds && comparison === figures.comparisons[0] },
    el(folds ? "summary" : "div", {}, el("p", { class: "lead" }, sentence), el("p", { class: "muted" }, names)),
    differences("Figures", "Figure", comparison.figures),
    differences("By category, at the peak", "Category", comparison.categories),
    differences("By call site, at the peak", "Call site", comparison.sites),
    differences("By size, at the peak", "Size", comparison.sizes),
  );
}
