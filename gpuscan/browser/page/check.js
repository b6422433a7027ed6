// The page's self-check: scans parts of check.input, compares them with those of check.expected, and shows the verdict,
// with the run as a column of gpuscan's matrix. Where the page's address has ?report, the run is posted to it.
import { Scan } from "./scan.js";

const bytesOf = async (name) => (await fetch(new URL(name, import.meta.url))).arrayBuffer();
const padded = (bytes) => Math.ceil(bytes / 16) * 16;

/** The floats of a field's bytes, or null for types that are compared bit by bit. */
function floatsOf(type, bytes) {
  if (type === "float32" || type === "complex64") return new Float32Array(bytes.buffer);
  const bits = Array.from(new Uint16Array(type.endsWith("float16") ? bytes.buffer : new ArrayBuffer(0)));
  if (type === "bfloat16") return new Float32Array(new Uint32Array(bits.map((each) => each << 16)).buffer);
  if (type !== "float16") return null;
  return bits.map((each) => {
    const [sign, exponent, fraction] = [each >> 15 ? -1 : 1, (each >> 10) & 31, each & 1023];
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
}

/** Where two results of a field differ, in words; null where they agree. */
function difference(field, tolerance, found, wanted) {
  const [a, b] = [floatsOf(field.type, found), floatsOf(field.type, wanted)];
  if (a) {
    const allowed = field.type.endsWith("float16") ? Math.max(tolerance, 2 ** -6) : tolerance;
    const same = (x, y) => Object.is(x, y) || x === y || Math.abs(x - y) <= allowed * Math.max(1, Math.abs(y));
    const at = a.findIndex((value, i) => !same(value, b[i]));
    return at < 0 ? null : `number ${at} of ${field.name}: found ${a[at]}, expected ${b[at]}`;
  }
  const at = found.findIndex((byte, i) => byte !== wanted[i]);
  return at < 0 ? null : `element ${Math.floor(at / field.bytes)} of ${field.name} is the first that differs`;
}

/** The bytes of each field of `size` elements: the first ones, or the last if the scan begins at the end. */
function partsOf(plan, total, content, size) {
  let start = 0;
  return plan.fields.map(({ bytes }) => {
    const from = start + (plan.reverse ? (total - size) * bytes : 0);
    start += padded(total * bytes);
    return new Uint8Array(content.slice(from, from + size * bytes));
  });
}

function segmentsOf(plan, total, size) {
  const { offsets } = plan.check;
  if (!offsets) return undefined;
  const from = plan.reverse ? total - size : 0;
  return offsets.map((offset) => Math.min(Math.max(offset - from, 0), size));
}

async function check() {
  const device = await Scan.device();
  const scan = await Scan.create(device);
  const { plan } = scan;
  if (!plan.check) throw new Error("the operator has no Python function, so there is nothing to check the scan with");
  const element = plan.fields.map(({ type, numbers }) => (numbers > 1 ? `${numbers} ${type}` : type)).join(", ");
  const layout = ["exclusive", "reverse", "segments"].filter((name) => plan[name]).join(", ") || "inclusive";
  const lanes = scan.subgroupSize ? ` with subgroups of ${scan.subgroupSize}` : "";
  document.querySelector("#plan").textContent = `${plan.operator} of ${element}, ${layout}, by ${scan.strategy}${lanes}`;
  const [input, expected] = await Promise.all([bytesOf("check.input"), bytesOf("check.expected")]);
  const total = Math.max(...plan.check.sizes);
  const cells = { strategy: {}, element: {}, operator: {}, layout: {}, size: {} };
  const failures = [];
  for (const size of plan.check.sizes) {
    let failure = null;
    try {
      const found = await scan.run(partsOf(plan, total, input, size), { segments: segmentsOf(plan, total, size) });
      const wanted = partsOf(plan, total, expected, size);
      const apart = plan.fields.map((field, i) => difference(field, plan.check.tolerance, found[i], wanted[i]));
      failure = apart.find(Boolean) ?? null;
    } catch (error) {
      failure = String(error);
    }
    if (failure) failures.push(`${scan.strategy}, ${plan.operator} of ${element}, ${size} elements: ${failure}`);
    const rows = [scan.strategy, element, plan.operator, layout, size.toLocaleString("en-US")];
    Object.values(cells).forEach((kind, i) => {
      const cell = (kind[rows[i]] ??= { passed: 0, run: 0, refused: 0 });
      cell.run += 1;
      cell.passed += failure ? 0 : 1;
    });
  }
  const { vendor, architecture, device: name, description } = device.adapterInfo ?? {};
  return {
    adapter: [name, vendor, architecture].filter(Boolean).join(" ") || "unnamed adapter",
    driver: description || "not told",
    implementation: navigator.userAgent.match(/(HeadlessChrome|Edg|Firefox|Chrome|Version)\/[\d.]+/g)?.at(-1) ?? "browser",
    version: `gpuscan ${plan.version}, in the browser`,
    date: new Date().toISOString().slice(0, 10),
    suite: "exported page",
    subgroups: scan.subgroupSize,
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
