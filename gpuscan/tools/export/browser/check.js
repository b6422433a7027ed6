// The page's self-check: scans the beginnings of check.input, compares them with those of check.expected, and shows the
// verdict, with the run as a column of gpuscan's matrix. Where the page's address has ?report, the run is posted to it.
import { Scan } from "./scan.js";

const bytesOf = async (name) => (await fetch(new URL(name, import.meta.url))).arrayBuffer();

/** Where two results of the same bytes differ, in words; null where they agree. */
function difference(plan, found, wanted) {
  if (plan.tolerance > 0) {
    const [a, b] = [new Float32Array(found.buffer), new Float32Array(wanted.buffer)];
    const at = a.findIndex((value, i) => !(Math.abs(value - b[i]) <= plan.tolerance * Math.max(1, Math.abs(b[i]))));
    return at < 0 ? null : `element ${at}: found ${a[at]}, expected ${b[at]}`;
  }
  const at = found.findIndex((byte, i) => byte !== wanted[i]);
  return at < 0 ? null : `element ${Math.floor(at / plan.element_bytes)} is the first that differs`;
}

async function check() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error(navigator.gpu ? "no WebGPU adapter" : "this browser has no WebGPU");
  const device = await adapter.requestDevice();
  const plan = await (await fetch(new URL("plan.json", import.meta.url))).json();
  document.querySelector("#plan").textContent = `${plan.operator} of ${plan.element} by ${plan.strategy}`;
  const [input, expected] = await Promise.all([bytesOf("check.input"), bytesOf("check.expected")]);
  const scan = await Scan.create(device);
  const cells = { strategy: {}, element: {}, operator: {}, layout: {}, size: {} };
  const failures = [];
  for (const size of plan.check_sizes) {
    const bytes = size * plan.element_bytes;
    let failure = null;
    try {
      failure = difference(plan, await scan.run(new Uint8Array(input, 0, bytes)), new Uint8Array(expected.slice(0, bytes)));
    } catch (error) {
      failure = String(error);
    }
    if (failure) failures.push(`${plan.strategy}, ${plan.operator} of ${plan.element}, ${size} elements: ${failure}`);
    const rows = [plan.strategy, plan.element, plan.operator, "inclusive", size.toLocaleString("en-US")];
    Object.values(cells).forEach((kind, i) => {
      const cell = (kind[rows[i]] ??= { passed: 0, run: 0, refused: 0 });
      cell.run += 1;
      cell.passed += failure ? 0 : 1;
    });
  }
  const { vendor, architecture, device: name, description } = adapter.info;
  return {
    adapter: [name, vendor, architecture].filter(Boolean).join(" ") || "unnamed adapter",
    driver: description || "not told",
    implementation: navigator.userAgent.match(/(HeadlessChrome|Edg|Firefox|Chrome|Version)\/[\d.]+/g)?.at(-1) ?? "browser",
    version: `gpuscan ${plan.version}, in the browser`,
    date: new Date().toISOString().slice(0, 10),
    suite: "exported page",
    cells,
    failures,
  };
}

const run = { format: "gpuscan matrix 1", columns: [] };
let verdict = "passed";
try {
  run.columns.push(await check());
  if (run.columns[0].failures.length > 0) verdict = "failed";
} catch (error) {
  verdict = "failed";
  run.error = String(error);
}
const text = JSON.stringify(run, null, 1);
const heading = document.querySelector("#verdict");
heading.textContent = document.title = `gpuscan: ${verdict}`;
heading.dataset.verdict = verdict;
document.querySelector("#report").textContent = text;
const save = document.querySelector("#save");
save.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
save.hidden = false;
if (new URLSearchParams(location.search).has("report")) await fetch(location.href, { method: "POST", body: text });
