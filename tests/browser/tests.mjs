// What a reader of a report sees, checked in Chromium.

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { assert, browser, equal, finish, input, open, plain, report, same, STALLOC, test } from "./harness.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const recordings = process.env.STALLOC_RECORDINGS;

/** Every figure of a device that the page shows as bytes, read back from the page. */
async function shownFigures(page) {
  return page.evaluate(() => ({
    headline: document.querySelector("#headline").textContent,
    verdict: document.querySelector(".verdict").classList[1],
    advice: [...document.querySelectorAll(".todo .advice")].map((one) => one.textContent),
    commands: [...document.querySelectorAll(".todo .command code")].map((one) => one.textContent),
    rows: [...document.querySelectorAll("#answer tbody tr")].map((row) => ({
      allocator: row.dataset.allocator,
      efficiency: row.querySelector("[data-field=efficiency]").textContent,
      fits: [...row.querySelectorAll("td:not(.same) .fit")].map((fit) => fit.classList[1]),
      ...Object.fromEntries([...row.querySelectorAll("[data-bytes]")].map((cell) => [cell.dataset.field, Number(cell.dataset.bytes)])),
    })),
    categories: [...document.querySelectorAll(".categories [data-bytes]")].map((cell) => Number(cell.dataset.bytes)),
    holes: [...document.querySelectorAll(".holes [data-bytes]")].map((cell) => Number(cell.dataset.bytes)),
    causes: document.querySelectorAll(".causes li").length,
    steps: document.querySelectorAll(".step-kinds tbody tr").length,
  }));
}

function checkFigures(shown, device) {
  equal(plain(shown.headline), plain(device.headline), "headline");
  equal(shown.verdict, device.verdict, "verdict");
  equal(plain(shown.advice.join("|")), plain(device.advice.map((one) => one.text.replaceAll("`", "")).join("|")), "advice");
  equal(shown.commands.join("|"), device.advice.filter((one) => one.command).map((one) => one.command).join("|"), "commands");
  equal(shown.rows.length, device.allocators.length, "allocators");
  device.allocators.forEach((wanted, i) => {
    const row = shown.rows[i];
    for (const field of ["allocator", "peak_allocated", "peak_reserved", "wasted"]) equal(row[field], wanted[field], `${wanted.allocator} ${field}`);
    assert(Math.abs(parseFloat(row.efficiency) - wanted.efficiency * 100) < 0.11, `${wanted.allocator} efficiency ${row.efficiency}`);
    equal(row.fits.join(), ["40", "80", "141"].map((card) => wanted.fits[card]).join(), `${wanted.allocator} fits`);
    equal(wanted.wasted, wanted.peak_reserved - wanted.peak_allocated, `${wanted.allocator}: wasted is reserved less allocated`);
  });
  equal(shown.categories.join(), device.categories.map((one) => one.bytes_at_peak).join(), "categories");
  const first = device.allocators.find((one) => one.allocator === "actual") ?? device.allocators[0];
  equal(shown.holes.join(), first.holes.slice(0, 12).map((hole) => hole.bytes).join(), "holes");
  equal(shown.causes, device.causes.length, "causes");
  equal(shown.steps, device.step_kinds.length, "kinds of step");
}

/** What reaches beyond the right edge of the text at a width; nothing should, be it cut off or scrolled to. */
async function overflowing(page, width) {
  await page.setViewportSize({ width, height: 720 });
  await page.waitForTimeout(100);
  return page.evaluate(() => {
    const visible = [...document.querySelectorAll("body *")].filter((one) => !one.closest(".hidden, details:not([open])"));
    const edge = document.querySelector("main").getBoundingClientRect().right + 1;
    const beyond = visible.filter((one) => one.getBoundingClientRect().right > edge);
    return beyond.map((one) => `${one.tagName}.${one.className}`).slice(0, 3).join(", ");
  });
}

