// The range of time and addresses that the curves and every map show: one object, so that they stay linked.

/** What is seen: event times [t0, t1) and addresses [a0, a1) in units of 512 bytes. */
export class View {
  t0: number;
  t1: number;
  a0: number;
  a1: number;
  /** Width of what is seen in time and in addresses; panning leaves it as it is to the last bit, which t1 - t0 is not. */
  readonly span: [number, number];
  /** Time under the pointer; null when it is elsewhere. */
  cursor: number | null = null;
  /** The moment whose holders are shown; null: the peak. */
  moment: number | null = null;
  private moments = new Set<() => void>();
  private changed = new Set<() => void>();
  private pointed = new Set<() => void>();
  private queued = false;

  constructor(
    readonly end: number,
    readonly height: number,
  ) {
    this.t0 = 0;
    this.t1 = end;
    this.a0 = 0;
    this.a1 = height;
    this.span = [end, height];
  }

  onChange(listener: () => void): void {
    this.changed.add(listener);
  }

  onCursor(listener: () => void): void {
    this.pointed.add(listener);
  }

  /** Shows a range of time, clamped to the trace; at least four events wide. */
  times(t0: number, t1: number): void {
    const width = this.keep(0, Math.min(this.end, Math.max(Math.min(4, this.end), t1 - t0)));
    this.t0 = Math.min(Math.max(0, t0), this.end - width);
    this.t1 = this.t0 + width;
    this.announce();
  }

  /** Shows a range of addresses, clamped; at least four units high. */
  addresses(a0: number, a1: number): void {
    const height = this.keep(1, Math.min(this.height, Math.max(4, a1 - a0)));
    this.a0 = Math.min(Math.max(0, a0), this.height - height);
    this.a1 = this.a0 + height;
    this.announce();
  }

  /** Zooms around a time by a factor: below 1 shows less. */
  zoomTime(at: number, factor: number): void {
    this.times(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
  }

  /** Zooms around an address. */
  zoomAddress(at: number, factor: number): void {
    this.addresses(at - (at - this.a0) * factor, at + (this.a1 - at) * factor);
  }

  /** Moves by shares of what is seen. */
  pan(time: number, address: number): void {
    const dt = time * (this.t1 - this.t0);
    const da = address * (this.a1 - this.a0);
    if (dt) this.times(this.t0 + dt, this.t1 + dt);
    if (da) this.addresses(this.a0 + da, this.a1 + da);
  }

  reset(): void {
    this.times(0, this.end);
    this.addresses(0, this.height);
  }

  onMoment(listener: () => void): void {
    this.moments.add(listener);
  }

  /** Looks at a moment; null: at the peak. */
  at(time: number | null): void {
    this.moment = time === null ? null : Math.min(this.end - 1, Math.max(0, Math.floor(time)));
    for (const listener of this.moments) listener();
  }

  /** Looks at the event before or after. */
  stepMoment(by: number, peak: number): void {
    this.at((this.moment ?? peak) + by);
  }

  point(time: number | null): void {
    this.cursor = time;
    for (const listener of this.pointed) listener();
  }

  // A width that differs from the one before by what arithmetic loses is the one before.
  private keep(axis: 0 | 1, width: number): number {
    if (Math.abs(width - this.span[axis]) > 1e-7 * width) this.span[axis] = width;
    return this.span[axis];
  }

  // Many changes within one frame are drawn once.
  private announce(): void {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      for (const listener of this.changed) listener();
    });
  }
}
