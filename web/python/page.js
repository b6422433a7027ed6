// The page "Python on your GPU": an editor with examples, a plot of speeds, and the report on the visitor's GPU.
import { Python, missing } from "./python.js";

const FIRST = `import numpy as np
import gpuscan as gs

x = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
highest = gs.scan(x, "maximum")          # as np.maximum.accumulate, on your GPU
print(gs.default_device().capabilities.summary)
print(highest[[0, 1_000, 999_999]])


def affine(l, r):                        # any associative function of yours
    return l[0] * r[0], r[0] * l[1] + r[1]


decay, inputs = np.full_like(x, 0.9), x
print(gs.scan((decay, inputs), affine)[1][-3:])
`;
const LONGEST = { software: 20, hardware: 24 };
const SERIES = [
  { name: "gpuscan, array on the GPU", colour: "#2563eb" },
  { name: "gpuscan, NumPy array in and out", colour: "#d97706" },
  { name: "np.cumsum", colour: "#6b7280" },
];

const query = new URLSearchParams(location.search);
const python = new Python();
const root = document.querySelector("#gpuscan-python");
root.innerHTML = `
  <div class="bar">
    <select name="example" aria-label="Example"></select>
  </div>
  <textarea name="code" aria-label="Program" spellcheck="false" autocapitalize="off" autocomplete="off"></textarea>
  <div class="bar">
    <button name="run" type="button">Run</button>
    <button name="stop" type="button" class="second" disabled>Stop</button>
    <span class="status" role="status"></span>
  </div>
  <pre class="terminal" aria-label="Output" tabindex="0"></pre>
  <h2>How fast is it here?</h2>
  <p>Running sums of 32-bit integers, on your GPU and by NumPy in this page. Each result is compared with NumPy's.</p>
  <div class="bar"><button name="measure" type="button" class="second">Measure</button></div>
  <figure></figure>
  <h2>Report on your GPU</h2>
  <p>
    What <code>gpuscan probe --report</code> finds: what your GPU can do, how it schedules, which scans are right, and
    how fast. The file names your GPU and your browser, and neither you nor your computer. Send it with the issue form
    “My GPU”, for the table of <em>what works where</em>.
  </p>
  <div class="bar"><button name="report" type="button" class="second">Make the report</button><span class="offer"></span></div>
`;
const named = (name) => root.querySelector(`[name="${name}"]`);
const [terminal, status] = [root.querySelector(".terminal"), root.querySelector(".status")];

function say(text, failed = false) {
  status.textContent = text;
  status.classList.toggle("failed", failed);
}

function print({ kind, text }) {
  const line = document.createElement("span");
  line.className = kind;
  line.textContent = `${text}\n`;
  terminal.append(line);
  terminal.scrollTop = terminal.scrollHeight;
}

/** Lets one thing run at a time, and shows what it does. */
async function busy(action) {
  const buttons = ["run", "measure", "report"].map(named);
  for (const button of buttons) button.disabled = true;
  named("stop").disabled = false;
  try {
    return await action();
  } catch (error) {
    const [first, ...more] = error.message.split("\n");
    // A traceback belongs into the terminal.
    for (const text of more.length ? error.message.trimEnd().split("\n") : []) print({ kind: "err", text });
    say(more.length ? "This ended by an error, which the output shows." : first, true);
    return null;
  } finally {
    for (const button of buttons) button.disabled = false;
    named("stop").disabled = true;
  }
}

// ----- The editor

const examples = [{ title: "A first scan", code: FIRST }, ...(await (await fetch(new URL("examples.json", import.meta.url))).json())];
for (const { title } of examples) named("example").append(new Option(title));
named("example").addEventListener("change", () => show(named("example").selectedIndex));
function show(number) {
  named("example").selectedIndex = number;
  named("code").value = examples[number].code;
}
show(0);

named("code").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    named("run").click();
  } else if (event.key === "Tab" && !event.shiftKey) {
    event.preventDefault();
    named("code").setRangeText("    ", named("code").selectionStart, named("code").selectionEnd, "end");
  }
});

const run = () =>
  busy(async () => {
    terminal.replaceChildren();
    const { version } = await python.start(say);
    say(`Running, by Pyodide ${version} …`);
    const start = performance.now();
    const right = await python.run(named("code").value, print);
    say(`${right ? "Done" : "Ended by an error"} after ${((performance.now() - start) / 1000).toFixed(2)} s.`, !right);
    return right;
  });
