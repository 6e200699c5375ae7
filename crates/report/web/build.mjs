// Bundles the page into one HTML file that needs nothing else: ../assets/page.html, which the Rust crate embeds.
// `node build.mjs --out FILE` writes it elsewhere, so that a test can compare it with the committed one.
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const flag = process.argv.indexOf("--out");
const out = flag > 0 ? process.argv[flag + 1] : here("../assets/page.html");

const bundle = async (entry, extra = {}) => {
  const result = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    charset: "ascii",
    legalComments: "none",
    ...extra,
  });
  return result.outputFiles[0].text.trim();
};

const worker = await bundle("src/worker.ts", { format: "iife" });
const script = await bundle("src/main.ts", { format: "iife", define: { WORKER_SOURCE: JSON.stringify(worker) } });
const style = await bundle("src/style.css");
const template = await readFile(here("src/template.html"), "utf8");
// A closing tag inside a string of the script would end the script early.
const safe = script.replaceAll("</script", "<\\/script");
const page = template.replace("/*style*/", () => style).replace("/*script*/", () => safe);
await writeFile(out, page);
console.log(`${out}: ${page.length} bytes`);
