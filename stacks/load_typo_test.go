package stacks

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/internal/document"
)

// misspell swaps two adjacent letters, or doubles the last one.
func misspell(word string) string {
	for i := 1; i+1 < len(word); i++ {
		if word[i] != word[i+1] {
			return word[:i] + string(word[i+1]) + string(word[i]) + word[i+2:]
		}
	}
	return word + word[len(word)-1:]
}

// sampleValue returns a value of the right type for a field, in YAML flow style.
func sampleValue(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true"
	case reflect.Slice:
		return "[]"
	case reflect.Map, reflect.Struct:
		return "{}"
	case reflect.Pointer:
		return sampleValue(t.Elem())
	}
	return `"x"`
}

// TestMisspelledFieldsGetSuggestions generates a stack file for each field of the Go types, with
// that field misspelled. It expects file, line, field and the right spelling in the error.
func TestMisspelledFieldsGetSuggestions(t *testing.T) {
	tested := 0
	var walk func(typ reflect.Type, path string, indent int, before []string)
	walk = func(typ reflect.Type, path string, indent int, before []string) {
		switch typ.Kind() {
		case reflect.Pointer:
			walk(typ.Elem(), path, indent, before)
			return
		case reflect.Slice:
			if typ.Elem().Kind() == reflect.Struct {
				before = append(append([]string{}, before...), strings.Repeat("  ", indent)+"- name: part")
				walk(typ.Elem(), path+"[0]", indent+1, before)
			}
			return
		case reflect.Struct:
		default:
			return
		}
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "" {
				continue
			}
			wrong := misspell(name)
			lines := append(append([]string{}, before...), strings.Repeat("  ", indent)+wrong+": "+sampleValue(f.Type))
			expectTypo(t, lines, document.Join(path, wrong), name)
			tested++
			walk(f.Type, document.Join(path, name), indent+1,
				append(append([]string{}, before...), strings.Repeat("  ", indent)+name+":"))
		}
	}
	walk(reflect.TypeFor[Definition](), "", 0, nil)
	if tested < 30 {
		t.Errorf("only %d fields were tested", tested)
	}
}

func expectTypo(t *testing.T, lines []string, path, right string) {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, FileName), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(root, ".", "demo")
	for _, e := range allErrors(err) {
		full := e.Field
		if strings.HasPrefix(path, "spec.components[0].") {
			full = "spec.components[0]." + e.Field
		}
		if full != path || e.Suggestion != right {
			continue
		}
		text := e.Error()
		for _, part := range []string{FileName + ":" + strconv.Itoa(len(lines)) + ": ", strconv.Quote(e.Field),
			"did you mean " + strconv.Quote(right) + "?"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q lacks %q", path, text, part)
			}
		}
		return
	}
	t.Errorf("%s: not reported with the suggestion %q:\n%v", path, right, err)
}

func allErrors(err error) []*Error {
	if many, ok := errors.AsType[Errors](err); ok {
		return many
	}
	if one, ok := errors.AsType[*Error](err); ok {
		return []*Error{one}
	}
	return nil
}
