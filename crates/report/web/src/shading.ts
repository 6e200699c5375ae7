// How blocks are coloured, and the key that says so.

import { type Child, el, fill } from "./dom";
import { type Device, SOURCES, UNIT } from "./model";
import { type Rgb, colour, rgb } from "./theme";

export type Shading = "source" | "category" | "stream" | "site" | "size";

const CLASSES = [0, 1, 2, 3, 4, 5, 6, 7];
const SIZE_CLASSES = ["up to 1 MiB", "to 4 MiB", "to 16 MiB", "to 64 MiB", "to 256 MiB", "to 1 GiB", "to 4 GiB", "over 4 GiB"];

function sizeClass(size: number): number {
  return Math.max(0, Math.min(7, Math.ceil(Math.log2(size / 2 ** 20) / 2)));
}

/** The shade of every block of a device, for each way to shade and each layout. */
export class Shades {
  readonly key = el("div", { class: "legend" });
  private shading: Shading = "source";
  private readonly known = new Map<string, Uint8Array>();
  private sites: Uint8Array | null = null;

  constructor(private readonly device: Device) {
    this.buildKey();
  }

  /** The ways to shade that say something about this device. */
  options(): [Shading, string][] {
    const { device } = this;
    const options: [Shading, string][] = [["source", "Kind"]];
    if (device.liveBy.length > 0) options.push(["category", "Category"]);
    options.push(["size", "Size"]);
    if (device.blocks.stream.some((stream) => stream > 0)) options.push(["stream", "Stream"]);
    if (device.figures.has_stacks) options.push(["site", "Call site"]);
    return options;
  }

  get chosen(): Shading {
    return this.shading;
  }

  choose(shading: Shading): void {
    this.shading = shading;
    this.buildKey();
  }

  /** Colours, which a block's shade is an index into. */
  palette(): Rgb[] {
    return this.names().map(rgb);
  }

  /** A shade for each block. */
  of(layout: number): Uint8Array {
    const key = this.shading === "source" ? `source-${layout}` : this.shading;
    const known = this.known.get(key);
    if (known) return known;
    const { blocks, layouts } = this.device;
    const from: Record<Shading, (i: number) => number> = {
      source: (i) => layouts[layout].source?.[i] ?? 0,
      category: (i) => blocks.category[i] % 8,
      stream: (i) => Math.min(7, blocks.stream[i]),
      site: (i) => this.siteClass()[blocks.stack[i]],
      size: (i) => sizeClass(blocks.units[i] * UNIT),
    };
    const shade = new Uint8Array(blocks.n).map((_, i) => from[this.shading](i));
    this.known.set(key, shade);
    return shade;
  }

  /** Writes the key anew, as when the colours have changed. */
  buildKey(): void {
    const { device } = this;
    const colours = this.names();
    const most = device.blocks.stream.reduce((a, b) => Math.max(a, b), 0);
    const names: Record<Shading, string[]> = {
      source: device.layouts.some((layout) => layout.source) ? SOURCES : SOURCES.slice(0, 1),
      category: device.page.categories,
      stream: CLASSES.map((i) => (i === 7 && most > 7 ? "every other stream" : `stream ${device.columns.streams[i] ?? i}`)).slice(0, 1 + most),
      site: [...this.topSites(), "every other"],
      size: SIZE_CLASSES,
    };
    const entry = (name: string, swatchColour: string): Child => {
      const swatch = el("span", { class: "swatch area" });
      swatch.style.setProperty("--swatch", colour(swatchColour));
      return el("span", { class: "entry" }, swatch, name);
    };
    fill(
      this.key,
      ...names[this.shading].map((name, i) => entry(name, colours[i])),
      entry("reserved but empty", "waste-soft"),
      entry("hole at the peak", "waste-strong"),
    );
  }

  // The call sites with the most bytes at the peak; each has a colour of its own.
  private topSites(): string[] {
    return this.device.figures.peak_by_site.slice(0, 7).map((one) => one.site);
  }

  // For each call stack the colour of its site.
  private siteClass(): Uint8Array {
    if (!this.sites) {
      const top = this.topSites();
      this.sites = new Uint8Array(this.device.columns.stacks.site.n).map((_, stack) => {
        const at = top.indexOf(this.device.site(stack));
        return at < 0 ? top.length : at;
      });
    }
    return this.sites;
  }

  // Names of custom properties.
  private names(): string[] {
    return this.shading === "source" ? ["block", "plan", "dynamic", "fallback"] : CLASSES.map((i) => `class-${i}`);
  }
}
