package build

import (
	"encoding/json"
	"path"
	"regexp"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// newScript returns the description of a script, whose first file handles requests.
func newScript(name, compatibilityDate string, files []File) (workerd.Script, error) {
	s := workerd.Script{Name: name, CompatibilityDate: compatibilityDate}
	for _, f := range files {
		m, err := workerd.NewModule(f.Name)
		if err != nil {
			return s, &terminalError{err}
		}
		s.Modules = append(s.Modules, m)
	}
	var err error
	switch s.Modules[0].Type {
	case workerd.TypeES:
		s.Format, err = detectFormat(files[0])
	case workerd.TypeWASM:
		s.Format = workerd.FormatWASI
		if len(files) > 1 {
			err = terminalf("file %s is first but is no script: list the script before the modules that it imports",
				files[0].Name)
		}
	default:
		err = terminalf("file %s is no script: the first file must be .js, .mjs or .wasm", files[0].Name)
	}
	if err == nil && s.Format == workerd.FormatServiceWorker {
		err = checkGlobals(s)
	}
	return s, err
}

// checkGlobals returns an error if a file of a service worker cannot be a global variable.
func checkGlobals(s workerd.Script) error {
	for _, m := range s.Modules[1:] {
		if !workerd.IsGlobal(m.Type) {
			return terminalf("script %s calls addEventListener, so it cannot import %s: export a default handler "+
				"instead", s.Modules[0].File, m.File)
		}
	}
	return nil
}

// addEventListener is its call in code without comments and white space.
var addEventListener = regexp.MustCompile(`(^|[^\w$.]|\b(self|globalThis)\.)addEventListener\(`)

// maxSource bounds the source of a main module: parsing it takes about fifty times its size.
const maxSource = 10 << 20

// detectFormat returns the format of a script in JavaScript.
func detectFormat(f File) (workerd.Format, error) {
	if len(f.Content) > maxSource {
		return "", terminalf("script %s has %d bytes; %d are allowed: move data into files that it imports", f.Name,
			len(f.Content), maxSource)
	}
	out := api.Build(api.BuildOptions{
		Stdin:         &api.StdinOptions{Contents: string(f.Content), Sourcefile: f.Name, Loader: api.LoaderJS},
		AbsWorkingDir: "/", Outfile: "/" + f.Name, Write: false, Metafile: true, LogLevel: api.LogLevelSilent,
		LegalComments: api.LegalCommentsNone, MinifyWhitespace: true, Target: api.ESNext})
	if len(out.Errors) > 0 {
		e := out.Errors[0]
		if e.Location == nil {
			return "", terminalf("script %s: %s", f.Name, e.Text)
		}
		return "", terminalf("script %s, line %d, column %d: %s", f.Name, e.Location.Line, e.Location.Column+1, e.Text)
	}
	exports, isModule, err := moduleSyntax(out.Metafile)
	switch {
	case err != nil:
		return "", err
	case exports["default"]:
		return workerd.FormatModule, nil
	case isModule || path.Ext(f.Name) == ".mjs":
		return "", terminalf("script %s has no default export: export default {fetch(request, env, ctx) {…}}", f.Name)
	case addEventListener.Match(out.OutputFiles[0].Contents):
		return workerd.FormatServiceWorker, nil
	}
	return "", terminalf("script %s handles no requests: it has no default export, and does not call addEventListener",
		f.Name)
}

// moduleSyntax returns the names that a script exports, and whether it has import or export
// statements.
func moduleSyntax(metafile string) (exports map[string]bool, isModule bool, err error) {
	var meta struct {
		Outputs map[string]struct {
			Exports []string
			Imports []struct{ Kind string }
		}
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return nil, false, err
	}
	exports = map[string]bool{}
	for _, o := range meta.Outputs {
		for _, e := range o.Exports {
			exports[e], isModule = true, true
		}
		for _, i := range o.Imports {
			isModule = isModule || i.Kind == "import-statement"
		}
	}
	return exports, isModule, nil
}
