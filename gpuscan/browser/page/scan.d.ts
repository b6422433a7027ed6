/** A typed array of numbers. Types without an array of their own are passed as bits, in a Uint16Array. */
export type Numbers =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

/** An element's array, or one for each field of a bundle, in order or by name. */
export type Elements = Numbers | Numbers[] | Record<string, Numbers>;

/** How tiles learn their prefix. */
export type Strategy = "three_dispatch" | "fallback" | "lookback" | "lookahead";

export interface CreateOptions {
  /** Default: "fallback", a single pass, if the GPU has subgroups; "three_dispatch" without them and on software GPUs. */
  strategy?: Strategy | "auto";
}

export interface ScanOptions {
  /** Offsets where the scan restarts: ascending, from 0 to the length. For plans that were exported with segments. */
  segments?: ArrayLike<number>;
}

export interface RunOptions extends ScanOptions {
  /** What is true for each element that is picked. For plans that were exported with compact. */
  mask?: ArrayLike<number | boolean>;
}

export interface RecordOptions extends ScanOptions {
  /** A byte for each element, 1 or 0. For plans that pick elements by a mask. */
  mask?: GPUBuffer;
  /** Its first word becomes the number of the elements that are picked. For plans that were exported with compact. */
  count?: GPUBuffer;
}

export interface Field {
  name: string;
  type: string;
  numbers: number;
  bytes: number;
}

export interface Plan {
  format: string;
  version: string;
  operator: string;
  length: number;
  exclusive: boolean;
  reverse: boolean;
  segments: boolean;
  /** How elements are picked, if the plan picks elements and combines none. */
  compact: "mask" | "function" | null;
  fields: Field[];
  storage_buffers: number;
}

export class Scan {
  /** A GPUDevice with the features and limits that exported scans can use, as far as the GPU has them. */
  static device(options?: GPURequestAdapterOptions): Promise<GPUDevice>;
  /** Compiles for a device the plan at `base` (default: the folder of the module). */
  static create(device: GPUDevice, base?: URL | string, options?: CreateOptions): Promise<Scan>;

  readonly device: GPUDevice;
  readonly plan: Plan;
  readonly strategy: Strategy;
  /** The lanes of a subgroup, or 0 if the plan uses none. */
  readonly subgroupSize: number;

  /** The scan of the elements, or those that are picked, in arrays of the same kind. */
  run<T extends Elements>(elements: T, options?: RunOptions): Promise<T>;
  /** Records the scan into your own encoder. There is a buffer for each field, and its size is a multiple of 16 bytes. */
  record(
    encoder: GPUCommandEncoder,
    source: GPUBuffer | GPUBuffer[],
    destination: GPUBuffer | GPUBuffer[],
    length: number,
    options?: RecordOptions,
  ): void;
  /** Gives the GPU's memory back. */
  destroy(): void;
}