/** How many points of the first map are not of the colour of its first point. */
const painted = () => {
  const canvas = document.querySelector(".panel canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const words = new Uint32Array(data.buffer);
  return words.reduce((sum, word) => sum + (word === words[0] ? 0 : 1), 0);
};

/** A digest of the first map's points. */
const pixels = async () => {
  const canvas = document.querySelector(".panel canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", data))).join();
};

/** The ranges of time that the curves and every map show. */
async function ranges(page) {
  await page.waitForTimeout(150);
  return page.evaluate(() => [...document.querySelectorAll(".plot, .panel canvas")].map((one) => `${Number(one.dataset.t0).toFixed(3)} ${Number(one.dataset.t1).toFixed(3)}`));
}

/** Moves over a map until a description of a block shows; its text. */
async function hoverBlock(page, panel = 0) {
  const canvas = page.locator(".panel canvas").nth(panel);
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  for (let row = 0.95; row > 0.02; row -= 0.06) {
    for (const column of [0.55, 0.75, 0.35, 0.9]) {
      await page.mouse.move(box.x + 64 + (box.width - 64) * column, box.y + box.height * row);
      const text = await page.locator(".tip").evaluate((tip) => (tip.hidden ? "" : tip.textContent));
      if (text.includes("asked for")) return text;
    }
  }
  return "";
}

const chromium = await browser();

async function checkInput(name, inputs) {
  const made = report(name, inputs);
  const { page, errors } = await open(chromium, made.html);
  const devices = made.figures.inputs.flatMap((one) => one.devices);
  await test(`${name}: every section is there with the figures of --json`, async () => {
    for (const id of ["answer", "who", "time", "map", "why"]) equal(await page.locator(`section#${id}`).count(), 1, `section ${id}`);
    for (let i = 0; i < devices.length; i++) {
      if (devices.length > 1) await page.locator("#picker").selectOption({ index: i });
      checkFigures(await shownFigures(page), devices[i]);
    }
    if (devices.length > 1) await page.locator("#picker").selectOption({ index: 0 });
  });
  await test(`${name}: pointing at a block says its size, lifetime and stream`, async () => {
    const text = await hoverBlock(page);
    for (const word of ["bytes asked for", "lifetime", "stream"]) assert(text.includes(word), `no "${word}" in "${text}"`);
  });
  await test(`${name}: zooming and panning keep curves and maps on one axis`, async () => {
    const before = await ranges(page);
    equal(new Set(before).size, 1, "ranges at the start");
    if (devices[0].state_only) return;
    const box = await page.locator(".u-over").boundingBox();
    await page.locator(".u-over").scrollIntoViewIfNeeded();
    const over = await page.locator(".u-over").boundingBox();
    await page.mouse.move(over.x + box.width * 0.3, over.y + 60);
    await page.mouse.down();
    await page.mouse.move(over.x + box.width * 0.6, over.y + 60, { steps: 4 });
    await page.mouse.up();
    const zoomed = await ranges(page);
    equal(new Set(zoomed).size, 1, "ranges after a selection on the curves");
    assert(zoomed[0] !== before[0], "the selection did not zoom");
    await page.locator(".panel canvas").first().focus();
    await page.keyboard.press("+");
    await page.keyboard.press("ArrowRight");
    const moved = await ranges(page);
    equal(new Set(moved).size, 1, "ranges after keys on a map");
    assert(moved[0] !== zoomed[0], "the keys did nothing");
    await page.locator("#reset").click();
    equal((await ranges(page))[0], before[0], "range after Show all");
  });
  await test(`${name}: nothing on the console, nothing from a network, no room missing`, async () => {
    equal(errors.join("; "), "", "errors");
    for (const width of [1440, 1280, 1100]) equal(await overflowing(page, width), "", `beyond the edge at ${width}`);
  });
  await page.close();
  return made;
}

await checkInput("training", [input("training.pickle")]);
await checkInput("state-only", [input("state_only.pickle")]);
await checkInput("three-devices", [input("three_devices.pickle")]);
await checkInput("no-stacks-no-times", [input("no_stacks_no_times.pickle")]);
const million = await checkInput("million", [input("mem_log_dev0.txt")]);
if (recordings) {
  for (const name of ["octree_nca_train", "offload_ten_streams", "three_gpus_expandable_oom", "state_only"]) await checkInput(name, [join(recordings, `snapshots/${name}.pickle.zst`)]);
} else {
  console.log("SKIPPED  real snapshots: STALLOC_RECORDINGS names no folder");
}

