// Checks exports: scans parts of check.input, compares them with those of check.expected, and counts what passed in a
// column of gpuscan's matrix.
import { ARRAYS, Scan } from "./scan.js";

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

/** Where two results of a field differ, in words; null where they agree. With a tolerance of 0, all bits must agree. */
function difference(field, tolerance, ...results) {
  const [found, wanted] = results.map((result) => new Uint8Array(result.buffer));
  if (found.length !== wanted.length) {
    return `${found.length / field.bytes} elements of ${field.name} were found, and ${wanted.length / field.bytes} expected`;
  }
  const [a, b] = [floatsOf(field.type, found), floatsOf(field.type, wanted)];
  if (a && tolerance) {
    const allowed = field.type.endsWith("float16") ? Math.max(tolerance, 2 ** -6) : tolerance;
    const same = (x, y) => Object.is(x, y) || x === y || Math.abs(x - y) <= allowed * Math.max(1, Math.abs(y));
    const at = a.findIndex((value, i) => !same(value, b[i]));
    return at < 0 ? null : `number ${at} of ${field.name}: found ${a[at]}, expected ${b[at]}`;
  }
  const at = found.findIndex((byte, i) => byte !== wanted[i]);
  return at < 0 ? null : `element ${Math.floor(at / field.bytes)} of ${field.name} is the first that differs`;
}

/** The places of arrays that follow each other in a file, each padded: their begins, and the bytes and types of elements. */
function placesOf(fields, length) {
  let end = 0;
  return fields.map(({ bytes, type }) => {
    const start = end;
    end += padded(length * bytes);
    return { start, bytes, type };
  });
}

/** The elements of each field from `first` on, in the typed array of the field. */
const partsOf = (places, content, first, size) =>
  places.map(({ start, bytes, type }) => {
    return new globalThis[ARRAYS[type][0]](content.slice(start + first * bytes, start + (first + size) * bytes));
  });

/** What a scan of `size` elements takes and gives: the first ones of the samples, or the last if it begins at the end. */
function sampleOf(plan, input, expected, size) {
  const { sizes, offsets } = plan.check;
  const total = Math.max(...sizes);
  const first = plan.reverse ? total - size : 0;
  if (!plan.compact) {
    const places = placesOf(plan.fields, total);
    const segments = offsets?.map((offset) => Math.min(Math.max(offset - first, 0), size));
    return { x: partsOf(places, input, first, size), wanted: partsOf(places, expected, first, size), options: { segments } };
  }
  const places = placesOf([...plan.fields, { bytes: 1, type: "bool" }], total);
  const [all] = partsOf(places.slice(-1), input, 0, total);
  const picked = (mask) => mask.reduce((sum, bit) => sum + bit, 0);
  const mask = all.subarray(0, size);
  return {
    x: partsOf(places.slice(0, -1), input, 0, size),
    wanted: partsOf(placesOf(plan.fields, picked(all)), expected, 0, picked(mask)),
    options: plan.compact === "mask" ? { mask } : {},
  };
}

function elementOf(plan) {
  const types = plan.fields.map(({ type, numbers }) => (numbers > 1 ? `${numbers} ${type}` : type));
  return types.length > 1 ? `(${types.join(", ")})` : types[0];
}

/** The row of the matrix for a size. Where tiles end depends on the GPU, so these sizes share a row. */
function sizeOf(plan, size) {
  const { sizes } = plan.check;
  return size === sizes.at(-1) || size <= 33 ? size.toLocaleString("en-US") : "edges of tiles";
}

function layoutOf(plan) {
  if (plan.compact) return `by a ${plan.compact}`;
  return ["exclusive", "reverse", "segments"].filter((name) => plan[name]).join(", ") || "inclusive";
}

/** What the scan is, and how it runs. */
export function described(scan) {
  const lanes = scan.subgroupSize ? ` with subgroups of ${scan.subgroupSize}` : "";
  return `${scan.plan.operator} of ${elementOf(scan.plan)}, ${layoutOf(scan.plan)}, by ${scan.strategy}${lanes}`;
}

