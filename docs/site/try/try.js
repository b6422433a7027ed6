// The page "Try it in your browser": measures scans and a loop, draws the speeds, runs the conformance cases, and
// offers the results as a file for `gpuscan matrix --merge`. Tests use an address with ?report&longest=18: the page then
// starts by itself, scans up to 2^18 numbers, and posts the results to that address.
import { checkInto, columnOf, described, matrixOf, scansOf } from "./sums/check.js";
import { Scan } from "./sums/scan.js";

const here = (path) => new URL(path, import.meta.url);
const element = (name) => document.querySelector(`#try-${name}`);

const asked = new URLSearchParams(location.search);
// The lengths that are measured.
const LONGEST = Number(asked.get("longest") ?? 24);
const LENGTHS = [12, 14, 16, 18, 20, 22, 24].filter((bits) => bits <= LONGEST).map((bits) => 2 ** bits);
// How long one speed is measured, in milliseconds, and how often if that is not too long. A browser's clock may tick in
// steps of 0.1 ms.
const MEASURED_MS = 60;
const MEASURED_TIMES = 3;
const LONG_MS = 500;
// The most scans that are recorded into one command encoder.
const MOST_SCANS = 256;

const SERIES = [
  { name: "GPU", colour: "#2563eb" },
  { name: "GPU with transfers", colour: "#d97706" },
  { name: "JavaScript loop", colour: "#6b7280" },
];

function say(text, kind = "") {
  element("status").textContent = text;
  element("status").className = kind;
}

/** Lets the browser draw what has changed. */
const drawn = () => new Promise((resolve) => setTimeout(resolve, 0));

// ----- Speeds

function loop(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) y[i] = sum = (sum + x[i]) | 0;
}

/** The least time of a call in milliseconds, over several calls, or the time of one long call. */
async function least(call) {
  let best = Infinity;
  const start = performance.now();
  for (let times = 0, passed = 0; passed < (times < MEASURED_TIMES ? LONG_MS : MEASURED_MS); times++) {
    const before = performance.now();
    await call();
    best = Math.min(best, performance.now() - before);
    passed = performance.now() - start;
  }
  return best;
}

/** The time of one scan of what is on the GPU: the difference between many scans and one, divided by their number. */
async function timeOnGpu(scan, x) {
  const { device } = scan;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST;
  const [source, destination] = [0, 1].map(() => device.createBuffer({ size: x.byteLength, usage }));
  device.queue.writeBuffer(source, 0, x);
  const times = (scans) =>
    least(async () => {
      const encoder = device.createCommandEncoder();
      for (let i = 0; i < scans; i++) scan.record(encoder, source, destination, x.length);
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
    });
  try {
    const once = await times(1);
    if (once > LONG_MS) return once; // what a submission takes is no part of that
    let scans = Math.min(MOST_SCANS, Math.max(2, Math.ceil(MEASURED_MS / once)));
    for (; ; scans *= 4) {
      const many = await times(1 + scans);
      // Short scans may vanish in the time that a submission takes. Then more of them are needed.
      if (many > 1.5 * once || scans >= MOST_SCANS) return Math.max(many - once, 0.001) / scans;
    }
  } finally {
    source.destroy();
    destination.destroy();
  }
}

/** The time of one loop. Short ones run several times, until the clock has moved on. */
async function timeOfLoop(x, y) {
  for (let loops = 1; ; loops *= 4) {
    const time = await least(() => {
      for (let i = 0; i < loops; i++) loop(x, y);
    });
    if (time > MEASURED_MS / 20) return time / loops;
  }
}

/** The time of each series at a length, in milliseconds, after the results were compared. */
async function timesAt(scan, length) {
  const x = new Int32Array(length);
  for (let i = 0; i < length; i++) x[i] = Math.imul(i + 1, 0x9e3779b1);
  const y = new Int32Array(length);
  loop(x, y);
  let found;
  const withTransfers = await least(async () => (found = await scan.run(x)));
  const wrong = found.findIndex((value, i) => value !== y[i]);
  if (wrong >= 0) throw new Error(`sum ${wrong} of ${length} is ${found[wrong]} on this GPU and ${y[wrong]} in the loop`);
  return [await timeOnGpu(scan, x), withTransfers, await timeOfLoop(x, y)];
}

async function measure(scan) {
  const speeds = [];
  for (const length of LENGTHS.filter((each) => 4 * each <= scan.device.limits.maxStorageBufferBindingSize)) {
    say(`Scanning ${length.toLocaleString("en-US")} numbers …`);
    await drawn();
    const milliseconds = await timesAt(scan, length);
    speeds.push({ length, milliseconds, rates: milliseconds.map((time) => (8e-6 * length) / time) });
    show(speeds);
  }
  return speeds;
}

// ----- Pictures of speeds

