// Python for a page, in a worker that starts at the first use and can be stopped at any time.

// Pyodide's own copy. A query or a configuration names another one, as tests do.
const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/";

const here = (path) => new URL(path, import.meta.url);

/** Where Pyodide and gpuscan's wheel come from: `?pyodide=` and `?wheel=` of the page, else config.json, else Pyodide's own copy. */
async function configuration() {
  const query = new URLSearchParams(location.search);
  const config = await (await fetch(here("config.json"))).json();
  const address = (name, base, otherwise) =>
    query.get(name) ? new URL(query.get(name), location.href).href : new URL(config[name] ?? otherwise, base).href;
  return { pyodide: address("pyodide", here("."), PYODIDE), wheel: address("wheel", here("."), "") };
}

/** Why this browser cannot run gpuscan on its GPU, or null. */
export function missing() {
  if (!("Suspending" in WebAssembly)) {
    return "this browser has no JavaScript Promise Integration, by which Python waits for the GPU; use Chrome or Edge from version 137 on, or Firefox from 153 on";
  }
  if (!navigator.gpu) return "this browser has no WebGPU here; use Chrome or Edge, over https";
  return null;
}

export class Python {
  #worker = null;
  #started = null;
  #calls = new Map();
  #count = 0;

  /** Starts Python, if it does not run yet. `note` is called with what it does, and with what comes of it. */
  start(note = () => {}) {
    this.#started ??= (async () => {
      this.#worker = new Worker(here("worker.js"), { type: "module" });
      this.#worker.onmessage = ({ data }) => this.#told(data);
      this.#worker.onerror = (event) => this.#end(new Error(event.message ?? "the worker ended"));
      return this.#ask("start", await configuration(), note);
    })();
    this.#started.catch(() => this.stop());
    return this.#started;
  }

  /** Runs a program. `note` gets { kind: "out" or "err", text } for each line. The result is false after an error. */
  async run(code, note, { name = "program.py", cell = false } = {}) {
    await this.start(note.starting);
    return this.#ask("run", { code, name, cell }, note);
  }

  /** The value of the last expression, as Python's `str` has it. */
  async evaluate(code) {
    await this.start();
    return this.#ask("evaluate", { code });
  }

  async speeds(longest, note) {
    await this.start(note.starting);
    return this.#ask("speeds", { longest }, note);
  }

  async report(note, brief = false) {
    await this.start(note);
    return this.#ask("report", { brief }, note);
  }

  /** Ends Python, whatever it does. It starts anew at the next use. */
  stop() {
    this.#end(new Error("stopped"));
  }

  #ask(action, options, note = () => {}) {
    const id = this.#count++;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject, note });
      this.#worker.postMessage({ id, action, options });
    });
  }

  #told({ id, note, error, result }) {
    const call = this.#calls.get(id);
    if (!call) return;
    if (note !== undefined) return call.note(note);
    this.#calls.delete(id);
    if (error === undefined) call.resolve(result);
    else call.reject(new Error(error));
  }

  #end(error) {
    this.#worker?.terminate();
    this.#worker = this.#started = null;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const { reject } of calls) reject(error);
  }
}
