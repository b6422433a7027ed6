// The scans that come with the package, the class that runs these and any other export, and the arrays that it takes.
export { ARRAYS, Scan } from "./scan.js";

const OPERATORS = ["add", "minimum", "maximum", "compact"];
const TYPES = ["float32", "int32", "uint32"];

/** The address of a plan that comes with the package, for Scan.create. */
export function plan(operator = "add", type = "float32") {
  if (!OPERATORS.includes(operator) || !TYPES.includes(type)) {
    throw new RangeError(
      `a plan for ${operator} of ${type} was asked for; there are ${OPERATORS.join(", ")} of ${TYPES.join(", ")}. ` +
        "Export others with the Python package: gpuscan export",
    );
  }
  return new URL(`./plans/${operator}-${type}/`, import.meta.url);
}
