package docs_test

import (
	"fmt"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/ksctl/gitops/"

// promised returns the packages that docs/library.md lists.
func promised(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z][a-z0-9/]*`(?:, `[a-z][a-z0-9/]*`)*) \\|").
		FindAllStringSubmatch(read(t, "docs/library.md"), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			out = append(out, strings.Trim(name, "`"))
		}
	}
	if len(out) < 7 {
		t.Fatalf("docs/library.md lists %q: is the page read?", out)
	}
	return out
}

// Programs can import no package of internal/, so they could not name its types.
func TestPromisedPackagesLeakNoInternalType(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks the module")
	}
	var patterns []string
	for _, p := range promised(t) {
		if p == "api/client" { // generated, in packages below
			p += "/..."
		}
		patterns = append(patterns, "./"+p)
	}
	loaded, err := packages.Load(&packages.Config{Context: t.Context(), Dir: root,
		Mode: packages.NeedName | packages.NeedImports | packages.NeedTypes | packages.NeedTypesSizes}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	r := reachable{types: map[string]string{}, seen: map[types.Type]bool{}}
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		scope := p.Types.Scope()
		for _, name := range scope.Names() {
			if o := scope.Lookup(name); o.Exported() {
				r.object(o, strings.TrimPrefix(p.PkgPath, module)+"."+name)
			}
		}
	}
	if len(r.types) < 100 {
		t.Errorf("%d types are reachable: are all packages read?", len(r.types))
	}
	for _, name := range slices.Sorted(maps.Keys(r.types)) {
		if strings.HasPrefix(name, "internal/") || strings.Contains(name, "/internal/") {
			t.Errorf("%s is reachable through %s", name, r.types[name])
		}
	}
}

// reachable collects the types of this module that exported signatures refer to.
type reachable struct {
	// types has the name of each type, below the module, and where it was met first.
	types map[string]string
	seen  map[types.Type]bool
}

func (r *reachable) object(o types.Object, path string) {
	if name, ok := o.(*types.TypeName); ok && !name.IsAlias() {
		r.named(name.Type().(*types.Named), path)
		return
	}
	r.walk(o.Type(), path)
}

// named adds a type, and what its exported fields and methods refer to.
func (r *reachable) named(n *types.Named, path string) {
	for i := range n.TypeArgs().Len() {
		r.walk(n.TypeArgs().At(i), path)
	}
	if n.Obj().Pkg() == nil || !strings.HasPrefix(n.Obj().Pkg().Path()+"/", module) {
		return
	}
	name := strings.TrimPrefix(n.Obj().Pkg().Path(), module) + "." + n.Obj().Name()
	if r.types[name] == "" {
		r.types[name] = path
	}
	if r.seen[n] {
		return
	}
	r.seen[n] = true
	for i := range n.NumMethods() {
		if m := n.Method(i); m.Exported() {
			r.walk(m.Type(), name+"."+m.Name())
		}
	}
	r.walk(n.Underlying(), name)
}

func (r *reachable) walk(t types.Type, path string) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		r.named(t, path)
	case interface{ Elem() types.Type }: // pointer, slice, array, channel, map
		if m, ok := t.(*types.Map); ok {
			r.walk(m.Key(), path)
		}
		r.walk(t.Elem(), path)
	case *types.Signature:
		for _, tuple := range []*types.Tuple{t.Params(), t.Results()} {
			for i := range tuple.Len() {
				r.walk(tuple.At(i).Type(), path)
			}
		}
		for i := range t.TypeParams().Len() {
			r.walk(t.TypeParams().At(i).Constraint(), path)
		}
	case *types.Struct:
		for i := range t.NumFields() {
			if f := t.Field(i); f.Exported() {
				r.walk(f.Type(), fmt.Sprintf("%s.%s", path, f.Name()))
			}
		}
	case *types.Interface:
		for i := range t.NumMethods() {
			if m := t.Method(i); m.Exported() {
				r.walk(m.Type(), path+"."+m.Name())
			}
		}
		for i := range t.NumEmbeddeds() {
			r.walk(t.EmbeddedType(i), path)
		}
	case *types.Union:
		for i := range t.Len() {
			r.walk(t.Term(i).Type(), path)
		}
	}
}