const inWords = (value) => (value >= 100 ? Math.round(value).toLocaleString("en-US") : value.toPrecision(3));
const superscript = (number) => [...String(number)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

function show(speeds) {
  element("speeds").hidden = false;
  const { length, milliseconds } = speeds.at(-1);
  const [gpu, , cpu] = milliseconds;
  const factor = cpu / gpu;
  const compared = factor >= 1 ? `${inWords(factor)} times as fast as` : `${inWords(1 / factor)} times slower than`;
  element("verdict").textContent =
    `Your GPU scans ${length.toLocaleString("en-US")} numbers in ${inWords(gpu)} ms: ${compared} the loop, which takes ` +
    `${inWords(cpu)} ms.`;
  const rows = speeds.map(({ length, milliseconds, rates }) => {
    const cells = rates.map((rate, i) => `<td>${inWords(milliseconds[i])} ms<br><small>${inWords(rate)} GB/s</small></td>`);
    return `<tr><th scope="row">2${superscript(Math.log2(length))}</th>${cells.join("")}</tr>`;
  });
  const heads = SERIES.map(({ name }) => `<th scope="col">${name}</th>`).join("");
  element("table").innerHTML = `<thead><tr><th scope="col">numbers</th>${heads}</tr></thead><tbody>${rows.join("")}</tbody>`;
  draw(speeds);
}

/** Draws speed against length, both on logarithmic axes, as wide as the page allows. */
function draw(speeds) {
  const chart = element("chart");
  const width = Math.max(280, Math.min(720, chart.clientWidth));
  const height = Math.max(240, Math.round(width * 0.5));
  const [left, right, top, bottom] = [56, 12, 28, 40];
  const rates = speeds.flatMap(({ rates }) => rates);
  const [low, high] = [Math.floor(Math.log10(Math.min(...rates))), Math.ceil(Math.log10(Math.max(...rates)))];
  const bits = LENGTHS.map(Math.log2);
  const x = (length) => left + ((Math.log2(length) - bits[0]) / (bits.at(-1) - bits[0])) * (width - left - right);
  const y = (rate) => top + ((high - Math.log10(rate)) / Math.max(1, high - low)) * (height - top - bottom);
  const parts = [];
  for (let power = low; power <= high; power++) {
    const at = y(10 ** power);
    parts.push(`<line x1="${left}" x2="${width - right}" y1="${at}" y2="${at}" stroke="currentColor" opacity="0.15"/>`);
    parts.push(`<text x="${left - 6}" y="${at + 4}" text-anchor="end">${power < 0 ? (10 ** power).toFixed(-power) : 10 ** power}</text>`);
  }
  for (const length of LENGTHS) {
    parts.push(`<text x="${x(length)}" y="${height - bottom + 18}" text-anchor="middle">2${superscript(Math.log2(length))}</text>`);
  }
  parts.push(`<text x="4" y="14">GB/s</text>`);
  parts.push(`<text x="${(left + width) / 2}" y="${height - 4}" text-anchor="middle">numbers</text>`);
  SERIES.forEach(({ name, colour }, i) => {
    const points = speeds.map(({ length, rates }) => `${x(length).toFixed(1)},${y(rates[i]).toFixed(1)}`);
    parts.push(`<polyline points="${points.join(" ")}" fill="none" stroke="${colour}" stroke-width="2.5"/>`);
    for (const point of points) {
      const [cx, cy] = point.split(",");
      parts.push(`<circle cx="${cx}" cy="${cy}" r="3.5" fill="${colour}"><title>${name}</title></circle>`);
    }
  });
  const legend = SERIES.map(({ name, colour }) => `<span><i style="background: ${colour}"></i>${name}</span>`).join(" ");
  chart.innerHTML =
    `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" ` +
    `aria-label="Speed against the number of numbers; the table has the figures">${parts.join("")}</svg>` +
    `<figcaption>${legend}</figcaption>`;
}

// ----- Conformance

/** Runs every case, and returns the column of the matrix. */
async function conform(device) {
  const names = await (await fetch(here("cases.json"))).json();
  element("conformance").hidden = false;
  let column = null;
  for (const name of names) {
    const line = document.createElement("li");
    line.textContent = `${name} …`;
    element("cases").append(line);
    const base = here(`${name}/`);
    const ways = [];
    let [failed, sizes] = [0, 0];
    for await (const scan of scansOf(device, base)) {
      column ??= columnOf(device, "page of the site", scan.plan.version);
      failed += await checkInto(column, scan, base);
      sizes += scan.plan.check.sizes.length;
      ways.push(ways.length ? scan.strategy : described(scan));
      scan.destroy();
    }
    line.className = failed ? "failed" : "passed";
    line.textContent = `${ways.join(" and ")}: ${failed ? `${failed} of ${sizes} checks failed` : `${sizes} checks passed`}`;
  }
  return column;
}

// ----- The run

async function run() {
  element("run").disabled = true;
  element("cases").replaceChildren();
  let result;
  try {
    const device = await Scan.device();
    const lost = device.lost.then(({ message }) => {
      throw new Error(`the browser took the GPU away: ${message || "no reason was given"}. Load the page again`);
    });
    const scan = await Scan.create(device, here("sums/"));
    element("software").hidden = !device.adapterInfo?.isFallbackAdapter;
    const speeds = await Promise.race([measure(scan), lost]);
    scan.destroy();
    addEventListener("resize", () => draw(speeds));
    say("Running the conformance cases …");
    const column = await Promise.race([conform(device), lost]);
    result = { ...matrixOf([column]), speeds };
    const failed = column.failures.length;
    say(failed ? `${failed} conformance cases failed on ${column.adapter}.` : `All conformance cases passed on ${column.adapter}.`, failed ? "failed" : "passed");
    element("save").href = URL.createObjectURL(new Blob([JSON.stringify(result, null, 1)], { type: "application/json" }));
    element("file").hidden = false;
  } catch (error) {
    result = { error: error.message };
    say(`This did not work: ${error.message}.`, "failed");
  }
  element("run").disabled = false;
  return result;
}

say("");
element("run").disabled = false;
element("run").addEventListener("click", run);
if (asked.has("report")) {
  const result = await run();
  const seen = {
    status: element("status").textContent,
    lines: element("chart").querySelectorAll("polyline").length,
    rows: element("table").querySelectorAll("tbody tr").length,
    offered: !element("file").hidden && element("save").href.startsWith("blob:"),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
  await fetch(location.href, { method: "POST", body: JSON.stringify({ ...result, seen }) });
}
