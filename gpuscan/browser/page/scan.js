// Runs an exported plan of gpuscan with navigator.gpu. No dependencies.
//
//   import { Scan } from "./scan.js";
//   const scan = await Scan.create(await Scan.device());       // reads plan.json and WGSL from this folder
//   const result = await scan.run(new Uint32Array([3, 1, 4])); // an array of the same kind
//
// For bundles, pass an array for each field, as a list or by name, and get the same. A plan that compacts returns the
// elements that a mask picks: scan.run(array, { mask }). To scan what is on the GPU already, record into your own encoder:
//
//   scan.record(encoder, source, destination, length);         // GPUBuffers of at least 16 * ceil(bytes / 16) bytes
//
// An element's bytes are as NumPy lays them out: complex64 is two floats in a Float32Array, bool a byte in a Uint8Array;
// where the browser has no array of the type (float16 in some, bfloat16 in all), pass its bits in a Uint16Array.

const FORMAT = "gpuscan export 2";
const HEADER_WORDS = 6; // of the tile state: ticket, status, width, loops, and what only the shaders read
const STATUS_WORD = 1;
const SUBGROUP_SIZE_WORD = 2;
const LOOP_LIMIT_WORD = 3;
const EPOCH = 1; // each run begins with a cleared tile state, so they can share a tag

/** The names of the typed arrays that hold numbers of each type, the usual one first. */
export const ARRAYS = {
  bool: ["Uint8Array", "Uint8ClampedArray"],
  int8: ["Int8Array"],
  int16: ["Int16Array"],
  int32: ["Int32Array"],
  int64: ["BigInt64Array"],
  uint8: ["Uint8Array", "Uint8ClampedArray"],
  uint16: ["Uint16Array"],
  uint32: ["Uint32Array"],
  uint64: ["BigUint64Array"],
  float16: ["Uint16Array", "Float16Array"],
  bfloat16: ["Uint16Array"],
  float32: ["Float32Array"],
  float64: ["Float64Array"],
  complex64: ["Float32Array"],
};

/** The name of a typed array's kind, also of one of another window; else of the value's class. */
const kindOf = (value) => (ArrayBuffer.isView(value) ? value[Symbol.toStringTag] : value?.constructor?.name ?? String(value));

const padded = (bytes) => Math.max(16, Math.ceil(bytes / 16) * 16);
const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

function bytesOfMask(mask) {
  const bytes = new Uint8Array(mask.length);
  for (let i = 0; i < mask.length; i++) bytes[i] = mask[i] ? 1 : 0;
  return bytes;
}

async function fetched(base, name) {
  const response = await fetch(new URL(name, base));
  if (!response.ok) throw new Error(`${new URL(name, base)} cannot be read (${response.status}); export the scan there`);
  return response;
}

/** True for GPUs that are programs on the CPU: there, tiles that wait for each other are far slower than dispatches. */
function isSoftware({ adapterInfo }) {
  if (adapterInfo?.isFallbackAdapter !== undefined) return adapterInfo.isFallbackAdapter;
  return /swiftshader|llvmpipe|basic render/i.test(`${adapterInfo?.architecture} ${adapterInfo?.description}`);
}

export class Scan {
  /** A GPUDevice with the features and limits that exported scans can use, as far as the GPU has them. */
  static async device(options = {}) {
    if (globalThis.isSecureContext === false) {
      throw new Error("browsers give WebGPU only to pages from https or localhost; open the page from there");
    }
    if (!globalThis.navigator?.gpu) throw new Error("this browser has no WebGPU; use a current Chrome, Edge, Safari or Firefox");
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance", ...options });
    if (!adapter) throw new Error("this browser has WebGPU, but no GPU for it; look at chrome://gpu or about:support");
    const limits = ["maxStorageBuffersPerShaderStage", "maxStorageBufferBindingSize", "maxBufferSize"];
    return adapter.requestDevice({
      requiredFeatures: adapter.features.has("subgroups") ? ["subgroups"] : [],
      requiredLimits: Object.fromEntries(limits.map((name) => [name, adapter.limits[name]])),
    });
  }

