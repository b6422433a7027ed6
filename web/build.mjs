// Builds dist/: the module, its types, and the plans that come with the package, which the Python package exports.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const checkout = dirname(here);
const dist = join(here, "dist");
const page = join(checkout, "gpuscan", "browser", "page");
const LENGTH = String(2 ** 25); // of the longest array, in elements

rmSync(dist, { recursive: true, force: true });
mkdirSync(join(dist, "plans"), { recursive: true });
for (const name of ["scan.js", "scan.d.ts"]) cpSync(join(page, name), join(dist, name));
for (const name of ["index.js", "index.d.ts"]) cpSync(join(here, "src", name), join(dist, name));
cpSync(join(checkout, "LICENSE"), join(here, "LICENSE"));

// One process exports all plans, since Python takes longer to start than to export one.
const EXPORTS = `
import gpuscan, sys
folder, length = sys.argv[1], int(sys.argv[2])
for dtype in ("float32", "int32", "uint32"):
    for op in ("add", "minimum", "maximum"):
        gpuscan.export(f"{folder}/{op}-{dtype}", op, dtype, length=length)
    gpuscan.export(f"{folder}/compact-{dtype}", dtype=dtype, length=length, compact=True)
`;
const environment = { ...process.env, PYTHONPATH: [checkout, process.env.PYTHONPATH ?? ""].join(delimiter) };
execFileSync(process.env.PYTHON ?? "python3", ["-c", EXPORTS, join(dist, "plans"), LENGTH], { env: environment });
for (const plan of readdirSync(join(dist, "plans"))) {
  for (const name of readdirSync(join(dist, "plans", plan))) {
    if (name !== "plan.json" && !name.endsWith(".wgsl")) rmSync(join(dist, "plans", plan, name));
  }
}
