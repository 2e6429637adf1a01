package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

const fieldsPage = "docs/flux-argocd-fields.md"

// apiKind is a kind of Flux or Argo CD with a table in fieldsPage.
type apiKind struct {
	name string
	// folder has the go.mod that pins the modules.
	folder string
	// module has the package dir with the type Spec of the kind.
	module, dir string
	// others are modules with the types of fields, in their root.
	others []string
}

const (
	argoCD     = "github.com/argoproj/argo-cd/v3"
	argoDir    = "pkg/apis/application/v1alpha1"
	fluxSource = "github.com/fluxcd/source-controller/api"
	fluxMeta   = "github.com/fluxcd/pkg/apis/meta"
	fluxPatch  = "github.com/fluxcd/pkg/apis/kustomize"
	fluxACL    = "github.com/fluxcd/pkg/apis/acl"
)

var apiKinds = []apiKind{
	{"Kustomization", "e2e/tools/flux", "github.com/fluxcd/kustomize-controller/api", "v1",
		[]string{fluxMeta, fluxPatch}},
	{"HelmRelease", "e2e/tools/fluxapi", "github.com/fluxcd/helm-controller/api", "v2",
		[]string{fluxMeta, fluxPatch}},
	{"GitRepository", ".", fluxSource, "v1", []string{fluxMeta, fluxACL}},
	{"OCIRepository", ".", fluxSource, "v1", []string{fluxMeta, fluxACL}},
	{"Bucket", ".", fluxSource, "v1", []string{fluxMeta, fluxACL}},
	{"HelmRepository", ".", fluxSource, "v1", []string{fluxMeta, fluxACL}},
	{"HelmChart", ".", fluxSource, "v1", []string{fluxMeta, fluxACL}},
	{"Application", "e2e/tools/argocd", argoCD, argoDir, nil},
	{"ApplicationSet", "e2e/tools/argocd", argoCD, argoDir, nil},
	{"AppProject", "e2e/tools/argocd", argoCD, argoDir, nil},
}

// generators are those of an ApplicationSet. Each has one row, and their fields have none.
var generators = []string{"clusterDecisionResource", "clusters", "git", "list", "matrix", "merge", "plugin",
	"pullRequest", "scmProvider", "selector"}

// Every field of the kinds has a row in the page, and every row is about a field that exists. A
// type that several fields have needs the rows of its fields once.
func TestEveryFieldOfFluxAndArgoCDHasARow(t *testing.T) {
	page := read(t, fieldsPage)
	modules := map[string]*apiModule{}
	fields := map[string]apiFields{}
	for _, k := range apiKinds {
		m := modules[k.module]
		if m == nil {
			m = loadModule(t, k)
			modules[k.module] = m
		}
		if !strings.Contains(page, m.version) {
			t.Errorf("%s: the tests have %s: check whether the rows of %s are still true, and name that version",
				fieldsPage, m.version, k.name)
		}
		fields[k.name] = m.fieldsOf(t, k)
	}
	for _, problem := range fieldProblems(page, fields) {
		t.Errorf("%s: %s", fieldsPage, problem)
	}
	var found []string
	for _, p := range fields["ApplicationSet"].paths {
		if name, ok := strings.CutPrefix(p, "generators[]."); ok {
			found = append(found, name)
		}
	}
	if slices.Sort(found); !slices.Equal(found, generators) {
		t.Errorf("an ApplicationSet has the generators %v, the test expects %v", found, generators)
	}
	for _, c := range []struct{ row, changed, want string }{
		{"| `prune` |", "| `pruned` |", `the field "prune" of Kustomization has no row`},
		{"| `prune` |", "| `pruned` |", `Kustomization has no field "pruned"`},
		{"| `chart.spec.sourceRef.kind` |", "", `the field "chart.spec.sourceRef.kind" of HelmRelease has no row`},
		{"| `generators[].git` |", "", `the field "generators[].git" of ApplicationSet has no row`},
	} {
		if !strings.Contains(page, "\n"+c.row) {
			t.Fatalf("%s has no row %s", fieldsPage, c.row)
		}
		text := strings.Join(fieldProblems(strings.Replace(page, "\n"+c.row, "\n"+c.changed, 1), fields), "\n")
		if !strings.Contains(text, c.want) {
			t.Errorf("with %q in place of %q: %q, want %q", c.changed, c.row, text, c.want)
		}
	}
}

