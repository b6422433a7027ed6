// Runs an exported plan of gpuscan with navigator.gpu. No dependencies.
//
//   import { Scan } from "./scan.js";
//   const scan = await Scan.create(device);                   // a GPUDevice; plan.json and the WGSL lie beside this file
//   const result = await scan.run(new Uint32Array([3, 1, 4])); // an array of the same kind
//
// To scan what is on the GPU already, record into your own encoder:
//
//   scan.record(encoder, source, destination, length);        // two GPUBuffers of at least length elements each
//
// An element's bytes are as NumPy lays them out: complex64 is two floats, bool a byte; where the browser has no array of
// the type (float16 in some, bfloat16 in all), pass its bits in a Uint16Array.

const HEADER_WORDS = 6; // of the tile state: ticket, status, width, and what only the shaders read
const STATUS_WORD = 1;
const EPOCH = 1; // each run begins with a cleared tile state, so they can share a tag

const padded = (bytes) => Math.max(16, Math.ceil(bytes / 16) * 16);

export class Scan {
  /** Compiles the plan beside this file, or at `base`, for a device. */
  static async create(device, base = new URL(".", import.meta.url)) {
    const plan = await (await fetch(new URL("plan.json", base))).json();
    const scan = new Scan(device, plan);
    for (const stage of plan.stages) {
      const code = await (await fetch(new URL(stage.file, base))).text();
      const layout = device.createBindGroupLayout({
        entries: [
          { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform" } },
          ...stage.bindings.map(({ binding, type }) => ({
            binding,
            visibility: GPUShaderStage.COMPUTE,
            buffer: { type },
          })),
        ],
      });
      const pipeline = await device.createComputePipelineAsync({
        label: `gpuscan ${stage.name}`,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: device.createShaderModule({ label: stage.name, code }), entryPoint: "main" },
      });
      scan.stages.push({ ...stage, layout, pipeline });
    }
    return scan;
  }

  constructor(device, plan) {
    this.device = device;
    this.plan = plan;
    this.stages = [];
    this.state = device.createBuffer({
      size: padded(plan.state_bytes),
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    });
  }

  /** Records the scan of `length` elements of one buffer into another. */
  record(encoder, source, destination, length) {
    const { plan, device } = this;
    if (length < 1 || length > plan.length) {
      throw new RangeError(`${length} elements were passed to a plan for 1 to ${plan.length}`);
    }
    const tiles = Math.ceil(length / plan.tile_size);
    const workgroups = tiles + plan.workgroups_beside;
    const rows = Math.ceil(workgroups / device.limits.maxComputeWorkgroupsPerDimension);
    const grid = [Math.ceil(workgroups / rows), rows, 1];
    const params = device.createBuffer({ size: 32, usage: GPUBufferUsage.UNIFORM, mappedAtCreation: true });
    new Uint32Array(params.getMappedRange()).set([length, tiles, EPOCH, plan.spin_rounds, length, 0, 0, 1]);
    params.unmap();
    const buffers = { state: this.state, source0: source, destination0: destination };
    encoder.clearBuffer(this.state);
    const pass = encoder.beginComputePass({ label: "gpuscan" });
    for (const stage of this.stages) {
      const entries = stage.bindings.map(({ binding, name }) => ({ binding, resource: { buffer: buffers[name] } }));
      pass.setPipeline(stage.pipeline);
      pass.setBindGroup(
        0,
        device.createBindGroup({
          layout: stage.layout,
          entries: [{ binding: 0, resource: { buffer: params } }, ...entries],
        }),
      );
      pass.dispatchWorkgroups(...(stage.whole_grid ? grid : [1, 1, 1]));
    }
    pass.end();
  }

  /** The scan of a typed array, in an array of the same kind. */
  async run(array) {
    const { device, plan } = this;
    const length = array.byteLength / plan.element_bytes;
    if (length === 0) return array.slice();
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const size = padded(array.byteLength);
    const source = device.createBuffer({ size, usage, mappedAtCreation: true });
    new Uint8Array(source.getMappedRange()).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    source.unmap();
    const destination = device.createBuffer({ size, usage });
    const readback = device.createBuffer({
      size: size + 16,
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    try {
      const encoder = device.createCommandEncoder();
      this.record(encoder, source, destination, length);
      encoder.copyBufferToBuffer(this.state, 0, readback, 0, 4 * HEADER_WORDS);
      encoder.copyBufferToBuffer(destination, 0, readback, 16, size);
      device.queue.submit([encoder.finish()]);
      await readback.mapAsync(GPUMapMode.READ);
      const bytes = readback.getMappedRange().slice();
      if (plan.strategy !== "three_dispatch" && new Uint32Array(bytes, 0, HEADER_WORDS)[STATUS_WORD] === EPOCH) {
        throw new Error(`a tile waited in vain: this GPU is not fit for ${plan.strategy}; export three_dispatch`);
      }
      return new array.constructor(bytes, 16, array.length).slice();
    } finally {
      for (const buffer of [source, destination, readback]) buffer.destroy();
    }
  }
}
