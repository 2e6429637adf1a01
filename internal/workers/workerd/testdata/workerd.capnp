using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = ":network", network = (allow = ["public", "10.0.0.0/8"], tlsOptions = (trustBrowserCas = true))),
    (name = "internet", worker = (
      modules = [
        (name = "a.mjs", esModule = embed "/workers/internet/a.mjs"),
        (name = "b.cjs", commonJsModule = embed "/workers/internet/b.cjs"),
        (name = "c.wasm", wasm = embed "/workers/internet/c.wasm"),
        (name = "d.txt", text = embed "/workers/internet/d.txt"),
        (name = "e.json", json = embed "/workers/internet/e.json"),
        (name = "f", data = embed "/workers/internet/f"),
      ],
      compatibilityDate = "2026-01-01",
      globalOutbound = ":network",
      bindings = [
        (name = "WASM_WORKER_a", fromEnvironment = "SECRET_0_0"),
        (name = "tls.\"key\\\"\n\x01 ü", fromEnvironment = "SECRET_0_1"),
      ],
    )),
    (name = "classic", worker = (
      serviceWorkerScript = embed "/workers/classic/a.js",
      compatibilityDate = "2026-02-02",
      globalOutbound = ":network",
      bindings = [
        (name = "b_1_wasm", wasmModule = embed "/workers/classic/b-1.wasm"),
        (name = "_2_txt", text = embed "/workers/classic/2.txt"),
        (name = "c_json", json = embed "/workers/classic/c.json"),
        (name = "d", data = embed "/workers/classic/d"),
      ],
    )),
  ],
  sockets = [
    (name = "internet", address = "*:8080", http = (), service = "internet"),
    (name = "classic", address = "*:8081", http = (), service = "classic"),
  ],
);
