// The built package in headless Chromium: a page imports it, scans, compares with plain loops, and posts what it found.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { delimiter, dirname, extname, join, normalize } from "node:path";
import test, { after, before } from "node:test";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const SECONDS = 120;
const TYPES = { ".js": "text/javascript", ".json": "application/json", ".wgsl": "text/plain", ".html": "text/html" };
const BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const FLAGS = [
  "--headless=new",
  "--no-sandbox", // which root cannot have
  "--disable-dev-shm-usage",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
];

const PAGE = `<!doctype html><title>test</title><script type="module">
import { Scan, plan } from "/dist/index.js";

const found = {};
const failing = async (action) => {
  try { await action(); return "no error"; } catch (error) { return String(error); }
};
try {
  const device = await Scan.device();
  found.subgroups = device.features.has("subgroups");
  const numbers = (length) => Array.from({ length }, (_, i) => ((i * 7919) % 201) - 100);
  found.software = device.adapterInfo.isFallbackAdapter;
  found.differences = [];
  const loops = { add: (a, b) => a + b, minimum: Math.min, maximum: Math.max };
  for (const [operator, combine] of Object.entries(loops)) {
    for (const [type, Numbers] of [["float32", Float32Array], ["int32", Int32Array], ["uint32", Uint32Array]]) {
      const scan = await Scan.create(device, plan(operator, type), operator === "add" ? { strategy: "fallback" } : {});
      (found.ways ??= {})[operator] = [scan.strategy, scan.subgroupSize];
      for (const length of [0, 1, 1000, 200_003]) {
        const x = new Numbers(numbers(length));
        const result = await scan.run(x);
        const expected = new Numbers(length);
        for (let i = 0; i < length; i++) expected[i] = i ? combine(expected[i - 1], x[i]) : x[i];
        if (!(result instanceof Numbers) || result.length !== length || result.some((y, i) => y !== expected[i])) {
          found.differences.push(operator + " of " + length + " " + type);
        }
      }
      scan.destroy();
    }
  }
  const scan = await Scan.create(device, plan("add", "uint32"));
  for (const [type, Numbers] of [["float32", Float32Array], ["uint32", Uint32Array]]) {
    const picker = await Scan.create(device, plan("compact", type));
    for (const length of [0, 1, 1000, 200_003]) {
      const x = new Numbers(numbers(length));
      const mask = x.map((v) => v % 3 === 1);
      const result = await picker.run(x, { mask });
      const expected = x.filter((_, i) => mask[i]);
      if (!(result instanceof Numbers) || result.length !== expected.length || result.some((y, i) => y !== expected[i])) {
        found.differences.push("compact of " + length + " " + type);
      }
    }
    found.masks = [
      await failing(() => picker.run(new Numbers(4))),
      await failing(() => picker.run(new Numbers(4), { mask: [1, 0] })),
      await failing(() => scan.run(new Numbers(4), { mask: [1, 0, 1, 0] })),
    ];
  }
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const [a, b, c] = [0, 1, 2].map(() => device.createBuffer({ size: 4096, usage }));
  const count = device.createBuffer({ size: 16, usage });
  const mask = device.createBuffer({ size: 1008, usage });
  const readback = device.createBuffer({ size: 4096, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(a, 0, new Uint32Array(1024).fill(1));
  const encoder = device.createCommandEncoder();
  scan.record(encoder, a, b, 1000);
  scan.record(encoder, b, c, 1000);
  device.queue.writeBuffer(mask, 0, Uint8Array.from({ length: 1000 }, (_, i) => i % 4 === 3));
  const picker = await Scan.create(device, plan("compact", "uint32"));
  picker.record(encoder, b, a, 1000, { mask, count });
  encoder.copyBufferToBuffer(a, 0, readback, 0, 1000);
  encoder.copyBufferToBuffer(count, 0, readback, 1000, 4);
  encoder.copyBufferToBuffer(c, 3996, readback, 1004, 4);
  device.queue.submit([encoder.finish()]);
  await readback.mapAsync(GPUMapMode.READ);
  const words = new Uint32Array(readback.getMappedRange());
  [found.count, found.twice] = words.slice(250, 252);
  found.picked = [...words.slice(0, 3), words[249]];
  found.errors = {
    plan: await failing(() => plan("add", "float64")),
    length: await failing(() => scan.record(device.createCommandEncoder(), a, b, 2 ** 26)),
    fields: await failing(() => scan.run([new Uint32Array(4), new Uint32Array(4)])),
    kind: await failing(() => scan.run(new Int32Array(4))),
    segments: await failing(() => scan.run(new Uint32Array(4), { segments: [0, 4] })),
    strategy: await failing(() => Scan.create(device, plan(), { strategy: "lookback" })),
    missing: await failing(() => Scan.create(device, new URL("/nowhere/", location.href))),
  };
} catch (error) {
  found.error = String(error.stack ?? error);
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script>`;

