// Hands pictures to the worker: one at a time for each panel, always the latest.

import type { Device } from "./model";
import type { RasterRequest } from "./raster";
import type { FromWorker, ToWorker } from "./worker";

declare const WORKER_SOURCE: string;

export class Painter {
  private readonly worker = new Worker(URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" })));
  private readonly waiting = new Map<number, (picture: ImageData) => void>();
  private readonly sent = new Set<string>();
  private next = 0;

  constructor() {
    this.worker.onmessage = (event: MessageEvent<FromWorker>) => {
      const { id, pixels, width, height } = event.data;
      this.waiting.get(id)?.(new ImageData(pixels, width, height));
      this.waiting.delete(id);
    };
  }

  paint(key: string, device: Device, request: RasterRequest): Promise<ImageData> {
    if (!this.sent.has(key)) {
      this.sent.add(key);
      const { alloc, free, units } = device.blocks;
      const layouts = device.layouts.map(({ address, segments }) => ({ address, segments }));
      this.send({ kind: "device", key, device: { alloc, free, units, layouts } });
    }
    const id = this.next++;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.send({ kind: "paint", key, id, request });
    });
  }

  private send(message: ToWorker): void {
    this.worker.postMessage(message);
  }
}
