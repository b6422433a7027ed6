// Builds dist/: the module, its types, and the plans that come with the package, which the Python package exports.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const checkout = dirname(here);
const dist = join(here, "dist");
const page = join(checkout, "gpuscan", "browser", "page");
const LENGTH = String(2 ** 25);

rmSync(dist, { recursive: true, force: true });
mkdirSync(join(dist, "plans"), { recursive: true });
for (const name of ["scan.js", "scan.d.ts"]) cpSync(join(page, name), join(dist, name));
for (const name of ["index.js", "index.d.ts"]) cpSync(join(here, "src", name), join(dist, name));
cpSync(join(checkout, "LICENSE"), join(here, "LICENSE"));

const environment = { ...process.env, PYTHONPATH: [checkout, process.env.PYTHONPATH ?? ""].join(process.platform === "win32" ? ";" : ":") };
for (const operator of ["add", "minimum", "maximum"]) {
  for (const type of ["float32", "int32", "uint32"]) {
    const folder = join(dist, "plans", `${operator}-${type}`);
    const options = ["--op", operator, "--dtype", type, "--length", LENGTH];
    execFileSync(process.env.PYTHON ?? "python3", ["-m", "gpuscan", "export", folder, ...options], { env: environment });
    for (const name of readdirSync(folder)) {
      if (name !== "plan.json" && !name.endsWith(".wgsl")) rmSync(join(folder, name));
    }
  }
}
