package variables

import "testing"

// The cases of Flux' own tests: of envsubst, of the substitution in its package kustomize, and of
// its kustomize-controller. A case with flux has another result there; docs/stack-format.md lists
// these differences.
func TestFluxCases(t *testing.T) {
	type vars = Variables
	alphabet := vars{"var01": "abcdEFGH28ij", "upper": "ABCDEFGH28IJ",
		"path_name":   "/home/bozo/ideas/thoughts.for.today",
		"default_var": "foo", "stringZ": "abcABC123ABCabc", "filename": "path/to/file", "root": "/path/to/file",
		"file": "bash.string.txt", "slash": "foo/bar/baz", "dot": "foo.bar", "foo": "bar", "empty": ""}
	controller := vars{"_Region": "eu-central-1", "zone": "\naz-1b\n", "q": `"`, "numberStr": "!!str 123",
		"number":     "123",
		"booleanStr": "!!str true", "boolean": "true", "prometheus_scrape": `"true"`, "prometheus_port": `"9797"`,
		"image": "nginx:1.21.4", "cluster_env": "prod", "cluster_region": "eu-central-1", "empty": ""}
	for _, c := range []struct {
		vars           vars
		template, want string
		flux           string
	}{
		{vars: alphabet, template: "abcdEFGH28ij", want: "abcdEFGH28ij"},
		{vars: alphabet, template: "x${#var01}", want: "x12"},
		{vars: alphabet, template: "${var01^}", want: "AbcdEFGH28ij"},
		{vars: alphabet, template: "${var01^^}", want: "ABCDEFGH28IJ"},
		{vars: alphabet, template: "${upper,}", want: "aBCDEFGH28IJ"},
		{vars: alphabet, template: "${upper,,}", want: "abcdefgh28ij"},
		{vars: alphabet, template: "${path_name:11}", want: "ideas/thoughts.for.today"},
		{vars: alphabet, template: "${path_name:11:5}", want: "ideas"},
		{vars: alphabet, template: "${foo=xyz}", want: "bar"},
		{vars: alphabet, template: "${var=xyz}", want: "xyz"},
		{vars: alphabet, template: "something ${var=${default_var}}", want: "something foo"},
		{vars: alphabet, template: "foo: ${var=${default_var}1-suffix}", want: "foo: foo1-suffix"},
		{vars: alphabet, template: "foo: ${var=prefix${default_var}-suffix}", want: "foo: prefixfoo-suffix"},
		{vars: alphabet, template: "${var:=xyz}", want: "xyz"},
		{vars: alphabet, template: "${var:-fallback}", want: "fallback"},
		{vars: alphabet, template: "${stringZ/%abc/XYZ}", want: "abcABC123ABCXYZ"},
		{vars: alphabet, template: "${stringZ/#abc/XYZ}", want: "XYZABC123ABCabc"},
		{vars: alphabet, template: "${stringZ//abc/xyz}", want: "xyzABC123ABCxyz"},
		{vars: alphabet, template: "${stringZ/abc/xyz}", want: "xyzABC123ABCabc"},
		{vars: alphabet, template: "${file#*.}", want: "string.txt"},
		{vars: alphabet, template: "${filename#*/}", want: "to/file"},
		{vars: alphabet, template: "${root#*/}", want: "path/to/file"},
		{vars: alphabet, template: "${file##*.}", want: "txt"},
		{vars: alphabet, template: "${filename##*/}", want: "file"},
		{vars: alphabet, template: "${root##*/}", want: "file"},
		{vars: alphabet, template: "${file%.*}", want: "bash.string"},
		{vars: alphabet, template: "${file%%.*}", want: "bash"},
		{vars: alphabet, template: "${var=${var01^^}}", want: "ABCDEFGH28IJ"},
		{vars: alphabet, template: "$${var01}", want: "${var01}"},
		{vars: alphabet, template: "some text ${var01}$${var$${var01}$var01${var01}",
			want: "some text abcdEFGH28ij${var${var01}$var01abcdEFGH28ij"},
		{vars: alphabet, template: "something $${var=${default_var}}", want: "something ${var=foo}"},
		{vars: alphabet, template: `${slash/\//-}`, want: "foo-bar/baz"},
		{vars: alphabet, template: `${slash//\//-}`, want: "foo-bar-baz"},
		{vars: alphabet, template: `\\something ${var=${default_var}}`, want: `\\something foo`},
		{vars: alphabet, template: "${dot/./}", want: "foobar"},

		{vars: controller, template: "${env:=dev}", want: "dev"},
		{vars: controller, template: "${_Region}", want: "eu-central-1"},
		{vars: controller, template: "${cluster_env:=dev}", want: "prod"},
		{vars: controller, template: "${prometheus_scrape:=false}", want: "true"},
		{vars: controller, template: "${prometheus_port}", want: "9797"},
		{vars: controller, template: "${image}", want: "nginx:1.21.4"},
		{vars: controller, template: "${numberStr}", want: "123"},
		{vars: controller, template: "${booleanStr}", want: "true"},
		{vars: controller, template: "${q}${number}${q}", want: "123"},
		{vars: controller, template: "${q}${boolean}${q}", want: "true"},
		{vars: controller, template: "${number}m", want: "123m"},
		{vars: controller, template: "This is escaped $${var}\n\n\\?\n", want: "This is escaped ${var}\n\n\\?\n"},
		// Flux removes the newlines of a value.
		{vars: controller, template: "${zone}", want: "\naz-1b\n", flux: "az-1b"},
		// In a label, an empty value is null in Flux.
		{vars: controller, template: "${empty}", want: "", flux: "null"},
	} {
		object := map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": c.template}}}
		out, err := c.vars.Substitute(object, nil)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		if got := out["metadata"].(map[string]any)["labels"].(map[string]any)["x"]; got != c.want || c.want == c.flux {
			t.Errorf("%s: got %q, want %q", c.template, got, c.want)
		}
	}
	for _, template := range []string{"${missing}", "${#missing}", "${missing^}", "${missing^^}", "${missing,}",
		"${missing,,}", "${missing:0}", "${missing:0:10}", "${missing/pattern/replacement}",
		"${missing//pattern/replacement}", "${missing/#pattern/replacement}", "${missing/%pattern/replacement}",
		"${missing#pattern}", "${missing##pattern}", "${missing%pattern}", "${missing%%pattern}"} {
		if out, err := alphabet.Substitute(map[string]any{"x": template}, nil); err == nil {
			t.Errorf("%s: got %v", template, out)
		}
	}
}