  /**
   * Compiles for a device the plan in the folder of this file, or at `base`.
   * By default, a single pass if the GPU has subgroups, and three dispatches without them and on software GPUs.
   * `strategy` names another one of the plan.
   */
  static async create(device, base = new URL(".", import.meta.url), { strategy = "auto" } = {}) {
    if (!device?.limits) throw new TypeError("no GPUDevice was passed to create a scan on; pass one, such as await Scan.device()");
    const plan = await (await fetched(base, "plan.json")).json();
    if (plan.format !== FORMAT) throw new Error(`the plan has the format ${plan.format}, not ${FORMAT}; export it again`);
    const buffers = device.limits.maxStorageBuffersPerShaderStage;
    if (buffers < plan.storage_buffers) {
      throw new Error(`the scan binds ${plan.storage_buffers} buffers, and the device ${buffers}; make it by Scan.device()`);
    }
    const scan = new Scan(device, plan, base);
    const sizes = plan.variants.filter((each) => [each.strategy, "auto"].includes(strategy)).map((each) => each.subgroup_size);
    if (!sizes.length) {
      const names = [...new Set(plan.variants.map((each) => each.strategy))].join(" and ");
      throw new RangeError(`the strategy ${strategy} was asked for, and the plan has ${names}; export it with that strategy`);
    }
    const single = Math.max(...sizes) > 0 && (strategy !== "auto" || !isSoftware(device));
    const size = single && device.features.has("subgroups") ? await scan.#measuredSubgroupSize() : 0;
    if (size && sizes.includes(size)) {
      await scan.#take(size);
      // A compiler may give a shader subgroups of another size than the measurement's.
      if (await scan.#works()) return scan;
    }
    if (!sizes.includes(0)) {
      scan.destroy();
      throw new RangeError(`the strategy ${strategy} was asked for, and this GPU has not the subgroups for it; leave it out`);
    }
    await scan.#take(0);
    return scan;
  }

  #base;
  #variants = [];
  #state = null;
  #seeds = null;

  constructor(device, plan, base) {
    this.device = device;
    this.plan = plan;
    this.#base = base;
    if (plan.seed) this.#seeds = this.#filled(new Uint32Array(plan.seed), GPUBufferUsage.STORAGE);
  }

  /** How tiles learn their prefix, and the lanes of a subgroup; 0 if none are used. */
  get strategy() {
    return this.#variants[0].strategy;
  }

  get subgroupSize() {
    return this.#variants[0].subgroup_size;
  }

  /** Gives the GPU's memory back. */
  destroy() {
    this.#state?.destroy();
    this.#seeds?.destroy();
    this.#state = null;
  }

  // ----- Making

  /** The size of all subgroups, if they have one size and their lanes are in order; else 0. */
  async #measuredSubgroupSize() {
    const { device, plan } = this;
    const probe = plan.subgroup_probe;
    const code = await (await fetched(this.#base, probe.file)).text();
    const pipeline = await device.createComputePipelineAsync({
      label: "gpuscan subgroups",
      layout: "auto",
      compute: { module: device.createShaderModule({ code }), entryPoint: "main" },
    });
    const size = padded(probe.bytes);
    const results = device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC });
    const readback = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    try {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      const entries = [{ binding: 0, resource: { buffer: results } }];
      pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(probe.workgroups);
      pass.end();
      encoder.copyBufferToBuffer(results, 0, readback, 0, size);
      device.queue.submit([encoder.finish()]);
      await readback.mapAsync(GPUMapMode.READ);
      const words = new Uint32Array(readback.getMappedRange());
      const sizes = words[probe.sizes_word]; // or-ed together: a power of two if there is one
      return words[probe.order_word] === 0 && (sizes & (sizes - 1)) === 0 ? sizes : 0;
    } finally {
      results.destroy();
      readback.destroy();
    }
  }