// fieldProblems returns the fields without a row, and the rows without a field.
func fieldProblems(page string, fields map[string]apiFields) (problems []string) {
	covered := map[apiField]bool{}
	for _, k := range apiKinds {
		rows := fieldRows(page, k.name)
		for i, row := range rows {
			field, ok := fields[k.name].byPath[row]
			if !ok {
				problems = append(problems, fmt.Sprintf("%s has no field %q: correct or remove the row", k.name, row))
			}
			if slices.Contains(rows[:i], row) {
				problems = append(problems, fmt.Sprintf("%s has two rows for %q: remove one", k.name, row))
			}
			covered[field] = true
		}
	}
	for _, k := range apiKinds {
		for _, p := range fields[k.name].paths {
			if field := fields[k.name].byPath[p]; !covered[field] {
				covered[field] = true // reported once
				problems = append(problems, fmt.Sprintf("the field %q of %s has no row: add | `%s` | what it is here, "+
					"or none and what to do instead |", p, k.name, p))
			}
		}
	}
	return problems
}

var fieldRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .+ \\|$")

// fieldRows returns the fields in the table of a kind.
func fieldRows(page, kind string) (out []string) {
	_, section, _ := strings.Cut(page, "\n## "+kind+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range fieldRow.FindAllStringSubmatch(section, -1) {
		out = append(out, m[1])
	}
	return out
}

// The fields of this project that the page names exist.
func TestFieldsOfFluxAndArgoCDNameFieldsThatExist(t *testing.T) {
	roots := map[string]reflect.Type{
		"spec": reflect.TypeFor[appsv1.KsctlInstallSpec](), "component": reflect.TypeFor[stacks.Component](),
		"git": reflect.TypeFor[appsv1.GitSource](), "oci": reflect.TypeFor[appsv1.OCISource](),
		"override": reflect.TypeFor[struct {
			Values   map[string]any   `json:"values"`
			Images   []stacks.Image   `json:"images"`
			Replicas []stacks.Replica `json:"replicas"`
			Patches  []stacks.Patch   `json:"patches"`
		}]()}
	page := read(t, fieldsPage)
	named := regexp.MustCompile("`(spec|component|git|oci|override)\\.([A-Za-z.\\[\\]]+)")
	found := named.FindAllStringSubmatch(page, -1)
	for _, m := range found {
		if !hasField(roots[m[1]], strings.Split(m[2], ".")) {
			t.Errorf("%s names %s.%s, which does not exist", fieldsPage, m[1], m[2])
		}
	}
	if strings.Contains(page, "| none |") || strings.Contains(page, "| none yet |") {
		t.Errorf("%s: a row says none alone: say why, or what to do instead", fieldsPage)
	}
	if len(found) < 200 {
		t.Errorf("found only %d fields in %s", len(found), fieldsPage)
	}
}

// hasField reports whether a value of a type has a field with that path in JSON.
func hasField(t reflect.Type, segments []string) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if len(segments) == 0 {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous && hasField(f.Type, segments) {
			return true
		}
		list := f.Type.Kind() == reflect.Slice
		if name == strings.TrimSuffix(segments[0], "[]") && (list || name == segments[0]) {
			return hasField(f.Type, segments[1:])
		}
	}
	return false
}

// apiField is a field of a Go type: the package and name of the type, and the name of the field in
// JSON.
type apiField struct{ pkg, typ, name string }

// apiFields are the fields of a kind.
type apiFields struct {
	// byPath has the field at each path below spec. Items of a list are written as [].
	byPath map[string]apiField
	// paths are its keys in the order of the types.
	paths []string
}

// apiModule is the source of the packages with the types of a kind.
type apiModule struct {
	// version is the name and version of the module, such as "Argo CD v3.5.7".
	version string
	// types are the types by package and name.
	types map[string]map[string]apiType
}

// apiType is the declaration of a Go type.
type apiType struct {
	pkg, name string
	expr      ast.Expr
	// imports are the paths of the packages that its file imports, by name.
	imports map[string]string
}

