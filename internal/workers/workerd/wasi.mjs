// Runs a WASI command (wasm32-wasip1) for each request, by the conventions of CGI: the environment
// has the request's metadata and the worker's secrets, the standard input has its body, and the
// command writes a header, an empty line and a body. It has no files, and what it writes to its
// standard error is logged.
import module from "module.wasm";

const namespace = "wasi_snapshot_preview1";
const imports = WebAssembly.Module.imports(module);
for (const name of ["_start", "memory"]) {
  if (!WebAssembly.Module.exports(module).some((e) => e.name === name)) {
    throw new Error(`a module without JavaScript must be a WASI command, this one does not export ${name}`);
  }
}
for (const { module: from, name } of imports) {
  if (from !== namespace) {
    throw new Error(`a module without JavaScript must be a WASI command, this one imports ${from}.${name}`);
  }
}

const EBADF = 8, ENOSYS = 52, ESPIPE = 70;
const encoder = new TextEncoder();

class Exit {
  constructor(code) { this.code = code; }
}

function run(stdin, variables) {
  let memory;
  const view = () => new DataView(memory.buffer);
  const bytes = (at, size) => new Uint8Array(memory.buffer, at, size);
  const setSize = (at, value) => view().setUint32(at, value, true);
  const buffers = (at, count) => Array.from({ length: count }, (_, i) =>
    bytes(view().getUint32(at + 8 * i, true), view().getUint32(at + 8 * i + 4, true)));

  const sizesOf = (list) => (count, size) => {
    setSize(count, list.length);
    setSize(size, list.reduce((sum, text) => sum + text.length, 0));
    return 0;
  };
  const copyOf = (list) => (pointers, at) => {
    for (const text of list) {
      setSize(pointers, at);
      bytes(at, text.length).set(text);
      pointers += 4;
      at += text.length;
    }
    return 0;
  };
  const args = [encoder.encode("module.wasm\0")];
  const environ = Object.entries(variables).map(([name, value]) => encoder.encode(`${name}=${value}\0`));

  const output = { 1: [], 2: [] };
  let position = 0;
  // The clock of workerd stands still while a module runs, so a sleep moves this one.
  let slept = 0n;
  const now = () => BigInt(Date.now()) * 1000000n + slept;

  const wasi = {
    args_sizes_get: sizesOf(args),
    args_get: copyOf(args),
    environ_sizes_get: sizesOf(environ),
    environ_get: copyOf(environ),
    clock_time_get(_id, _precision, at) {
      view().setBigUint64(at, now(), true);
      return 0;
    },
    random_get(at, size) {
      for (let done = 0; done < size; done += 65536) {
        crypto.getRandomValues(bytes(at + done, Math.min(65536, size - done)));
      }
      return 0;
    },
    sched_yield: () => 0,
    fd_close: () => 0,
    fd_fdstat_set_flags: () => 0,
    fd_prestat_get: () => EBADF,
    fd_seek: () => ESPIPE,
    fd_fdstat_get(fd, at) {
      if (fd > 2) return EBADF;
      bytes(at, 24).fill(0);
      view().setUint8(at, 2); // a character device, with all rights
      view().setBigUint64(at + 8, 0xffffffffffffffffn, true);
      return 0;
    },
    fd_read(fd, at, count, read) {
      if (fd !== 0) return EBADF;
      let total = 0;
      for (const buffer of buffers(at, count)) {
        const part = stdin.subarray(position, position + buffer.length);
        buffer.set(part);
        position += part.length;
        total += part.length;
      }
      setSize(read, total);
      return 0;
    },
    fd_write(fd, at, count, written) {
      if (!output[fd]) return EBADF;
      let total = 0;
      for (const buffer of buffers(at, count)) {
        output[fd].push(buffer.slice());
        total += buffer.length;
      }
      setSize(written, total);
      return 0;
    },
    poll_oneoff(at, events, count, done) {
      // Standard streams are always ready. Otherwise the earliest timer fires.
      const subscriptions = Array.from({ length: count }, (_, i) => {
        const s = at + 48 * i, type = view().getUint8(s + 8);
        let delay = 0n;
        if (type === 0) {
          delay = view().getBigUint64(s + 24, true);
          if (view().getUint16(s + 40, true) & 1) delay = delay > now() ? delay - now() : 0n;
        }
        return { id: view().getBigUint64(s, true), type, delay };
      });
      const earliest = subscriptions.reduce((a, b) => (b.delay < a ? b.delay : a), subscriptions[0].delay);
      slept += earliest;
      const fired = subscriptions.filter((s) => s.delay <= earliest);
      fired.forEach(({ id, type }, i) => {
        bytes(events + 32 * i, 32).fill(0);
        view().setBigUint64(events + 32 * i, id, true);
        view().setUint8(events + 32 * i + 10, type);
      });
      setSize(done, fired.length);
      return 0;
    },
    proc_exit(code) { throw new Exit(code); },
  };
  for (const { name } of imports) wasi[name] ??= () => ENOSYS;

  const instance = new WebAssembly.Instance(module, { [namespace]: wasi });
  memory = instance.exports.memory;
  let code = 0;
  try {
    instance.exports._start();
  } catch (e) {
    if (!(e instanceof Exit)) throw e;
    code = e.code;
  }
  return { code, stdout: join(output[1]), stderr: join(output[2]) };
}

