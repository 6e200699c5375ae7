// Unpacks the embedded block: base64 of deflate of [length of JSON: u32][JSON][columns].

import type { Column, Page } from "./schema";

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as unknown as { fromBase64?: (t: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (native) return native.call(Uint8Array, text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** The page's data: its JSON part and a reader for its columns. */
export class Store {
  private constructor(
    readonly page: Page,
    private readonly bytes: Uint8Array,
  ) {}

  static async open(text: string): Promise<Store> {
    const packed = new Blob([fromBase64(text.trim())]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const page = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as Page;
    return new Store(page, bytes.subarray(4 + length));
  }

  /** Numbers below 2^32. */
  ints(column: Column): Uint32Array {
    return this.decode(column, new Uint32Array(column.n));
  }

  /** Numbers below 2^53. */
  numbers(column: Column): Float64Array {
    return this.decode(column, new Float64Array(column.n));
  }

  // LEB128; a difference is zigzag-coded, so that small negative ones stay short.
  private decode<T extends Uint32Array | Float64Array>(column: Column, out: T): T {
    const { bytes } = this;
    let at = column.at;
    let last = 0;
    for (let i = 0; i < column.n; i++) {
      let byte = bytes[at++];
      let value = byte & 0x7f;
      for (let scale = 128; byte >= 0x80; scale *= 128) {
        byte = bytes[at++];
        value += (byte & 0x7f) * scale;
      }
      if (column.delta) {
        last += value % 2 ? -(value + 1) / 2 : value / 2;
        value = last;
      }
      out[i] = value;
    }
    return out;
  }
}