const onPath = (name) => (process.env.PATH ?? "").split(delimiter).some((folder) => existsSync(join(folder, name)));

let found;
let browser;
let server;
let profile;

before(async () => {
  const name = BROWSERS.find(onPath);
  assert.ok(name, "no Chromium or Chrome on this machine; install one");
  const posted = new Promise((resolve, reject) => {
    server = createServer((request, response) => {
      if (request.method === "POST") {
        let body = "";
        request.on("data", (part) => (body += part));
        request.on("end", () => {
          response.writeHead(204).end();
          resolve(JSON.parse(body));
        });
        return;
      }
      const path = join(root, normalize(decodeURIComponent(new URL(request.url, "http://x").pathname)));
      if (request.url === "/") response.writeHead(200, { "Content-Type": "text/html" }).end(PAGE);
      else if (!path.startsWith(join(root, "dist")) || !existsSync(path)) response.writeHead(404).end();
      else response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "text/plain" }).end(readFileSync(path));
    });
    setTimeout(() => reject(new Error(`the page posted nothing for ${SECONDS} s`)), SECONDS * 1000).unref();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  profile = mkdtempSync(join(tmpdir(), "gpuscan-"));
  const address = `http://127.0.0.1:${server.address().port}/`;
  browser = spawn(name, [...FLAGS, `--user-data-dir=${profile}`, address], { stdio: "ignore" });
  found = await posted;
});

after(async () => {
  server?.close();
  if (browser) {
    const ended = new Promise((resolve) => browser.once("exit", resolve));
    browser.kill();
    await ended;
  }
  if (profile) rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
});

test("every plan of the package scans as a plain loop does", () => {
  assert.equal(found.error, undefined);
  assert.deepEqual(found.differences, []);
});

test("a single pass runs where it is asked for, and where a GPU that is not software has subgroups", () => {
  assert.equal(found.ways.add[0], "fallback");
  assert.ok(found.ways.add[1] > 0);
  assert.equal(found.ways.maximum[0], found.subgroups && !found.software ? "fallback" : "three_dispatch");
  assert.match(found.errors.strategy, /RangeError.*strategy lookback.*three_dispatch and fallback/);
});

test("scans are recorded one after the other into one encoder", () => {
  assert.equal(found.twice, (1000 * 1001) / 2);
  assert.equal(found.count, 250);
  assert.deepEqual(found.picked, [4, 8, 12, 1000]);
});

test("errors say what to do", () => {
  assert.match(found.masks[0], /RangeError.*no mask was passed for 4 elements/);
  assert.match(found.masks[1], /RangeError.*a mask of 2 was passed for 4/);
  assert.match(found.masks[2], /TypeError.*takes no mask/);
  assert.match(found.errors.plan, /RangeError.*add of float64.*gpuscan export/);
  assert.match(found.errors.length, /RangeError.*1 to 33554432/);
  assert.match(found.errors.fields, /TypeError.*each of the fields x/);
  assert.match(found.errors.kind, /TypeError.*x of uint32 was passed as Int32Array; pass a Uint32Array/);
  assert.match(found.errors.segments, /export it with segments/);
  assert.match(found.errors.missing, /nowhere\/plan\.json.*404/);
});

test("the package has what its description names", () => {
  const description = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  for (const path of [description.types, description.exports["."].default]) assert.ok(existsSync(join(root, path)), path);
  const version = readFileSync(join(root, "..", "gpuscan", "_version.py"), "utf8").match(/__version__ = "(.+)"/)[1];
  assert.equal(description.version, version);
});