named("run").addEventListener("click", run);
named("stop").addEventListener("click", () => python.stop());

// ----- Speeds

const superscript = (number) => [...String(number)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

const measure = () =>
  busy(async () => {
    await python.start(say);
    const software = (await python.evaluate("gs = gpuscan_page.gs; gs.default_device().capabilities.adapter_type")) === "CPU";
    const longest = Number(query.get("longest") ?? LONGEST[software ? "software" : "hardware"]);
    const points = [];
    await python.speeds(longest, ({ length, seconds }) => {
      say(`Measured ${length.toLocaleString("en-US")} numbers …`);
      points.push({ length, rates: seconds.map((each) => length / each / 1e6) });
      draw(points);
    });
    onresize = () => draw(points);
    say(software ? "Your browser runs this on the CPU, by software that stands in for a GPU, so expect low speeds." : "Measured.");
    return points;
  });
named("measure").addEventListener("click", measure);

/** Draws millions of numbers a second against the length, both on logarithmic axes. */
function draw(points) {
  const chart = root.querySelector("figure");
  const width = Math.max(280, Math.min(760, chart.clientWidth));
  const height = Math.max(260, Math.round(width * 0.48));
  const [left, right, top, bottom] = [64, 14, 30, 44];
  const powers = points.flatMap(({ rates }) => rates.map(Math.log10));
  const [low, high] = [Math.floor(Math.min(...powers)), Math.max(Math.ceil(Math.max(...powers)), Math.floor(Math.min(...powers)) + 1)];
  const bits = points.map(({ length }) => Math.log2(length));
  const x = (length) => left + ((Math.log2(length) - bits[0]) / Math.max(1, bits.at(-1) - bits[0])) * (width - left - right);
  const y = (rate) => top + ((high - Math.log10(rate)) / (high - low)) * (height - top - bottom);
  const parts = [];
  for (let power = low; power <= high; power++) {
    const at = y(10 ** power);
    const label = power < 0 ? (10 ** power).toFixed(-power) : (10 ** power).toLocaleString("en-US");
    parts.push(`<line x1="${left}" x2="${width - right}" y1="${at}" y2="${at}" stroke="currentColor" opacity="0.15"/>`);
    parts.push(`<text x="${left - 8}" y="${at + 4}" text-anchor="end">${label}</text>`);
  }
  for (const { length } of points) {
    parts.push(`<text x="${x(length)}" y="${height - bottom + 18}" text-anchor="middle">2${superscript(Math.log2(length))}</text>`);
  }
  parts.push(`<text x="4" y="16">million numbers a second</text>`);
  parts.push(`<text x="${(left + width) / 2}" y="${height - 4}" text-anchor="middle">numbers</text>`);
  SERIES.forEach(({ colour }, i) => {
    const line = points.map(({ length, rates }) => `${x(length).toFixed(1)},${y(rates[i]).toFixed(1)}`);
    parts.push(`<polyline points="${line.join(" ")}" fill="none" stroke="${colour}" stroke-width="2.5"/>`);
    for (const point of line) {
      const [cx, cy] = point.split(",");
      parts.push(`<circle cx="${cx}" cy="${cy}" r="3.5" fill="${colour}"/>`);
    }
  });
  const legend = SERIES.map(({ name, colour }) => `<span><i style="background: ${colour}"></i>${name}</span>`).join("");
  chart.innerHTML =
    `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" ` +
    `aria-label="Numbers a second against the number of numbers">${parts.join("")}</svg><figcaption>${legend}</figcaption>`;
}

// ----- The report

const report = () =>
  busy(async () => {
    const { name, content } = await python.report(say, query.has("brief"));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${JSON.stringify(content, null, 1)}\n`], { type: "application/json" }));
    link.download = link.textContent = name;
    root.querySelector(".offer").replaceChildren("Save ", link);
    say("The report is ready.");
    return { name, content };
  });
named("report").addEventListener("click", report);

// ----- Tests open the page in a frame, and use it by this.

const why = missing();
if (why) {
  say(`This page needs another browser: ${why}.`, true);
  for (const name of ["run", "measure", "report"]) named(name).disabled = true;
}
globalThis.gpuscanPage = { python, examples, show, run, measure, report, named, root };