function join(parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

function environment(request, size, secrets) {
  const url = new URL(request.url);
  const out = {};
  for (const [name, value] of request.headers) {
    // Programs take HTTP_PROXY for a setting.
    if (name !== "proxy") out["HTTP_" + name.toUpperCase().replaceAll("-", "_")] = value;
  }
  Object.assign(out, {
    GATEWAY_INTERFACE: "CGI/1.1",
    REQUEST_METHOD: request.method,
    REQUEST_URI: url.pathname + url.search,
    SCRIPT_NAME: "",
    PATH_INFO: decode(url.pathname),
    QUERY_STRING: url.search.slice(1),
    SERVER_NAME: url.hostname,
    SERVER_PORT: url.port || "80",
    SERVER_PROTOCOL: "HTTP/1.1",
    CONTENT_LENGTH: String(size),
    CONTENT_TYPE: request.headers.get("content-type") ?? "",
  });
  for (const [name, value] of Object.entries(secrets)) {
    if (typeof value === "string") out[name] = value;
  }
  return out;
}

function decode(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

// parse returns the response of the output of a command.
function parse(output) {
  let at = 0, status = 200;
  const headers = new Headers();
  for (;;) {
    const end = output.indexOf(10, at);
    if (end < 0) return new Response("the module wrote no header that ends with an empty line\n", { status: 502 });
    const line = new TextDecoder().decode(output.subarray(at, end)).replace(/\r$/, "");
    at = end + 1;
    if (line === "") break;
    const colon = line.indexOf(":");
    if (colon < 1) return new Response("the module wrote a line of a header without a colon\n", { status: 502 });
    const name = line.slice(0, colon), value = line.slice(colon + 1).trim();
    if (name.toLowerCase() === "status") {
      status = parseInt(value, 10);
    } else {
      headers.append(name, value);
      if (name.toLowerCase() === "location" && status === 200) status = 302;
    }
  }
  const empty = [101, 204, 205, 304].includes(status);
  return new Response(empty ? null : output.subarray(at), { status, headers });
}

export default {
  async fetch(request, env) {
    const body = new Uint8Array(await request.arrayBuffer());
    const { code, stdout, stderr } = run(body, environment(request, body.length, env));
    if (stderr.length > 0) console.error(new TextDecoder().decode(stderr));
    if (code !== 0) return new Response(`the module exited with status ${code}\n`, { status: 502 });
    return parse(stdout);
  },
};
