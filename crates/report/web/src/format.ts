// How figures are written. Sizes are in binary units, as PyTorch's own messages are.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size with its unit: three significant digits or one decimal. */
export function bytes(value: number): string {
  let unit = 0;
  let scaled = Math.abs(value);
  // What would be written as 1024 is written as 1 of the next unit.
  while (scaled >= 1023.5 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit++;
  }
  const digits = unit === 0 ? 0 : unit >= 3 ? (scaled < 10 ? 2 : 1) : scaled < 100 ? 1 : 0;
  return `${value < 0 ? "\u2212" : ""}${scaled.toFixed(digits)}\u00a0${UNITS[unit]}`;
}

/** A share as a percentage; never rounds up to 100 %, nor down to nothing. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "under\u00a00.1\u00a0%";
  const digits = value >= 99.95 && value < 100 ? 2 : 1;
  const text = (Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits);
  return `${text.replace(/\.0+$/, "")}\u00a0%`;
}

/** A whole number with thin groups. */
export function count(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A number in few characters, for axes. */
export function compact(value: number): string {
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toFixed(3)}M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toFixed(3)}k`;
  return `${+value.toFixed(2)}`;
}

/** A duration in microseconds. */
export function duration(us: number): string {
  if (us >= 60e6) return `${(us / 60e6).toFixed(1)}\u00a0min`;
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)}\u00a0s`;
  if (us >= 1e3) return `${(us / 1e3).toFixed(1)}\u00a0ms`;
  return `${Math.round(us)}\u00a0\u00b5s`;
}

/** "1 block", "2 blocks". */
export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** Keeps figures and their units on one line, and ranges such as "1 to 2 GiB". */
export function unbroken(text: string): string {
  return text.replace(/(\d) (?=(?:B|KiB|MiB|GiB|TiB|GB|%)(?:\W|$))/g, "$1\u00a0").replace(/(\d+) to (?=\d+\u00a0)/g, "$1\u00a0to\u00a0");
}
