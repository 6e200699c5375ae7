// Search: a line or function of the program, a module, or a size; what was found, most bytes first.

import { el, fill } from "./dom";
import { bytes, count, plural } from "./format";
import { type Device, UNIT } from "./model";

const SHOWN = 30;

/** The size that a text means, bytes; null if it is none. */
export function parseSize(text: string): number | null {
  const found = /^([\d.,]+)\s*(b|[kmgt]i?b?)?$/i.exec(text.trim());
  if (!found) return null;
  const value = Number(found[1].replaceAll(",", ""));
  const power = " kmgt".indexOf((found[2] ?? " ")[0].toLowerCase());
  return Number.isFinite(value) ? value * 1024 ** Math.max(0, power) : null;
}

export class Search {
  readonly element: HTMLElement;
  private readonly found = el("div", { class: "found", id: "found", hidden: true });
  private readonly input: HTMLInputElement;

  constructor(
    private readonly device: Device,
    private readonly select: (block: number) => void,
    private readonly changed: (text: string) => void,
  ) {
    this.input = el("input", { type: "search", id: "search", placeholder: "Search: a line, a module, a size", "aria-label": "Search for a line, a module or a size", "aria-controls": "found", autocomplete: "off", spellcheck: "false" });
    this.input.addEventListener("input", () => {
      this.changed(this.input.value);
      this.show();
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.input.value = "";
        this.changed("");
        this.show();
      } else if (event.key === "Enter") {
        this.found.querySelector<HTMLButtonElement>("button")?.click();
      }
    });
    this.element = el("div", { class: "search", role: "search" }, this.input, this.found);
  }

  /** Looks for a text, as from a link. */
  look(text: string): void {
    this.input.value = text;
    this.show();
  }

  private show(): void {
    const { device } = this;
    const text = this.input.value.trim().toLowerCase();
    this.found.hidden = text === "";
    if (text === "") return;
    const { blocks } = device;
    const size = parseSize(text);
    // What is shown as 12.5 MiB is found as that.
    const fits = (i: number): boolean => {
      const asked = device.requested[blocks.size[i]];
      return asked === size || bytes(asked).replace(/\s/g, "").toLowerCase() === text.replace(/\s/g, "");
    };
    const stacks = device.stacksWith(text);
    const groups = new Map<string, { bytes: number; n: number; largest: number }>();
    for (let i = 0; i < blocks.n; i++) {
      const module = device.modules ? device.moduleOf(i) : "";
      if (!stacks[blocks.stack[i]] && !(size !== null && fits(i)) && !module.toLowerCase().includes(text)) continue;
      const name = `${device.site(blocks.stack[i])}${module && module !== "none" ? `, in ${module}` : ""}`;
      const group = groups.get(name);
      if (!group) groups.set(name, { bytes: blocks.units[i] * UNIT, n: 1, largest: i });
      else {
        group.bytes += blocks.units[i] * UNIT;
        group.n += 1;
        if (blocks.units[i] > blocks.units[group.largest]) group.largest = i;
      }
    }
    const rows = [...groups].sort((a, b) => b[1].bytes - a[1].bytes);
    fill(
      this.found,
      el("p", { class: "muted", role: "status" }, rows.length === 0 ? "Nothing found." : `${plural(rows.reduce((sum, [, one]) => sum + one.n, 0), "block")} from ${plural(rows.length, "place")}; the largest of each:`),
      ...rows.slice(0, SHOWN).map(([name, one]) =>
        el("button", { type: "button", class: "hit", click: () => this.select(one.largest) }, el("span", { class: "site" }, name), el("span", { class: "muted" }, ` ${bytes(blocks.units[one.largest] * UNIT)}, ${count(one.n)} in all`)),
      ),
    );
  }
}
