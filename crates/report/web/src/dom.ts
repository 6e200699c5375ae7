// Builds elements. Text only ever becomes text nodes, so names from a trace can never become markup.

export type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | undefined>;

/** An element with attributes (functions become listeners) and children (strings become text). */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, String(value));
  }
  append(node, children);
  return node;
}

export function append(node: Element, children: Child[]): void {
  for (const child of children) if (child) node.append(child);
}

/** Puts children in the place of those that an element has. */
export function fill(node: Element, ...children: Child[]): void {
  node.replaceChildren();
  append(node, children);
}

/** A table; columns whose head starts with ">" hold numbers and are set flush right. */
export function table(className: string, heads: string[], rows: Child[][], caption?: string): HTMLTableElement {
  const numeric = heads.map((head) => head.startsWith(">"));
  const body = rows.map((row) =>
    el("tr", {}, ...row.map((cell, i) => el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : { class: numeric[i] && "num" }, cell))),
  );
  return el(
    "table",
    { class: className },
    caption ? el("caption", {}, caption) : null,
    el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: numeric[i] && "num" }, head.replace(/^>/, ""))))),
    el("tbody", {}, ...body),
  );
}

/** A button that is on or off. */
export function toggle(label: Child, on: boolean, change: (on: boolean) => void, attributes: Attributes = {}): HTMLButtonElement {
  const button = el("button", { type: "button", class: "toggle", "aria-pressed": String(on), ...attributes }, label);
  button.addEventListener("click", () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    change(now);
  });
  return button;
}

/** A group of buttons of which one is chosen. */
export function choice<T extends string>(label: string, options: [T, string][], chosen: T, change: (value: T) => void): HTMLElement {
  const buttons = options.map(([value, text]) => {
    const button = el("button", { type: "button", "data-value": value, "aria-pressed": String(value === chosen) }, text);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      change(value);
    });
    return button;
  });
  return el("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}