/** A column of the matrix for a device, without results. */
export function columnOf(device, suite, version) {
  const { vendor, architecture, device: name, description } = device.adapterInfo ?? {};
  return {
    adapter: [name, vendor, architecture].filter(Boolean).join(" ") || "unnamed adapter",
    driver: description || "not told",
    implementation: navigator.userAgent.match(/(HeadlessChrome|Edg|Firefox|Chrome|Version)\/[\d.]+/g)?.at(-1) ?? "browser",
    version: `gpuscan ${version}, in the browser`,
    date: new Date().toISOString().slice(0, 10),
    suite,
    subgroups: 0,
    cells: { strategy: {}, element: {}, operator: {}, layout: {}, size: {} },
    failures: [],
  };
}

/** A file for `gpuscan matrix --merge`, of columns. */
export const matrixOf = (columns) => ({ format: "gpuscan matrix 1", columns });

/** The scan at `base` by the strategy that pages get, then by each other one that the GPU can run. */
export async function* scansOf(device, base) {
  const scan = await Scan.create(device, base);
  yield scan;
  for (const strategy of new Set(scan.plan.variants.map((variant) => variant.strategy))) {
    if (strategy === scan.strategy) continue;
    try {
      yield await Scan.create(device, base, { strategy });
    } catch (error) {
      if (!(error instanceof RangeError)) throw error; // the GPU has not the subgroups for it
    }
  }
}

/** Checks a scan with the samples at `base`, adds what it finds to a column, and returns how many sizes failed. */
export async function checkInto(column, scan, base) {
  const { plan } = scan;
  if (!plan.check) throw new Error("the operator has no Python function, so there is nothing to check the scan with");
  const bytesOf = async (name) => (await fetch(new URL(name, base))).arrayBuffer();
  const [input, expected] = await Promise.all([bytesOf("check.input"), bytesOf("check.expected")]);
  column.subgroups = Math.max(column.subgroups, scan.subgroupSize);
  let failed = 0;
  for (const size of plan.check.sizes) {
    let failure = null;
    try {
      const { x, wanted, options } = sampleOf(plan, input, expected, size);
      const found = await scan.run(x, options);
      const apart = plan.fields.map((field, i) => difference(field, plan.check.tolerance, found[i], wanted[i]));
      failure = apart.find(Boolean) ?? null;
    } catch (error) {
      failure = String(error);
    }
    if (failure) column.failures.push(`${scan.strategy}, ${plan.operator} of ${elementOf(plan)}, ${size} elements: ${failure}`);
    failed += failure ? 1 : 0;
    const rows = [scan.strategy, elementOf(plan), plan.operator, layoutOf(plan), sizeOf(plan, size)];
    Object.values(column.cells).forEach((kind, i) => {
      const cell = (kind[rows[i]] ??= { passed: 0, run: 0, refused: 0 });
      cell.run += 1;
      cell.passed += failure ? 0 : 1;
    });
  }
  return failed;
}

/** How many checks of a run passed, in words. */
function countsOf({ cells, adapter }) {
  const ways = Object.entries(cells.strategy).map(([strategy, { passed, run }]) => `${passed} of ${run} by ${strategy}`);
  return `Results on ${adapter} that are NumPy's: ${ways.join(", ")}.`;
}

/** Runs the check of an export in the elements of its page. If the page's address has ?report, posts the run there. */
export async function checkPage(base) {
  const columns = [];
  let [column, error] = [];
  try {
    const device = await Scan.device();
    for await (const scan of scansOf(device, base)) {
      document.querySelector("#plan").textContent ||= described(scan);
      column ??= columnOf(device, "exported page", scan.plan.version);
      await checkInto(column, scan, base);
      scan.destroy();
    }
    columns.push(column);
  } catch (thrown) {
    error = String(thrown);
  }
  const failures = columns.flatMap((column) => column.failures);
  const verdict = error || failures.length > 0 ? "failed" : "passed";
  const text = JSON.stringify({ ...matrixOf(columns), error }, null, 1);
  const heading = document.querySelector("#verdict");
  heading.textContent = document.title = `gpuscan: ${verdict}`;
  heading.dataset.verdict = verdict;
  document.querySelector("#counts").textContent = error ?? columns.map(countsOf).join(" ");
  document.querySelector("#failures").replaceChildren(
    ...failures.map((failure) => Object.assign(document.createElement("li"), { textContent: failure })),
  );
  document.querySelector("#report").textContent = text;
  const save = document.querySelector("#save");
  save.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  document.querySelector("#run").hidden = Boolean(error);
  if (new URLSearchParams(location.search).has("report")) await fetch(location.href, { method: "POST", body: text });
}
