package workerd

import (
	_ "embed" // of what runs WASI commands
	"fmt"
	"path"
	"strings"
)

// Worker is a script that serves a socket.
type Worker struct {
	Name   string
	Script Script
	// Source is the only module, an ES module, of a worker without a Script.
	Source string
	// Folder is the absolute path of the files of the script.
	Folder string
	// Address is where workerd listens if it is started without a listener for the worker.
	Address           string
	CompatibilityDate string
	Bindings          []Binding
}

// Binding makes an environment variable of workerd's process available to a script. Values do not
// occur in the configuration.
type Binding struct {
	// Name is the name for the script. It may be any text.
	Name string
	// Variable is the name of the environment variable.
	Variable string
}

// wasiProgram is the main module of a script of FormatWASI, which imports wasiModule.
//
//go:embed wasi.mjs
var wasiProgram string

// Names of modules of a script of FormatWASI.
const (
	wasiMain   = "wasi.mjs"
	wasiModule = "module.wasm"
)

// sourceModule is the name of the module of Worker.Source.
const sourceModule = "main.mjs"

// Config returns workerd's configuration for workers. Each has a service and a socket with its
// name. Networks are those that scripts may connect to: public, private, local, or a CIDR.
func Config(workers []Worker, networks []string) string {
	var out strings.Builder
	out.WriteString("using Workerd = import \"/workerd/workerd.capnp\";\n\nconst config :Workerd.Config = (\n" +
		"  services = [\n")
	allowed := make([]string, len(networks))
	for i, network := range networks {
		allowed[i] = quote(network)
	}
	fmt.Fprintf(&out, "    (name = %s, network = (allow = [%s], tlsOptions = (trustBrowserCas = true))),\n",
		quote(networkService), strings.Join(allowed, ", "))
	for i := range workers {
		fmt.Fprintf(&out, "    (name = %s, worker = (\n", quote(workers[i].Name))
		workers[i].write(&out)
		out.WriteString("    )),\n")
	}
	out.WriteString("  ],\n  sockets = [\n")
	for _, w := range workers {
		fmt.Fprintf(&out, "    (name = %s, address = %s, http = (), service = %s),\n", quote(w.Name), quote(w.Address),
			quote(w.Name))
	}
	out.WriteString("  ],\n);\n")
	return out.String()
}

// networkService is the name of the service through which scripts connect to networks. No worker
// can have this name.
const networkService = ":network"

// write writes the fields of the worker.
func (w *Worker) write(out *strings.Builder) {
	switch {
	case w.Source != "":
		fmt.Fprintf(out, "      modules = [(name = %s, %s = %s)],\n", quote(sourceModule), TypeES, quote(w.Source))
	case w.Script.Format == FormatServiceWorker:
		fmt.Fprintf(out, "      serviceWorkerScript = %s,\n", w.embed(w.Script.Modules[0]))
	default:
		out.WriteString("      modules = [\n")
		for i, m := range w.Script.Modules {
			name := m.File
			if w.Script.Format == FormatWASI && i == 0 {
				name = wasiModule
				fmt.Fprintf(out, "        (name = %s, %s = %s),\n", quote(wasiMain), TypeES, quote(wasiProgram))
			}
			fmt.Fprintf(out, "        (name = %s, %s = %s),\n", quote(name), m.Type, w.embed(m))
		}
		out.WriteString("      ],\n")
	}
	fmt.Fprintf(out, "      compatibilityDate = %s,\n      globalOutbound = %s,\n      bindings = [\n",
		quote(w.compatibilityDate()), quote(networkService))
	if w.Script.Format == FormatServiceWorker {
		for _, m := range w.Script.Modules[1:] {
			fmt.Fprintf(out, "        (name = %s, %s = %s),\n", quote(globalName(m.File)), bindingFields[m.Type],
				w.embed(m))
		}
	}
	for _, b := range w.Bindings {
		fmt.Fprintf(out, "        (name = %s, fromEnvironment = %s),\n", quote(b.Name), quote(b.Variable))
	}
	out.WriteString("      ],\n")
}

// bindingFields are the fields of Worker.Binding in workerd.capnp for files of a service worker.
var bindingFields = map[ModuleType]string{TypeWASM: "wasmModule", TypeText: "text", TypeJSON: "json", TypeData: "data"}

// IsGlobal reports whether a file of a type can be a global variable of a service worker.
func IsGlobal(t ModuleType) bool { return bindingFields[t] != "" }

func (w *Worker) compatibilityDate() string {
	for _, date := range []string{w.CompatibilityDate, w.Script.CompatibilityDate} {
		if date != "" {
			return date
		}
	}
	return DefaultCompatibilityDate
}

func (w *Worker) embed(m Module) string { return "embed " + quote(path.Join(w.Folder, m.File)) }

// quote returns a text as a literal of the language of Cap'n Proto, which has no escape for Unicode
// and reads UTF-8.
func quote(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c == '\n':
			out.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}
