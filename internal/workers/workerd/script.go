// Package workerd has what the programs of the Workers system share about workerd, the server that
// runs scripts: the files of a script in an image, workerd's configuration, and its process.
//
// https://github.com/cloudflare/workerd
package workerd

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// ScriptsFolder is the folder of an image with a folder for each script.
const ScriptsFolder = "/workers"

// ManifestFile is the file in the folder of a script that describes the others.
const ManifestFile = "worker.json"

// Format is how a script handles requests.
type Format string

// Formats of scripts.
const (
	// FormatModule is an ES module with a default export.
	FormatModule Format = "module"
	// FormatServiceWorker is a script that calls addEventListener. Its other files are global
	// variables.
	FormatServiceWorker Format = "serviceWorker"
	// FormatWASI is a WebAssembly module that handles each request as a CGI program does
	// (wasi.mjs).
	FormatWASI Format = "wasi"
)

// Script describes the files of a script; it is the content of ManifestFile.
type Script struct {
	Name   string `json:"name"`
	Format Format `json:"format"`
	// CompatibilityDate is the date of the behavior of workerd that the script expects, as
	// 2006-01-02; "" is DefaultCompatibilityDate.
	CompatibilityDate string `json:"compatibilityDate,omitempty"`
	// Modules are the files. The first one handles requests.
	Modules []Module `json:"modules"`
}

// DefaultCompatibilityDate is the compatibility date of scripts without one. A later one would
// change how these scripts behave.
const DefaultCompatibilityDate = "2026-11-17"

// Module is a file of a script.
type Module struct {
	// File is its name in the folder of the script, as other modules import it.
	File string `json:"file"`
	// Type is the name of a field of Worker.Module in workerd.capnp.
	Type ModuleType `json:"type"`
}

// ModuleType is what workerd makes of a file.
type ModuleType string

// Types of modules.
const (
	TypeES       ModuleType = "esModule"
	TypeCommonJS ModuleType = "commonJsModule"
	TypeWASM     ModuleType = "wasm"
	TypeText     ModuleType = "text"
	TypeJSON     ModuleType = "json"
	TypeData     ModuleType = "data"
)

// moduleTypes are the types of files by extension. Other files are data.
var moduleTypes = map[string]ModuleType{".js": TypeES, ".mjs": TypeES, ".cjs": TypeCommonJS, ".wasm": TypeWASM,
	".txt": TypeText, ".html": TypeText, ".css": TypeText, ".md": TypeText, ".svg": TypeText, ".xml": TypeText,
	".json": TypeJSON}

// uncompiled are extensions of files that must be compiled to JavaScript first.
var uncompiled = map[string]bool{".ts": true, ".mts": true, ".cts": true, ".tsx": true, ".jsx": true}

// File names and script names. A script is a folder, and a component of a repository.
var (
	fileName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	scriptName = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
)

// maxName is the largest length of the name of a script.
const maxName = 128

// CheckName returns an error if a script cannot have a name.
func CheckName(name string) error {
	if len(name) > maxName || !scriptName.MatchString(name) {
		return fmt.Errorf("script name %q is invalid: use at most %d lower case letters, digits and single "+
			"separators such as -", name, maxName)
	}
	return nil
}

// CheckCompatibilityDate returns an error if a compatibility date is neither empty nor a date.
func CheckCompatibilityDate(date string) error {
	if _, err := time.Parse(time.DateOnly, date); err != nil && date != "" {
		return fmt.Errorf("compatibility date %q is invalid: use the form 2026-11-17", date)
	}
	return nil
}

// NewModule returns the module of a file.
func NewModule(file string) (Module, error) {
	switch {
	case !fileName.MatchString(file):
		return Module{}, fmt.Errorf("file name %q is invalid: use at most 128 letters, digits and the characters ._-, "+
			"and begin with a letter, a digit or _", file)
	case file == ManifestFile:
		return Module{}, fmt.Errorf("file name %s is reserved: rename the file", file)
	case uncompiled[path.Ext(file)]:
		return Module{}, fmt.Errorf("file %s must be compiled to JavaScript first", file)
	}
	if t, known := moduleTypes[path.Ext(file)]; known {
		return Module{file, t}, nil
	}
	return Module{file, TypeData}, nil
}

// ReadScript reads the description of the script in a folder.
func ReadScript(folder string) (Script, error) {
	var s Script
	content, err := os.ReadFile(filepath.Join(folder, ManifestFile))
	if err != nil {
		return s, fmt.Errorf("reading a script: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", filepath.Join(folder, ManifestFile), err)
	}
	return s, s.check()
}

// check returns an error if the description is not one that a push writes.
func (s Script) check() error {
	if len(s.Modules) == 0 {
		return fmt.Errorf("script %s has no files", s.Name)
	}
	for _, m := range s.Modules {
		if _, err := NewModule(m.File); err != nil {
			return fmt.Errorf("script %s: %w", s.Name, err)
		}
	}
	return nil
}

// globalName returns the name of the global variable of a file of a service worker.
func globalName(file string) string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' {
			return r
		}
		return '_'
	}, file)
	if name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}
