// Has pictures painted: by the worker, or here where nothing can wait, as before printing.

import type { Device } from "./model";
import { type RasterDevice, type RasterRequest, paint } from "./raster";
import type { FromWorker, ToWorker } from "./worker";

declare const WORKER_SOURCE: string;

export class Painter {
  private readonly worker = new Worker(URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" })));
  private readonly waiting = new Map<number, (picture: ImageData) => void>();
  private readonly sent = new Set<string>();
  private readonly shades = new Map<Uint8Array, number>();
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
      this.send({ kind: "device", key, device: rasterDevice(device) });
    }
    // Shades are long: each is sent once.
    const { shade, ...rest } = request;
    let name = this.shades.get(shade);
    if (name === undefined) {
      name = this.shades.size;
      this.shades.set(shade, name);
      this.send({ kind: "shade", name, shade });
    }
    const shadeName = name;
    const id = this.next++;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.send({ kind: "paint", key, id, shade: shadeName, request: rest });
    });
  }

  /** Paints on the page's own thread. */
  paintNow(device: Device, request: RasterRequest): ImageData {
    return new ImageData(paint(rasterDevice(device), request), request.width, request.height);
  }

  private send(message: ToWorker): void {
    this.worker.postMessage(message);
  }
}

function rasterDevice(device: Device): RasterDevice {
  const { alloc, free, units } = device.blocks;
  return { alloc, free, units, layouts: device.layouts.map(({ address, segments }) => ({ address, segments })) };
}
