// What the types of the package allow: npm run types compiles this file, and runs nothing.
import { plan, Scan } from "../dist/index.js";

export async function taken(device: GPUDevice): Promise<Float32Array> {
  const sums = await Scan.create(device, plan());
  const result: Float32Array = await sums.run(new Float32Array(3));
  const [listed] = await sums.run([new Float32Array(3)]);
  const named = await sums.run({ x: new Float32Array(3) });
  // @ts-expect-error: the plan is of float32
  await sums.run(new Int32Array(3));
  // @ts-expect-error: the plan is of float32
  await sums.run(new Float64Array(3));
  // @ts-expect-error: the plan is of float32
  await sums.run({ x: new Int32Array(3) });
  // @ts-expect-error: the plan has one field
  await sums.run([new Float32Array(3), new Float32Array(3)]);
  // @ts-expect-error: an array of numbers is no typed array
  await sums.run([3, 1, 4]);

  const picker = await Scan.create(device, plan("compact", "int32"), { strategy: "fallback" });
  const picked: Int32Array = await picker.run(new Int32Array(3), { mask: [true, false, true] });
  // @ts-expect-error: the plan is of int32
  await picker.run(new Uint32Array(3));
  // @ts-expect-error: no such type comes with the package
  plan("add", "float64");

  const pair = await Scan.create<[Float32Array, Uint8Array]>(device, new URL("./other/", import.meta.url));
  const [values, flags] = await pair.run([new Float32Array(3), new Uint8Array(3)]);
  // @ts-expect-error: the second field is of bools
  await pair.run([new Float32Array(3), new Float32Array(3)]);

  const unknown = await Scan.create(device, "./other/");
  await unknown.run(new BigInt64Array(3));
  return new Float32Array([...result, ...listed, ...named.x, ...values, ...picked, ...flags]);
}
