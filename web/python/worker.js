// Python in a worker: loads Pyodide, NumPy and gpuscan's wheel, and does what `python.js` asks for, one thing after the
// other. The worker's own GPU is that of the page.
let pyodide = null;
let asked = Promise.resolve();

const actions = {
  async start({ pyodide: base, wheel }, note) {
    const { loadPyodide } = await import(`${base}pyodide.mjs`);
    note("Starting Python …");
    pyodide = await loadPyodide({ indexURL: base });
    const begun = performance.now();
    note("Loading NumPy and gpuscan …");
    // A wheel by its address comes without the packages that it names. A scan needs these alone.
    await pyodide.loadPackage(["numpy", "jinja2", wheel], { messageCallback: () => {}, errorCallback: note });
    const helpers = await (await fetch(new URL("helpers.py", import.meta.url))).text();
    pyodide.FS.writeFile("/home/pyodide/gpuscan_page.py", helpers);
    await pyodide.runPythonAsync("import sys; sys.path.insert(0, '/home/pyodide'); import gpuscan_page");
    return { version: pyodide.version, milliseconds: performance.now() - begun };
  },

  async run({ code, name, cell }, note) {
    const output = (kind) => ({ batched: (text) => note({ kind, text }) });
    pyodide.setStdout(output("out"));
    pyodide.setStderr(output("err"));
    given.set("code", code).set("name", name);
    return call(`gpuscan_page.run_${cell ? "cell" : "program"}(given["code"], given["name"], globals())`);
  },

  async evaluate({ code }) {
    return String(await pyodide.runPythonAsync(code));
  },

  async speeds({ longest }, note) {
    given.set("note", (text) => note(JSON.parse(text)));
    return call(`gpuscan_page.speeds(${Number(longest)}, given["note"])`);
  },

  async report({ brief }, note) {
    note("Loading what the report needs …");
    await pyodide.loadPackage("micropip", { messageCallback: () => {} });
    await pyodide.runPythonAsync('import micropip; await micropip.install(["click", "rich"])');
    note("Measuring the GPU. This takes one to five minutes …");
    return JSON.parse(await pyodide.runPythonAsync(`gpuscan_page.report(brief=${brief ? "True" : "False"})`));
  },
};

// What a call passes to Python.
const given = new Map();

/** Awaits a coroutine in Python's main namespace. Only such a call can wait for the GPU. */
async function call(expression) {
  pyodide.globals.set("given", pyodide.toPy(given));
  return pyodide.runPythonAsync(`await ${expression}`);
}

onmessage = ({ data: { id, action, options } }) => {
  asked = asked.then(async () => {
    try {
      const result = await actions[action](options, (note) => postMessage({ id, note }));
      postMessage({ id, result: result ?? null });
    } catch (error) {
      postMessage({ id, error: String(error?.message ?? error) });
    }
  });
};
