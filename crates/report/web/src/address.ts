// What is shown, in the page's address, so that a link leads back to it.

export interface Shown {
  /** Index of the input, a slash, index of the device. */
  device?: string;
  /** Range of event times. */
  times?: [number, number];
  /** Range of addresses, units of 512 bytes. */
  addresses?: [number, number];
  /** The moment whose holders are shown. */
  moment?: number;
  /** The block that is described, and the map that it is on. */
  block?: number;
  map?: string;
  search?: string;
  section?: string;
}

function range(text: string | null): [number, number] | undefined {
  const [low, high] = (text ?? "").split("-").map(Number);
  return Number.isFinite(low) && Number.isFinite(high) && low < high ? [low, high] : undefined;
}

function whole(text: string | null): number | undefined {
  return text !== null && /^\d+$/.test(text) ? Number(text) : undefined;
}

/** Reads an address; what cannot be read is left out. */
export function read(hash: string): Shown {
  const text = hash.replace(/^#/, "");
  // A plain `#map`, as links of other pages have it.
  if (/^[a-z]+$/.test(text)) return { section: text };
  const found = new URLSearchParams(text);
  return {
    device: found.get("device") ?? undefined,
    times: range(found.get("time")),
    addresses: range(found.get("address")),
    moment: whole(found.get("moment")),
    block: whole(found.get("block")),
    map: found.get("map") ?? undefined,
    search: found.get("search") ?? undefined,
    section: found.get("section") ?? undefined,
  };
}

export function write(shown: Shown): string {
  const out = new URLSearchParams();
  const put = (name: string, value: string | number | undefined): void => {
    if (value !== undefined && value !== "") out.set(name, String(value));
  };
  const between = (pair?: [number, number]): string | undefined => pair && `${Math.floor(pair[0])}-${Math.ceil(pair[1])}`;
  put("device", shown.device);
  put("time", between(shown.times));
  put("address", between(shown.addresses));
  put("moment", shown.moment);
  put("block", shown.block);
  put("map", shown.map);
  put("search", shown.search);
  put("section", shown.section);
  const text = out.toString().replaceAll("%2F", "/");
  return text ? `#${text}` : "#";
}

/** Puts what is shown into the address; a page without one of its own, as in a notebook, has none to put it in. */
export function put(shown: Shown): void {
  try {
    history.replaceState(null, "", write(shown));
  } catch {
    // There is no link then; everything else works.
  }
}