  /** Compiles the variants for subgroups of a size. */
  async #take(size) {
    const { device, plan } = this;
    const chosen = plan.variants.filter((variant) => variant.subgroup_size === size);
    this.#variants = [];
    for (const variant of chosen) {
      const stages = await Promise.all(variant.stages.map((stage) => this.#compiled(stage)));
      this.#variants.push({ ...variant, stages });
    }
    this.#state?.destroy();
    this.#state = device.createBuffer({
      label: "gpuscan tile state",
      size: padded(Math.max(...chosen.map((variant) => variant.state_bytes))),
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    });
  }

  async #compiled(stage) {
    const { device } = this;
    const code = await (await fetched(this.#base, stage.file)).text();
    const visibility = GPUShaderStage.COMPUTE;
    const layout = device.createBindGroupLayout({
      entries: [
        { binding: 0, visibility, buffer: { type: "uniform" } },
        ...stage.bindings.map(({ binding, type }) => ({ binding, visibility, buffer: { type } })),
      ],
    });
    const pipeline = await device.createComputePipelineAsync({
      label: `gpuscan ${stage.name}`,
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module: device.createShaderModule({ label: stage.name, code }), entryPoint: "main" },
    });
    return { ...stage, layout, pipeline };
  }

  /** True if a short scan runs with subgroups of the planned size. */
  async #works() {
    const length = Math.min(this.plan.length, 2 * this.#variants[0].tile_size + 1);
    const fields = this.plan.fields.map((field) => new Uint8Array(length * field.bytes));
    try {
      await this.#results(fields, length, { mask: new Uint8Array(length) });
      return true;
    } catch {
      return false;
    }
  }

  #filled(words, usage) {
    const buffer = this.device.createBuffer({ size: padded(words.byteLength), usage, mappedAtCreation: true });
    new Uint8Array(buffer.getMappedRange()).set(bytesOf(words));
    buffer.unmap();
    return buffer;
  }

  // ----- Running

  /**
   * Records the scan of `length` elements of buffers into others.
   * One buffer, or a list of one for each field; `segments` are the offsets where the scan restarts. A plan that compacts
   * writes the number of the picked elements to the first word of the buffer `count`; `mask` is a buffer with a byte for
   * each element, 1 or 0.
   */
  record(encoder, source, destination, length, { segments, mask, count } = {}) {
    const { plan, device } = this;
    if (!Number.isInteger(length) || length < 1 || length > plan.length) {
      throw new RangeError(`${length} elements were passed to a plan for 1 to ${plan.length}`);
    }
    // WebGPU would not run the commands, and the results would be zeros.
    if (!this.#state) throw new Error("the scan was destroyed; make another with Scan.create");
    this.#checkMask(mask, count);
    const sources = [plan.compact === "mask" ? mask : [], source].flat();
    const destinations = [destination].flat();
    const variant = this.#variantFor(length);
    const tiles = Math.ceil(length / variant.tile_size);
    const workgroups = tiles + variant.workgroups_beside;
    const rows = Math.ceil(workgroups / device.limits.maxComputeWorkgroupsPerDimension);
    const grid = [Math.ceil(workgroups / rows), rows, 1];
    const params = new Uint32Array([length, tiles, EPOCH, variant.spin_rounds, length, 0, 0, 1]);
    const buffers = { state: this.#state, seeds: this.#seeds, count };
    sources.forEach((buffer, i) => (buffers[`source${i}`] = buffer));
    destinations.forEach((buffer, i) => (buffers[`destination${i}`] = buffer));
    if (plan.segments) buffers.heads = this.#filled(this.#heads(segments ?? [0, length], length), GPUBufferUsage.STORAGE);
    const uniform = this.#filled(params, GPUBufferUsage.UNIFORM);
    encoder.clearBuffer(this.#state);
    for (const number of variant.cleared) encoder.clearBuffer(destinations[number]);
    const pass = encoder.beginComputePass({ label: "gpuscan" });
    for (const stage of variant.stages) {
      const bound = stage.bindings.map(({ binding, name }) => ({ binding, resource: { buffer: buffers[name] } }));
      const entries = [{ binding: 0, resource: { buffer: uniform } }, ...bound];
      pass.setPipeline(stage.pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout: stage.layout, entries }));
      pass.dispatchWorkgroups(...(stage.whole_grid ? grid : [1, 1, 1]));
    }
    pass.end();
  }

  /** Throws an error if a compaction lacks the buffers of its mask or its count, or a scan has them. */
  #checkMask(mask, count) {
    const { compact } = this.plan;
    if (mask && compact !== "mask") throw new TypeError("the plan takes no mask; export it with compact");
    if (!mask && compact === "mask") throw new TypeError("the plan picks elements by a mask, and none was passed; pass { mask }");
    if (!count && compact) throw new TypeError("the plan picks elements; pass { count }, a buffer for their number");
  }

  /** The plan for the way in which arrays of this length end within 32-bit words. */
  #variantFor(length) {
    if (this.#variants.length === 1) return this.#variants[0];
    const sizes = new Set(this.plan.fields.map(({ bytes }) => bytes).filter((bytes) => (length * bytes) % 4));
    return this.#variants.find(({ unaligned }) => unaligned.length === sizes.size && unaligned.every((n) => sizes.has(n)));
  }

  /** One bit for each element, in the order of the scan: 1 where a segment begins. */
  #heads(offsets, length) {
    const bits = new Uint32Array(Math.ceil(length / 32));
    const fraction = Array.from(offsets).find((offset) => !Number.isInteger(offset));
    if (fraction !== undefined) {
      throw new TypeError(`segments have ${fraction} of type ${typeof fraction}; pass numbers without fractions`);
    }
    if (offsets[0] !== 0 || offsets[offsets.length - 1] !== length) {
      throw new RangeError(`segments must begin with 0 and end with the length, ${length}`);
    }
    for (let i = 1; i < offsets.length; i++) {
      if (offsets[i] < offsets[i - 1]) throw new RangeError(`segments fall from ${offsets[i - 1]} to ${offsets[i]}`);
      if (offsets[i] === offsets[i - 1]) continue;
      const at = this.plan.reverse ? length - offsets[i] : offsets[i - 1];
      bits[at >>> 5] |= 1 << (at & 31);
    }
    return bits;
  }

  /**
   * The scan of a typed array, or of one for each field, in arrays of the same kind.
   * A plan that compacts returns the elements that are picked; `mask` is an array of what is true for these.
   */
  async run(array, options = {}) {
    const { fields } = this.plan;
    if (options.segments && !this.plan.segments) throw new TypeError("the plan has no segments; export it with segments");
    const named = !ArrayBuffer.isView(array) && !Array.isArray(array);
    const arrays = named ? fields.map(({ name }) => array?.[name]) : [array].flat();
    if (arrays.length !== fields.length) {
      const names = fields.map(({ name }) => name).join(", ");
      throw new TypeError(`a list of ${arrays.length} was passed; pass a typed array for each of the fields ${names}`);
    }
    fields.forEach(({ name, type }, i) => {
      const given = named && array?.constructor !== Object ? array : arrays[i];
      const [kind, kinds] = [kindOf(arrays[i] ?? given), ARRAYS[type]];
      if (!kinds.includes(kind)) throw new TypeError(`${name} of ${type} was passed as ${kind}; pass a ${kinds.join(" or ")}`);
    });
    const lengths = arrays.map((each, i) => each.byteLength / fields[i].bytes);
    if (lengths.some((length) => length !== lengths[0] || !Number.isInteger(length))) {
      throw new RangeError(`arrays of ${lengths.join(" and ")} elements were passed; pass arrays of one whole length`);
    }
    if (options.mask && this.plan.compact !== "mask") throw new TypeError("the plan takes no mask; export it with compact");
    if (this.plan.compact === "mask" && options.mask?.length !== lengths[0]) {
      const found = options.mask ? `a mask of ${options.mask.length}` : "no mask";
      throw new RangeError(`${found} was passed for ${lengths[0]} elements; pass { mask } with a value for each`);
    }
    const results = lengths[0] ? await this.#results(arrays, lengths[0], options) : arrays.map((each) => each.slice());
    if (named) return Object.fromEntries(fields.map(({ name }, i) => [name, results[i]]));
    return Array.isArray(array) ? results : results[0];
  }

  async #results(arrays, length, { segments, mask }) {
    const { device, plan } = this;
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const sources = arrays.map((array) => this.#filled(array, usage));
    const sizes = arrays.map((array) => padded(array.byteLength));
    const destinations = sizes.map((size) => device.createBuffer({ size, usage }));
    const made = [...sources, ...destinations];
    const options = { segments };
    if (plan.compact) made.push((options.count = device.createBuffer({ size: 16, usage })));
    if (plan.compact === "mask") made.push((options.mask = this.#filled(bytesOfMask(mask), usage)));
    const report = padded(4 * HEADER_WORDS);
    const readback = device.createBuffer({
      size: sizes.reduce((sum, size) => sum + size, report + 16),
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    made.push(readback);
    try {
      const encoder = device.createCommandEncoder();
      this.record(encoder, sources, destinations, length, options);
      encoder.copyBufferToBuffer(this.#state, 0, readback, 0, 4 * HEADER_WORDS);
      if (plan.compact) encoder.copyBufferToBuffer(options.count, 0, readback, report, 4);
      let at = report + 16;
      const places = sizes.map((size, i) => {
        encoder.copyBufferToBuffer(destinations[i], 0, readback, at, size);
        at += size;
        return at - size;
      });
      device.queue.submit([encoder.finish()]);
      await readback.mapAsync(GPUMapMode.READ);
      const mapped = readback.getMappedRange();
      this.#check(new Uint32Array(mapped, 0, HEADER_WORDS));
      const results = plan.compact ? new Uint32Array(mapped, report, 1)[0] : length;
      return arrays.map((array, i) => {
        return new array.constructor(mapped.slice(places[i], places[i] + results * plan.fields[i].bytes));
      });
    } finally {
      for (const buffer of made) buffer.destroy();
    }
  }

  #check(report) {
    const { strategy, posts } = this.#variants[0];
    if (report[SUBGROUP_SIZE_WORD] === EPOCH) {
      throw new Error(`the subgroups of a shader had not ${this.subgroupSize} lanes; export with the strategy three_dispatch`);
    }
    if (report[LOOP_LIMIT_WORD] === EPOCH) throw new Error("a loop of the operator did not end; correct its WGSL and export it again");
    if (posts && report[STATUS_WORD] === EPOCH) {
      throw new Error(`a tile waited too long for another: this GPU cannot run ${strategy}; export with the strategy three_dispatch`);
    }
  }
}