await test("a million events: at most 20 MB, and the page stays fluid", async () => {
  const device = million.figures.inputs[0].devices[0];
  assert(device.events >= 1_000_000, `only ${device.events} events`);
  assert(million.size <= 20e6, `${million.size} bytes`);
  const { page, seconds } = await open(chromium, million.html);
  await page.locator(".panel canvas").first().focus();
  for (let i = 0; i < 3; i++) await page.keyboard.press("+");
  const { times: frames, whole } = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const canvas = document.querySelector(".panel canvas");
        const times = [];
        let whole = 0;
        const frame = (now) => {
          times.push(now);
          whole += canvas.dataset.painted ? 1 : 0;
          canvas.dispatchEvent(new KeyboardEvent("keydown", { key: times.length % 40 < 20 ? "ArrowRight" : "ArrowLeft" }));
          if (now - times[0] < 3000) requestAnimationFrame(frame);
          else resolve({ times, whole });
        };
        requestAnimationFrame(frame);
      }),
  );
  const rate = (1000 * (frames.length - 1)) / (frames.at(-1) - frames[0]);
  console.log(`        ${device.events} events, ${(million.size / 1e6).toFixed(1)} MB, open and drawn in ${seconds.toFixed(1)} s, panning at ${rate.toFixed(0)} frames a second, ${((100 * whole) / frames.length).toFixed(0)} % of them whole`);
  await page.close();
});

await test("a map that was panned to is, pixel for pixel, the one that is painted anew", async () => {
  const { html } = report("panned", [input("training.pickle")]);
  const at = async (link, keys) => {
    const { page } = await open(chromium, `${html}#${link}`);
    await page.locator(".panel canvas").first().focus();
    for (const key of keys) await page.keyboard.press(key);
    await page.waitForTimeout(400);
    await page.waitForFunction(() => [...document.querySelectorAll(".panel canvas")].every((canvas) => canvas.dataset.painted));
    const shown = { link: page.url().split("#")[1], pixels: await page.evaluate(pixels), points: await page.evaluate(painted) };
    await page.close();
    return shown;
  };
  const right = Array(9).fill("ArrowRight");
  const panned = await at("time=100-300&address=20000-220000", [...right, "ArrowUp", "ArrowUp", "ArrowLeft"]);
  const fresh = await at(panned.link, []);
  equal(fresh.link, panned.link, "the view");
  assert(panned.link.includes("time=260-460"), `panned to ${panned.link}`);
  assert(fresh.points > 10_000, `only ${fresh.points} points are painted`);
  equal(panned.pixels, fresh.pixels, "pixels");
  const zoomed = await at("time=100-300&address=20000-220000", ["-", "+", ...right, "ArrowUp", "ArrowUp", "ArrowLeft"]);
  equal(zoomed.pixels, fresh.pixels, "pixels after zooming out and in");
});

