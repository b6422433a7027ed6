/** A Float16Array, where the browser has it. */
type Halves = ArrayBufferView & { readonly length: number; readonly [Symbol.toStringTag]: "Float16Array" };

/** The typed arrays that hold numbers of each type. 16-bit floats may be passed as bits. */
export interface ArrayTypes {
  bool: Uint8Array | Uint8ClampedArray;
  int8: Int8Array;
  int16: Int16Array;
  int32: Int32Array;
  int64: BigInt64Array;
  uint8: Uint8Array | Uint8ClampedArray;
  uint16: Uint16Array;
  uint32: Uint32Array;
  uint64: BigUint64Array;
  float16: Uint16Array | Halves;
  bfloat16: Uint16Array;
  float32: Float32Array;
  float64: Float64Array;
  complex64: Float32Array;
}

/** The names of these typed arrays, the usual one first. */
export const ARRAYS: Readonly<Record<keyof ArrayTypes, readonly string[]>>;

/** What plans with one field take: its array, alone, in a list, or by name. */
export type OneField<T extends keyof ArrayTypes> = ArrayTypes[T] | [ArrayTypes[T]] | { x: ArrayTypes[T] };

/** A typed array that some plan takes. */
export type Numbers = ArrayTypes[keyof ArrayTypes];

/** What some plan takes: an element's array, or one for each field of a bundle, in order or by name. */
export type AnyElements = Numbers | Numbers[] | Record<string, Numbers>;

/** What the plan in the folder of this module takes. */
export type Elements = AnyElements;

/** The address of a plan that takes E. */
export type PlanAddress<E> = URL & { readonly elements?: E };

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
  type: keyof ArrayTypes;
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

export class Scan<E extends AnyElements = Elements> {
  /** A GPUDevice with the features and limits that exported scans can use, as far as the GPU has them. */
  static device(options?: GPURequestAdapterOptions): Promise<GPUDevice>;
  /** Compiles for a device the plan in the folder of the module. */
  static create(device: GPUDevice, base?: undefined, options?: CreateOptions): Promise<Scan>;
  /** Compiles for a device the plan at `base`. Name what it takes, such as `Scan.create<Float32Array>(…)`. */
  static create<E extends AnyElements = AnyElements>(
    device: GPUDevice,
    base: PlanAddress<E> | string,
    options?: CreateOptions,
  ): Promise<Scan<E>>;

  readonly device: GPUDevice;
  readonly plan: Plan;
  readonly strategy: Strategy;
  /** The lanes of a subgroup, or 0 if the plan uses none. */
  readonly subgroupSize: number;

  /** The scan of the elements, or those that are picked, in arrays of the same kind. */
  run<T extends E>(elements: T, options?: RunOptions): Promise<T>;
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
