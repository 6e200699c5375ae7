// Running the command, opening its reports, and counting what holds.

import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const { STALLOC, WORK } = process.env;
let passed = 0;
const failures = [];

/** Runs a test; a failure is counted and the rest goes on. */
export async function test(name, body) {
  try {
    await body();
    passed += 1;
    console.log(`ok      ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}\n        ${String(error?.stack ?? error).split("\n").slice(0, 4).join("\n        ")}`);
  }
}

export function assert(holds, message) {
  if (!holds) throw new Error(message);
}

export function equal(seen, wanted, what) {
  assert(seen === wanted, `${what}: saw ${JSON.stringify(seen)}, wanted ${JSON.stringify(wanted)}`);
}

/** Prints the sum; exits 1 if something failed. */
export function finish() {
  console.log(`${passed} passed, ${failures.length} failed`);
  process.exit(failures.length > 0 ? 1 : 0);
}

/** Writes a report about inputs; its path, size and figures. */
export function report(name, inputs, extra = []) {
  const html = join(WORK, `${name}.html`);
  const json = execFileSync(STALLOC, ["report", ...inputs, "-o", html, "--json", ...extra], { maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] });
  return { html, size: statSync(html).size, figures: JSON.parse(json.toString()) };
}

export function input(name) {
  return join(WORK, name);
}

export async function browser() {
  return chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
}

/** Opens a report and waits until it is drawn. `errors` collects everything that must not happen. */
export async function open(instance, html, options = {}) {
  const page = await instance.newPage({ viewport: { width: 1440, height: 900 }, ...options });
  const errors = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) errors.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => errors.push(`page: ${error.message}`));
  page.on("request", (request) => {
    if (!/^(file|blob|data):/.test(request.url())) errors.push(`request: ${request.url()}`);
  });
  const started = Date.now();
  await page.goto(`file://${html}`);
  await page.waitForSelector("html[data-ready]", { timeout: 60000 });
  await page.waitForFunction(() => [...document.querySelectorAll(".panel canvas")].every((canvas) => canvas.dataset.painted), null, { timeout: 60000 });
  return { page, errors, seconds: (Date.now() - started) / 1000 };
}

export const same = (path, other) => readFileSync(path).equals(readFileSync(other));

/** Text with every kind of space as one plain space. */
export const plain = (text) => text.replace(/\s+/g, " ").trim();
