// Colours, read from the style sheet so that there is one list of them.

export type Rgb = [number, number, number];

// Asking the style sheet costs a recalculation in the midst of a frame, so it is asked once.
const known = new Map<string, string>();

/** The value of a custom property, such as `--waste`. */
export function colour(name: string): string {
  const value = known.get(name) ?? getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  known.set(name, value);
  return value;
}

/** A `#rrggbb` colour as numbers. */
export function rgb(name: string): Rgb {
  const hex = parseInt(colour(name).slice(1), 16);
  return [(hex >> 16) & 255, (hex >> 8) & 255, hex & 255];
}

/** Eight colours that tell classes apart. */
export function palette(): string[] {
  return [0, 1, 2, 3, 4, 5, 6, 7].map((i) => colour(`class-${i}`));
}

/** How each allocator is drawn: the outcome and the plan stand out, the models stay behind. */
export function stroke(allocator: string): { colour: string; width: number; dash: number[] } {
  switch (allocator) {
    case "actual":
      return { colour: colour("ink"), width: 2, dash: [] };
    case "stalloc":
      return { colour: colour("plan"), width: 2, dash: [] };
    case "pytorch":
      return { colour: colour("line-a"), width: 1.5, dash: [] };
    case "pytorch-expandable":
      return { colour: colour("line-b"), width: 1.5, dash: [6, 3] };
    default:
      return { colour: colour("line-c"), width: 1.5, dash: [2, 3] };
  }
}

/** Calls back when the colours change; with `true` before printing, when what is not drawn on return is not printed. */
export function onTheme(listener: (atOnce: boolean) => void): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => listener(false));
  addEventListener("beforeprint", () => listener(true));
  addEventListener("afterprint", () => listener(false));
}

// The first listener, so that every other one finds the new colours.
onTheme(() => known.clear());