await test("the device that ran out of memory is shown first, and why it did", async () => {
  const { html, figures } = report("out-of-memory", [input("out_of_memory.pickle")]);
  const { page, errors } = await open(chromium, html);
  const [whole, failed] = figures.inputs[0].devices;
  equal(failed.out_of_memory.times, 2, "failures");
  equal(await page.locator("#picker").inputValue(), "0/1", "device shown");
  equal(failed.verdict, "too_large", "verdict");
  equal(plain(await page.locator(".failure").textContent()), failed.out_of_memory.sentence, "failure");
  equal(await page.locator(".devices tbody tr").count(), 2, "devices in the overview");
  await page.locator(".devices button").first().click();
  equal(await page.locator("#picker").inputValue(), "0/0", "device chosen in the overview");
  equal(await page.locator(".failure").count(), 0, "failures of the other device");
  equal(plain(await page.locator("#headline").textContent()), plain(whole.headline), "headline of the other device");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("names from a trace stay text", async () => {
  const { html } = report("evil", [input("training.pickle")]);
  assert(!readFileSync(html, "utf8").includes("onerror="), "markup from a name is in the file as it is");
  const { page } = await open(chromium, html);
  await page.locator(".panel canvas").first().scrollIntoViewIfNeeded();
  const box = await page.locator(".panel canvas").first().boundingBox();
  const shown = () => page.locator(".detail").evaluate((detail) => detail.textContent.includes("<img src=x"));
  for (let row = 0.95; row > 0.05 && !(await shown()); row -= 0.05) {
    for (let column = 0.1; column < 0.95 && !(await shown()); column += 0.05) await page.mouse.click(box.x + 64 + (box.width - 64) * column, box.y + box.height * row);
  }
  assert(await shown(), "the evil name was never shown");
  equal(await page.evaluate(() => window.pwned), undefined, "a script from a name ran");
  equal(await page.locator("img").count(), 0, "images");
  await page.close();
});

await test("the category switch, the colours and the hole marks redraw without errors", async () => {
  const { html } = report("switches", [input("training.pickle")]);
  const { page, errors } = await open(chromium, html);
  await page.locator("#by-category").click();
  for (const button of await page.locator(".maps .choice button").all()) await button.click();
  await page.locator("#holes").click();
  const off = page.locator("[data-chip][aria-pressed=false]");
  while ((await off.count()) > 0) await off.first().click();
  await page.waitForFunction(() => [...document.querySelectorAll(".panel canvas")].every((canvas) => canvas.dataset.painted));
  equal(new Set(await ranges(page)).size, 1, "ranges with every map shown");
  await page.locator(".holes button").first().click();
  equal(await page.evaluate(() => document.activeElement.tagName), "CANVAS", "a hole's button leads to the map");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("everything can be reached and used with the keyboard", async () => {
  const { html } = report("keys", [input("three_devices.pickle")]);
  const { page } = await open(chromium, html);
  const reached = new Set();
  for (let i = 0; i < 120; i++) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
  }
  for (const one of ["picker", "reset", "holes", "CANVAS", "A"]) assert(reached.has(one), `${one} was not reached`);
  await page.close();
});

await test("dark mode, a small screen and paper", async () => {
  const { html } = report("looks", [input("training.pickle")]);
  const light = await open(chromium, html);
  const paper = () => getComputedStyle(document.body).backgroundColor;
  const white = await light.page.evaluate(paper);
  assert((await light.page.pdf({ preferCSSPageSize: true })).length > 10_000, "nothing to print");
  await light.page.close();
  const dark = await open(chromium, html, { colorScheme: "dark", viewport: { width: 1280, height: 720 } });
  assert((await dark.page.evaluate(paper)) !== white, "dark mode looks like light mode");
  const table = await dark.page.locator("#answer table").boundingBox();
  assert(table.y + table.height <= 720, "the answer is not on the first screen");
  equal(dark.errors.join("; "), "", "errors");
  const seen = await dark.page.evaluate(painted);
  const printed = await dark.page.evaluate(`(dispatchEvent(new Event("beforeprint")), (${painted})())`);
  assert(printed > seen / 2, `${printed} points of the map are printed, ${seen} were seen`);
  await dark.page.close();
});

/** The holders that the page shows: name and bytes. */
const holders = (page) =>
  page.locator(".holders tbody tr:not(.muted)").evaluateAll((rows) => rows.map((row) => [row.querySelector("th").textContent, Number(row.querySelector("[data-bytes]").dataset.bytes)]));

await test("a death's page shows who holds the memory in Python, and what helps against that cause", async () => {
  const { html, figures } = report("death", [input("death.pickle")]);
  const { page, errors } = await open(chromium, html);
  const device = figures.inputs[0].devices[0];
  equal(`${device.verdict} ${device.cause}`, "growth hook", "verdict");
  const shown = await page.locator(".pythons tbody th").allTextContents();
  equal(shown.join("|"), device.holders.slice(0, 5).map((one) => one.holder.replaceAll("`", "")).join("|"), "holders");
  equal(shown[0], "list seen in the closure of hook at train.py:13", "the largest");
  assert((await page.locator(".todo .command code").first().textContent()).includes("handle.remove()"), "advice");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("who holds the memory at the peak, and at any moment that is chosen on the curve", async () => {
  const { html, figures } = report("holders", [input("out_of_memory.pickle")]);
  const { page, errors } = await open(chromium, html);
  const device = figures.inputs[0].devices[1];
  const wanted = device.peak_by_site.slice(0, 15).map((one) => [one.site, one.bytes]);
  equal(JSON.stringify(await holders(page)), JSON.stringify(wanted), "call sites at the peak");
  equal(device.peak_by_site.reduce((sum, one) => sum + one.bytes, 0), device.peak_allocated, "sum over call sites");
  assert(device.peak_allocated >= 5000 * 2 ** 20, "the failed request is not part of the peak");
  equal(await page.locator(".frame").first().textContent().then((text) => text.startsWith("everything")), true, "root of the flame graph");
  const over = page.locator(".u-over");
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  await page.mouse.click(box.x + box.width * 0.4, box.y + 80);
  const moment = Number(await page.locator("#who .lead").getAttribute("data-time"));
  assert(Math.abs(moment / page.viewportSize().width) > 0 && moment !== device.peak_time, "the moment was not chosen");
  assert(JSON.stringify(await holders(page)) !== JSON.stringify(wanted), "the table did not change");
  await over.focus();
  await page.keyboard.press(".");
  equal(Number(await page.locator("#who .lead").getAttribute("data-time")), moment + 1, "the next event");
  await page.keyboard.press(",");
  await page.keyboard.press(",");
  equal(Number(await page.locator("#who .lead").getAttribute("data-time")), moment - 1, "the event before");
  await page.locator("#at-peak").click();
  equal(JSON.stringify(await holders(page)), JSON.stringify(wanted), "back at the peak");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("the flame graph shows the user's lines, PyTorch's on demand, and looks closer on Enter", async () => {
  const { html } = report("flame", [input("training.pickle")]);
  const { page } = await open(chromium, html);
  assert((await page.locator(".frame.frame-0").count()) > 0, "no line of the user's");
  equal(await page.locator(".frame.frame-2").count(), 0, "PyTorch's frames at first");
  await page.locator("#all-frames").click();
  assert((await page.locator(".frame.frame-2").allTextContents()).some((text) => text.includes("_init_group")), "PyTorch's frames are not shown");
  const second = page.locator('.frame[aria-level="2"]').nth(1);
  const name = await second.textContent();
  await second.focus();
  await page.keyboard.press("Enter");
  const widths = await page.locator('.frame[aria-level="2"]').evaluateAll((frames) => frames.map((frame) => [frame.textContent, frame.style.width]));
  equal(JSON.stringify(widths), JSON.stringify([[name, "100%"]]), "the frame that was looked into");
  await page.close();
});

await test("a line, a function or a size is found and leads to its largest block", async () => {
  const { html } = report("search", [input("training.pickle")]);
  const { page, errors } = await open(chromium, html);
  const found = async (text) => {
    await page.locator("#search").fill(text);
    return page.locator("#found .hit").allTextContents();
  };
  const lines = await found("attention.py:42");
  assert(lines.length > 0 && (await found("attention")).length >= lines.length, "the line was not found");
  equal((await found("attention.py:41")).length, 0, "a line that is not there");
  assert((await found("18 MiB")).length > 0, "the size was not found");
  assert((await found("_init_group")).length > 0, "the function was not found");
  await found("attention.py:42");
  await page.locator("#search").press("Enter");
  await page.waitForTimeout(300);
  assert((await page.locator(".detail").textContent()).includes("attention.py:42"), "its largest block is not described");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("a link leads back to the device, the zoom, the moment, the block, the search and the section", async () => {
  const { html } = report("links", [input("three_devices.pickle")]);
  const { page } = await open(chromium, html);
  await page.locator("#picker").selectOption({ index: 1 });
  await page.locator(".panel canvas").first().focus();
  await page.keyboard.press("+");
  await page.keyboard.press("n");
  await page.keyboard.press("n");
  await page.keyboard.press(".");
  await page.locator("#search").fill("mlp.py");
  await page.locator("nav a", { hasText: "Map" }).click();
  await page.waitForTimeout(400);
  const state = () =>
    page.evaluate(() => ({
      picker: document.querySelector("#picker").value,
      moment: document.querySelector("#who .lead").dataset.time,
      detail: document.querySelector(".detail").textContent,
      search: document.querySelector("#search").value,
      t: [document.querySelector(".panel canvas").dataset.t0, document.querySelector(".panel canvas").dataset.t1].map((one) => Math.round(Number(one))).join(),
      map: Math.abs(document.querySelector("#map").getBoundingClientRect().top) < 120,
    }));
  const before = await state();
  const link = page.url();
  for (const part of ["device=0/1", "time=", "moment=", "block=", "search=mlp.py", "section=map"]) assert(link.includes(part), `no ${part} in ${link}`);
  assert(before.detail.length > 0 && before.map, "nothing was chosen");
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForSelector("html[data-ready]");
  await page.waitForTimeout(400);
  equal(JSON.stringify(await state()), JSON.stringify(before), "what the link leads to");
  await page.close();
});

await test("blocks are walked through and kept with the keyboard", async () => {
  const { html } = report("blocks", [input("training.pickle")]);
  const { page } = await open(chromium, html);
  const canvas = page.locator(".panel canvas").first();
  await canvas.focus();
  const texts = new Set();
  for (let i = 0; i < 4; i++) {
    await page.keyboard.press("n");
    texts.add(await page.locator(".detail").textContent());
  }
  equal(texts.size, 4, "blocks that were described");
  await page.keyboard.press("p");
  assert(texts.has(await page.locator(".detail").textContent()), "the block before was not described again");
  await page.keyboard.press("Escape");
  assert(await page.locator(".detail").isHidden(), "Escape keeps the description");
  for (const key of ["Enter", " "]) {
    for (let i = 0; i < 12; i++) await page.keyboard.press("PageUp");
    await page.keyboard.press(key);
    await page.keyboard.press("n");
    await page.keyboard.press(key);
    assert(await page.locator(".detail").isVisible(), `${key} keeps nothing`);
    await page.keyboard.press("Escape");
    await page.keyboard.press("0");
  }
  await page.close();
});

await test("every colour of the map is named, whatever it stands for", async () => {
  const { html, figures } = report("legend", [input("training.pickle")]);
  const { page } = await open(chromium, html);
  for (const button of await page.locator(".maps .choice button").all()) {
    await button.click();
    const names = await page.locator(".maps > .legend .entry").allTextContents();
    assert(names.includes("hole at the peak") && names.includes("reserved but empty"), names.join());
    if ((await button.getAttribute("data-value")) !== "site") continue;
    const sites = figures.inputs[0].devices[0].peak_by_site.slice(0, 7).map((one) => one.site);
    equal(names.slice(0, sites.length + 1).join("|"), [...sites, "every other"].join("|"), "call sites");
  }
  await page.close();
});

await test("on a phone everything fits the width and the answer is on the first screen", async () => {
  for (const name of ["out_of_memory", "training", "three_devices_of_a_training_that_has_a_long_name"]) {
    const { html } = report(`phone-${name}`, [input(`${name}.pickle`)]);
    const { page, errors } = await open(chromium, html, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert(wide <= 390, `${name}: the page is ${wide} wide`);
    const box = await page.locator("#headline").boundingBox();
    assert(box.y + box.height < 844, `${name}: the headline ends at ${box.y + box.height}`);
    const font = await page.locator(".tile .value").first().evaluate((one) => one.getBoundingClientRect().right);
    assert(font <= 390, `${name}: a figure is cut off`);
    equal(errors.join("; "), "", "errors");
    await page.close();
  }
});

if (process.env.SHOTS) {
  for (const name of ["out_of_memory", "training"]) {
    const { html } = report(`shot-${name}`, [input(`${name}.pickle`)]);
    for (const [width, colorScheme] of [[1440, "light"], [1440, "dark"], [1024, "light"], [390, "light"], [390, "dark"]]) {
      const { page } = await open(chromium, html, { viewport: { width, height: width === 390 ? 844 : 900 }, colorScheme });
      await page.screenshot({ path: join(process.env.SHOTS, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      await page.close();
    }
  }
}

await test("two inputs are compared, most bytes first, as --json says", async () => {
  const { html, figures } = report("compared", [input("training.pickle"), input("wider.pickle")]);
  const { page, errors } = await open(chromium, html);
  const [comparison] = figures.comparisons;
  const shown = await page.locator("#compare .differences [data-bytes]").evaluateAll((cells) => cells.map((cell) => Number(cell.dataset.bytes)));
  const wanted = [...comparison.figures, ...comparison.categories, ...comparison.sites, ...comparison.sizes].map((one) => one.after - one.before);
  equal(shown.join(), wanted.join(), "differences");
  assert(comparison.sites.length > 0, "no call site differs");
  const sizes = comparison.sites.map((one) => Math.abs(one.after - one.before));
  assert(sizes.every((size, i) => i === 0 || size <= sizes[i - 1]), "not ranked");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("the snapshot of the plan is one that memory_viz reads", async () => {
  const out = input("planned.pickle");
  const { figures } = report("planned", [input("training.pickle")], ["--snapshot", out]);
  const plan = figures.inputs[0].devices[0].allocators.find((one) => one.allocator === "stalloc");
  execFileSync("python3", [join(here, "check_snapshot.py"), out, String(plan.peak_reserved), String(plan.peak_allocated)], { stdio: "pipe" });
});

await test("a state without a history has figures, but no plan to write a snapshot of", async () => {
  const made = spawnSync(STALLOC, ["report", input("state_only.pickle"), "--json", "--snapshot", input("none.pickle")], { encoding: "utf8" });
  equal(made.status, 2, "exit status");
  assert(JSON.parse(made.stdout).inputs[0].devices[0].state_only, "the figures are not printed");
  assert(made.stderr.includes("record a history") && !existsSync(input("none.pickle")), made.stderr);
});

await test("pictures are written", async () => {
  report("pictures", [input("training.pickle")], ["--svg", input("a.svg"), "--png", input("a.png")]);
  const { page, errors } = { page: await chromium.newPage(), errors: [] };
  page.on("console", (message) => errors.push(message.text()));
  await page.goto(`file://${input("a.svg")}`);
  assert((await page.locator("text").count()) > 10 && (await page.locator("image").count()) === 2, "the SVG lacks text or maps");
  equal(readFileSync(input("a.png")).subarray(1, 4).toString(), "PNG", "the PNG's first bytes");
  equal(errors.join("; "), "", "errors");
  await page.close();
});

await test("the committed page is what its sources build", async () => {
  const built = input("built.html");
  execFileSync("node", [join(root, "crates/report/web/build.mjs"), "--out", built]);
  assert(same(built, join(root, "crates/report/assets/page.html")), "run `npm ci && npm run build` in crates/report/web and commit assets/page.html");
});

await test("the sources of the page type-check", async () => {
  execFileSync("node", [join(root, "crates/report/web/node_modules/typescript/bin/tsc"), "--noEmit", "-p", join(root, "crates/report/web")]);
});

await test("lock files name no host but the public registry", async () => {
  for (const lock of ["crates/report/web/package-lock.json", "tests/browser/package-lock.json"]) {
    const packages = Object.values(JSON.parse(readFileSync(join(root, lock), "utf8")).packages);
    const odd = packages.map((one) => one.resolved).filter((url) => url && !url.startsWith("https://registry.npmjs.org/"));
    equal(odd.join(), "", lock);
  }
});

await chromium.close();
finish();
