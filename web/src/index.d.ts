import type { OneField, PlanAddress } from "./scan.js";
export * from "./scan.js";

/** The address of a plan that comes with the package, for Scan.create. */
export function plan<T extends "float32" | "int32" | "uint32" = "float32">(
  operator?: "add" | "minimum" | "maximum" | "compact",
  type?: T,
): PlanAddress<OneField<T>>;