// loadModule parses the types of a kind in the version that a go.mod pins. It downloads these
// modules if necessary, and none that they need.
func loadModule(t *testing.T, k apiKind) *apiModule {
	t.Helper()
	args := append([]string{"mod", "download", "-json", k.module}, k.others...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(root, k.folder)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.Output() // the go command writes the reason of a failure to standard output
	if err != nil {
		t.Fatalf("downloading the types of %s: %v: %s", k.name, err, out)
	}
	m := &apiModule{types: map[string]map[string]apiType{}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var found struct{ Path, Version, Dir string }
		if err := decoder.Decode(&found); err != nil {
			t.Fatal(err)
		}
		pkg, dir := found.Path, found.Dir
		if found.Path == k.module {
			m.version = productOf(found.Path) + " " + found.Version
			pkg, dir = path.Join(pkg, k.dir), filepath.Join(dir, k.dir)
		}
		m.parse(t, pkg, dir)
	}
	return m
}

// productOf returns the name of a program by the path of its module.
func productOf(modulePath string) string {
	if strings.HasPrefix(modulePath, "github.com/argoproj/") {
		return "Argo CD"
	}
	return path.Base(strings.TrimSuffix(modulePath, "/api"))
}

// parse adds the types of a package.
func (m *apiModule) parse(t *testing.T, pkg, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no Go files: %v", dir, err)
	}
	m.types[pkg] = map[string]apiType{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		imports := importsOf(t, file)
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					m.types[pkg][s.Name.Name] = apiType{pkg, s.Name.Name, s.Type, imports}
				}
			}
		}
	}
}

// importsOf returns the paths of the packages that a file imports, by name.
func importsOf(t *testing.T, file *ast.File) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, i := range file.Imports {
		importPath, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if i.Name != nil {
			out[i.Name.Name] = importPath
		} else {
			out[path.Base(importPath)] = importPath
		}
	}
	return out
}

// fieldsOf returns the fields of a kind.
func (m *apiModule) fieldsOf(t *testing.T, k apiKind) apiFields {
	t.Helper()
	out := apiFields{byPath: map[string]apiField{}}
	pkg := path.Join(k.module, k.dir)
	spec, _ := m.resolve(t, apiType{pkg: pkg, expr: ast.NewIdent(k.name + "Spec")})
	if spec.name == "" {
		t.Fatalf("%s has no type %sSpec", pkg, k.name)
	}
	m.walk(t, spec, "", nil, &out)
	return out
}

// walk adds the fields of a struct, and those of their types. within are the types around it.
func (m *apiModule) walk(t *testing.T, s apiType, prefix string, within []string, out *apiFields) {
	t.Helper()
	if slices.Contains(within, s.name) {
		return
	}
	within = append(slices.Clip(within), s.name)
	for _, f := range s.expr.(*ast.StructType).Fields.List {
		name := jsonName(t, f)
		if name == "-" {
			continue
		}
		of, suffix := m.resolve(t, apiType{pkg: s.pkg, name: s.name, expr: f.Type, imports: s.imports})
		if name == "" { // embedded
			m.walk(t, of, prefix, within, out)
			continue
		}
		out.byPath[prefix+name] = apiField{s.pkg, s.name, name}
		out.paths = append(out.paths, prefix+name)
		if of.name != "" && s.name != "ApplicationSetGenerator" { // a generator has one row
			m.walk(t, of, prefix+name+suffix+".", within, out)
		}
	}
}

// jsonName returns the name of a field in JSON; "" for the fields of an embedded type.
func jsonName(t *testing.T, f *ast.Field) string {
	t.Helper()
	if f.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return name
}

// resolve returns the struct that a type is, points to, or has as its items, and "[]" for items.
// The struct has no name if there is none, or if it is a type of Kubernetes, which counts as one
// value.
func (m *apiModule) resolve(t *testing.T, of apiType) (apiType, string) {
	t.Helper()
	switch e := of.expr.(type) {
	case *ast.StarExpr:
		of.expr = e.X
		return m.resolve(t, of)
	case *ast.ArrayType:
		of.expr = e.Elt
		item, suffix := m.resolve(t, of)
		return item, "[]" + suffix
	case *ast.StructType:
		return of, ""
	case *ast.Ident:
		if declared, ok := m.types[of.pkg][e.Name]; ok {
			return m.resolve(t, declared)
		}
	case *ast.SelectorExpr:
		pkg := of.imports[fmt.Sprint(e.X)]
		if types, ok := m.types[pkg]; ok {
			return m.resolve(t, types[e.Sel.Name])
		}
		if !strings.HasPrefix(pkg, "k8s.io/") {
			t.Fatalf("%s.%s has a field of the package %q: add it to apiKinds", of.pkg, of.name, pkg)
		}
	case *ast.MapType:
		of.expr = e.Value
		if value, _ := m.resolve(t, of); value.name != "" {
			t.Fatalf("%s.%s has a map of %s: rows for its fields are not supported", of.pkg, of.name, value.name)
		}
	}
	return apiType{}, ""
}
