package scriptsapi

import (
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

// Content types of the parts of an upload.
const (
	typeModule     = "application/javascript+module"
	typeJavaScript = "application/javascript"
	typeWASM       = "application/wasm"
	typeText       = "text/plain"
	typeJSON       = "application/json"
	typeData       = "application/octet-stream"
	typeSourceMap  = "application/source-map"
	typePython     = "text/x-python"
)

// synonyms are other names of content types.
var synonyms = map[string]string{"text/javascript+module": typeModule, "text/javascript": typeJavaScript,
	"text/html": typeText, "text/css": typeText, "text/markdown": typeText, "image/svg+xml": typeText,
	"text/xml": typeText, "application/xml": typeText}

// extensions are those that the names of files need, so that the build finds the type again. Files
// with other extensions are data.
var extensions = map[string][]string{typeModule: {".js", ".mjs"}, typeJavaScript: {".cjs"}, typeWASM: {".wasm"},
	typeText: {".txt", ".html", ".css", ".md", ".svg", ".xml"}, typeJSON: {".json"}}

// reservedName is the name of the file that the build adds.
const reservedName = "worker.json"

// uncompiled are extensions of files that must be compiled to JavaScript first.
var uncompiled = []string{".ts", ".mts", ".cts", ".tsx", ".jsx"}

// module is a file of a script.
type module struct {
	name        string
	contentType string
	content     []byte
}

// normalizeName returns the name of a module without "./" in front, as others import it.
func normalizeName(part string) string { return strings.TrimPrefix(part, "./") }

// newModule returns the module of a part. Main is true if it handles requests.
func newModule(part, contentType string, content []byte, main bool) (module, error) {
	m := module{name: normalizeName(part), content: content}
	parsed, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return m, invalidf("part %q has no valid Content-Type: use one such as %s", part, typeModule)
	}
	m.contentType = parsed
	if other := synonyms[parsed]; other != "" {
		m.contentType = other
	}
	switch m.contentType {
	case typeSourceMap:
		return m, invalidf("part %q is a source map, which is not stored: set upload_source_maps = false", part)
	case typePython:
		return m, invalidf("part %q is a Python module: scripts are JavaScript or WebAssembly", part)
	case typeModule:
		// Nothing imports a main module, so it can have another name.
		if main && path.Ext(m.name) == "" {
			m.name += ".mjs"
		}
	}
	return m, m.check(part)
}

// check returns an error if the build would not find the type of the file.
func (m module) check(part string) error {
	ext := path.Ext(m.name)
	switch {
	case strings.Contains(m.name, "/"):
		return invalidf("part %q is in a folder: a script has no folders; bundle its modules into one", part)
	case !filestore.ValidName(m.name):
		return invalidf("part %q has an invalid name: use at most 128 letters, digits and the characters ._-, and "+
			"begin with a letter, a digit or _", part)
	case m.name == reservedName:
		return invalidf("part %q has a reserved name: rename the module", part)
	case slices.Contains(uncompiled, ext):
		return invalidf("part %q must be compiled to JavaScript first", part)
	}
	if known := extensions[m.contentType]; known != nil {
		if !slices.Contains(known, ext) {
			return invalidf("part %q of type %s has the extension %q: use %s", part, m.contentType, ext,
				strings.Join(known, ", "))
		}
		return nil
	}
	if m.contentType != typeData {
		return invalidf("part %q has the unknown type %s: use one of %s", part, m.contentType,
			strings.Join([]string{typeModule, typeJavaScript, typeWASM, typeText, typeJSON, typeData}, ", "))
	}
	for t, known := range extensions {
		if slices.Contains(known, ext) {
			return invalidf("part %q of type %s has the extension %q, which is that of %s: use another one, such as "+
				".bin",
				part, typeData, ext, t)
		}
	}
	return nil
}

// contentTypeOf returns the content type of a stored module.
func contentTypeOf(name string) string {
	ext := path.Ext(name)
	for t, known := range extensions {
		if slices.Contains(known, ext) {
			return t
		}
	}
	return typeData
}
