// Paints maps away from the page's own thread, so that panning never waits for a picture.

import { paint, type RasterDevice, type RasterRequest } from "./raster";

export type ToWorker =
  | { kind: "device"; key: string; device: RasterDevice }
  | { kind: "shade"; name: number; shade: Uint8Array }
  | { kind: "paint"; key: string; id: number; shade: number; request: Omit<RasterRequest, "shade"> };

export interface FromWorker {
  id: number;
  width: number;
  height: number;
  pixels: Uint8ClampedArray<ArrayBuffer>;
}

const devices = new Map<string, RasterDevice>();
const shades = new Map<number, Uint8Array>();

self.onmessage = (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  if (message.kind === "device") {
    devices.set(message.key, message.device);
    return;
  }
  if (message.kind === "shade") {
    shades.set(message.name, message.shade);
    return;
  }
  const device = devices.get(message.key);
  const shade = shades.get(message.shade);
  if (!device || !shade) return;
  const { width, height } = message.request;
  const pixels = paint(device, { ...message.request, shade });
  const reply: FromWorker = { id: message.id, width, height, pixels };
  (self as unknown as { postMessage(m: FromWorker, transfer: Transferable[]): void }).postMessage(reply, [pixels.buffer]);
};
