// What pointers, wheels and keys do to a map.

import { GUTTER } from "./curves";
import type { Panel } from "./panel";

/** Time and address under a point of the canvas. */
function locate(panel: Panel, event: MouseEvent): { time: number; address: number } {
  const { view } = panel.maps;
  const box = panel.canvas.getBoundingClientRect();
  const x = event.clientX - box.left - GUTTER;
  const y = event.clientY - box.top;
  return {
    time: view.t0 + (x / (panel.width - GUTTER)) * (view.t1 - view.t0),
    address: view.a1 - (y / panel.height) * (view.a1 - view.a0),
  };
}

/** Lets a panel be moved, zoomed and pointed at. */
export function listen(panel: Panel): void {
  const { canvas, maps } = panel;
  const { view } = maps;
  let drag: { x: number; y: number; t0: number; a0: number; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, t0: view.t0, a0: view.a0, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = locate(panel, event);
    if (!drag) {
      view.point(at.time >= view.t0 ? at.time : null);
      maps.hover(panel, at.time, at.address, event.clientX, event.clientY);
      return;
    }
    const dx = event.clientX - drag.x;
    const dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    maps.leave();
    const time = drag.t0 - (dx / (panel.width - GUTTER)) * (view.t1 - view.t0);
    const address = drag.a0 + (dy / panel.height) * (view.a1 - view.a0);
    view.times(time, time + (view.t1 - view.t0));
    view.addresses(address, address + (view.a1 - view.a0));
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = locate(panel, event);
    if (drag && !drag.moved) {
      canvas.focus({ preventScroll: true });
      maps.pin(panel, at.time, at.address);
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", () => {
    view.point(null);
    maps.leave();
  });
  canvas.addEventListener("dblclick", (event) => {
    const at = locate(panel, event);
    view.zoomTime(at.time, event.shiftKey ? 2 : 0.5);
    view.zoomAddress(at.address, event.shiftKey ? 2 : 0.5);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      const at = locate(panel, event);
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      // A plain wheel scrolls the page; with Ctrl (or a pinch) it zooms time, with Alt addresses.
      if (event.ctrlKey || event.metaKey) view.zoomTime(at.time, Math.exp(event.deltaY * 0.004));
      else if (event.altKey) view.zoomAddress(at.address, Math.exp(event.deltaY * 0.004));
      else if (sideways) view.pan(event.deltaX / panel.width, 0);
      else return;
      event.preventDefault();
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey) return;
    const middle = (view.t0 + view.t1) / 2;
    const level = (view.a0 + view.a1) / 2;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => view.pan(-0.1, 0),
      ArrowRight: () => view.pan(0.1, 0),
      ArrowUp: () => view.pan(0, 0.1),
      ArrowDown: () => view.pan(0, -0.1),
      "+": () => view.zoomTime(middle, 0.5),
      "=": () => view.zoomTime(middle, 0.5),
      "-": () => view.zoomTime(middle, 2),
      PageUp: () => view.zoomAddress(level, 0.5),
      PageDown: () => view.zoomAddress(level, 2),
      "0": () => view.reset(),
      Home: () => maps.show(panel.layout.figures.peak_time),
      n: () => maps.stepBlock(panel, 1),
      p: () => maps.stepBlock(panel, -1),
      ",": () => view.stepMoment(-1, maps.device.figures.peak_time),
      ".": () => view.stepMoment(1, maps.device.figures.peak_time),
      Enter: () => maps.keep(panel),
      " ": () => maps.keep(panel),
      Escape: () => maps.choose(panel, null),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
