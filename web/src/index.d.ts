export * from "./scan.js";

/** The address of a plan that comes with the package, for Scan.create. */
export function plan(
  operator?: "add" | "minimum" | "maximum" | "compact",
  type?: "float32" | "int32" | "uint32",
): URL;
