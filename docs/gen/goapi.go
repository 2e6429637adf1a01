package main

import (
	"bytes"
	"fmt"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/ksctl/gitops/"

var promisedRow = regexp.MustCompile("(?m)^\\| (`[a-z][a-z0-9/]*`(?:, `[a-z][a-z0-9/]*`)*) \\|")

// goAPI returns the exported declarations of the packages that docs/library.md promises, one per
// line. api/client is left out: it is generated from the types.
func goAPI(root string) ([]byte, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "library.md"))
	if err != nil {
		return nil, err
	}
	var patterns []string
	for _, row := range promisedRow.FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if name = strings.Trim(name, "`"); name != "api/client" {
				patterns = append(patterns, "./"+name)
			}
		}
	}
	loaded, err := packages.Load(&packages.Config{Dir: root,
		Mode: packages.NeedName | packages.NeedImports | packages.NeedTypes | packages.NeedTypesSizes}, patterns...)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		lines = append(lines, declarations(p.Types)...)
	}
	slices.Sort(lines)
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

// declarations returns the exported declarations of a package, with the fields and methods of
// types.
func declarations(p *types.Package) (out []string) {
	name := strings.TrimPrefix(p.Path(), module)
	qualifier := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return strings.TrimPrefix(other.Path(), module)
	}
	add := func(format string, args ...any) { out = append(out, name+": "+fmt.Sprintf(format, args...)) }
	text := func(t types.Type) string { return types.TypeString(t, qualifier) }
	signature := func(f *types.Func) string { return strings.TrimPrefix(text(f.Type()), "func") }
	for _, n := range p.Scope().Names() {
		if !token.IsExported(n) {
			continue
		}
		switch o := p.Scope().Lookup(n).(type) {
		case *types.Const:
			add("const %s %s = %s", n, text(o.Type()), o.Val().ExactString())
		case *types.Var:
			add("var %s %s", n, text(o.Type()))
		case *types.Func:
			add("func %s%s", n, signature(o))
		case *types.TypeName:
			if named, ok := o.Type().(*types.Named); ok {
				addType(add, text, signature, named)
			} else {
				add("type %s = %s", n, text(types.Unalias(o.Type())))
			}
		}
	}
	return out
}

// addType adds a type, its exported fields and methods.
func addType(add func(string, ...any), text func(types.Type) string, signature func(*types.Func) string,
	named *types.Named) {
	name := text(named)
	switch u := named.Underlying().(type) {
	case *types.Struct:
		add("type %s struct", name)
		for i := range u.NumFields() {
			if f := u.Field(i); f.Exported() {
				add("type %s struct, %s %s", name, f.Name(), text(f.Type()))
			}
		}
	case *types.Interface:
		add("type %s interface", name)
		for i := range u.NumMethods() {
			add("type %s interface, %s%s", name, u.Method(i).Name(), signature(u.Method(i)))
		}
	default:
		add("type %s %s", name, text(u))
	}
	for i := range named.NumMethods() {
		if m := named.Method(i); m.Exported() {
			add("method (%s) %s%s", text(m.Signature().Recv().Type()), m.Name(), signature(m))
		}
	}
}

// incompatible returns the declarations that break users of the stored API: those that were removed
// or changed, and the methods that were added to an interface, which users may implement.
func incompatible(stored, current []byte) (out []string) {
	before, now := lineSet(stored), lineSet(current)
	for line := range bytes.Lines(stored) {
		if declaration := strings.TrimSpace(string(line)); !now[declaration] {
			out = append(out, declaration)
		}
	}
	for line := range bytes.Lines(current) {
		declaration := strings.TrimSpace(string(line))
		of, _, isMember := strings.Cut(declaration, " interface, ")
		if isMember && !before[declaration] && before[of+" interface"] {
			out = append(out, declaration)
		}
	}
	return out
}

func lineSet(text []byte) map[string]bool {
	out := map[string]bool{}
	for line := range bytes.Lines(text) {
		out[strings.TrimSpace(string(line))] = true
	}
	return out
}
