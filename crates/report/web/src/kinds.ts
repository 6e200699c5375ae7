// Tables under the curves: bytes by category, and peaks by kind of step.

import { type Child, el, table } from "./dom";
import { bytes, count, percent } from "./format";
import type { DeviceFigures } from "./schema";

export function categories(device: DeviceFigures): Child {
  if (device.categories.length === 0) return null;
  const rows = device.categories.map((one) => [
    one.category,
    el("span", { "data-bytes": one.bytes_at_peak }, bytes(one.bytes_at_peak)),
    percent(one.bytes_at_peak / Math.max(1, device.peak_allocated)),
    bytes(one.peak),
    count(one.requests),
  ]);
  return el(
    "div",
    { class: "half" },
    el("h3", {}, "By category"),
    el("div", { class: "scroll" }, table("categories", ["", ">At the peak", ">Share", ">Own peak", ">Requests"], rows)),
    el("p", { class: "muted" }, device.categories_from),
  );
}

export function stepKinds(device: DeviceFigures): Child {
  if (device.step_kinds.length === 0) return null;
  const names = device.step_kinds[0].reserved.map((one) => device.allocators.find((each) => each.allocator === one.allocator)?.label ?? one.allocator);
  const rows = device.step_kinds.map((kind) => [
    kind.kind,
    count(kind.steps),
    count(kind.requests),
    bytes(kind.peak_allocated),
    ...kind.reserved.map((one) => bytes(one.peak_reserved)),
  ]);
  return el(
    "div",
    { class: "half" },
    el("h3", {}, "By kind of step"),
    el("div", { class: "scroll" }, table("step-kinds", ["", ">Times", ">Requests each", ">Allocated", ...names.map((name) => `>${name}`)], rows)),
  );
}
