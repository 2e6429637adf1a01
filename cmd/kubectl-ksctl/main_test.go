package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// run runs the program in this process. It returns the output, the error and the exit code as one
// text.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := newCommand(&out, &errOut)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	text := out.String()
	for line := range strings.Lines(errOut.String()) {
		text += "stderr: " + line
	}
	switch {
	case errors.Is(err, errReported):
		text += "exit 1\n"
	case err != nil:
		text += "error: " + err.Error() + "\nexit 1\n"
	}
	return text
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

func TestValidate(t *testing.T) {
	golden(t, "validate-fleet.txt", run(t, "validate", "testdata/fleet"))
	golden(t, "validate-broken.txt", run(t, "validate", "testdata/broken"))
	golden(t, "validate-old.txt", run(t, "validate", "testdata/fleet", "--kube-version", "v1.27.0"))
	t.Chdir("testdata/fleet")
	if got := run(t, "validate"); !strings.HasSuffix(got, "2 stacks, 2 installs (1 more of other sources): ok\n") {
		t.Error(got)
	}
	if got := run(t, "validate", "nowhere"); !strings.HasPrefix(got, "error: the source cannot be opened: ") {
		t.Error(got)
	}
}

func TestRenderInstall(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("retention: 99d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token.yaml")
	if err := os.WriteFile(token, []byte("token: hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	install := []string{"render", "-f", "testdata/fleet/clusters/prod/monitoring.yaml", "--root", "testdata/fleet"}
	with := func(args ...string) []string { return append(append([]string{}, install...), args...) }
	golden(t, "render-install.txt",
		run(t, with("--values-from", "ConfigMap/site/values.yaml="+values, "--values-from", "Secret/token/token.yaml="+
			token)...))
	golden(t, "render-missing.txt", run(t, with("--values-from", "ConfigMap/other/values.yaml="+values)...))
	golden(t, "render-component.txt", run(t, with("--values-from", "ConfigMap/site/values.yaml="+values, "--component",
		"prometheus", "-o", "json",
		"--kube-version", "v1.29.1", "--api-versions", "example.com/v1", "--override",
		"prometheus.values.retention=3d")...))
}

func TestRenderStack(t *testing.T) {
	stack := []string{"render", "--root", "testdata/fleet", "--path", "stacks", "--stack", "monitoring"}
	with := func(args ...string) []string { return append(append([]string{}, stack...), args...) }
	golden(t, "render-stack.txt", run(t, with("--only-api-versions", "--target-namespace", "boards")...))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "zoen=us"},
			`error: stack "monitoring": parameter "zoen" is not in its schema; did you mean "zone"?`},
		{[]string{"--set", "zone=5"}, `error: stack "monitoring": parameter "zone" must be string, not number`},
		{[]string{"--override", "prometheus.noUi=true"},
			`error: stack "monitoring": component "prometheus": override key "noUi" is not in its schema; did you mean "noUI"?`},
		{[]string{"--override", "prometheus.values.retenton=1d", "--strict"},
			`error: stack "monitoring": component "prometheus": override key "values.retenton" is not a value of the chart prometheus; did you mean "retention"?`},
		{[]string{"--override", "prometheu.values.x=1"},
			`error: stack "monitoring": there is no component "prometheu"; did you mean "prometheus"?`},
		{[]string{"--component", "x"}, `error: --component x: the install renders no such component`},
		{[]string{"-o", "text"}, `error: --output text: yaml or json is expected`},
		{[]string{"--set", "x"}, `error: --set x: key=value is expected`},
		{[]string{"--set", "a..b=1"}, `error: --set a..b=1: a key is empty`},
		{[]string{"--override", "x=1"}, `error: --override x=1: component.key=value is expected`},
		{[]string{"--set", "zone=1", "--set", "zone.a=1"}, `error: --set zone.a=1: "zone" is not a mapping`},
		{[]string{"--set", "zone=["}, `error: --set zone=[: the value is not YAML`},
		{[]string{"--values-from", "site=x"},
			`error: --values-from site=x: ConfigMap/name/key=file or Secret/name/key=file is expected`},
		{[]string{"--values-from", "ConfigMap/a/b=main_test.go"},
			`error: --values-from ConfigMap/a/b: the install has no such valuesFrom or parametersFrom`},
		{[]string{"--kube-version", "v1.20.0"},
			`error: stacks/monitoring/stack.yaml:6: the stack requires Kubernetes >=1.28, but the target has v1.20.0`},
	} {
		if got := run(t, with(tc.args...)...); !strings.HasPrefix(got, tc.want+"\n") {
			t.Errorf("%v\ngot  %s\nwant %s", tc.args, got, tc.want)
		}
	}
	if got := run(t, "render"); !strings.Contains(got,
		"at least one of the flags in the group [filename stack] is required") {
		t.Error(got)
	}
	if got := run(t, with("-f", "x")...); !strings.Contains(got, "none of the others can be") {
		t.Error(got)
	}
}

// An override in a flag has the same effect and the same warnings as an override in the install.
func TestOverrideFlagMatchesInstall(t *testing.T) {
	common := []string{"render", "--root", "testdata/fleet", "--path", "stacks", "--stack", "monitoring"}
	got := run(t, append(common, "--override", "prometheus.noUI=true", "--override",
		`prometheus.values={retention: 5d, "a.b": 1}`, "--override", `prometheus.values.c\.d=1e3`)...)
	for _, want := range []string{`ui: "false"`, "retention: 5d",
		`stderr: warning: stack "monitoring": component "prometheus": override key "values.a.b"`,
		`override key "values.c.d"`} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwithout %s", got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	if got := run(t, "version"); strings.TrimSpace(got) == "" || strings.Contains(got, "error") {
		t.Error(got)
	}
}
