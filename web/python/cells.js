// Gives each Python block of a document a button that runs it on the visitor's GPU. The blocks of a page share their names,
// and run in order: a block runs those before it first, if they have not run.
import { Python, missing } from "./python.js";

// Blocks with these need what a page does not have: other packages, files, several devices, or wgpu itself.
const ELSEWHERE = /\b(import (torch|jax|dask|wgpu|cupy|pandas|scipy|xarray)|from (torch|jax|dask|pandas|scipy)|gpuscan\.(torch|jax|dask)|gs\.(torch|jax|dask)|gs\.signal)\b/;

const python = new Python();
const blocks = [...document.querySelectorAll(".highlight-python pre, .highlight-pycon pre, .highlight-default pre")].filter(
  (block) => block.textContent.includes("gs.") || block.textContent.includes("import "),
);
const cells = [];

function output(cell) {
  return ({ kind, text }) => {
    const line = document.createElement("span");
    line.className = kind;
    line.textContent = `${text}\n`;
    cell.shown.append(line);
  };
}

async function run(last) {
  for (const cell of cells) cell.button.disabled = true;
  try {
    for (const [number, cell] of cells.slice(0, last + 1).entries()) {
      if (cell.done && number < last) continue;
      cell.shown.replaceChildren();
      cell.button.textContent = "Running …";
      const note = Object.assign(output(cell), { starting: (text) => (cell.button.textContent = text) });
      cell.done = await python.run(cell.code, note, { name: `block ${number + 1}`, cell: true });
      cell.button.textContent = cell.done ? "Run again" : "Run";
      if (!cell.done) break;
    }
  } catch (error) {
    output(cells[last])({ kind: "err", text: error.message });
  } finally {
    for (const cell of cells) {
      cell.button.disabled = false;
      if (!cell.done) cell.button.textContent = "Run";
    }
  }
}

if (!missing() && !blocks.some((block) => ELSEWHERE.test(block.textContent))) {
  for (const block of blocks) {
    const place = document.createElement("div");
    place.className = "gpuscan-cell";
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Run" });
    button.title = "Run this on your GPU, after the blocks above";
    const shown = document.createElement("pre");
    place.append(button, shown);
    block.closest("[class*=highlight-]").after(place);
    const cell = { code: block.textContent, button, shown, done: false };
    cells.push(cell);
    button.addEventListener("click", () => run(cells.indexOf(cell)));
  }
}
globalThis.gpuscanCells = { cells, run };
