package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func configMap(t *testing.T, name, value, mark string) *unstructured.Unstructured {
	t.Helper()
	return decode(t,
		fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: team, name: %s, annotations: "+
			"{ksctl.com/mark: %q}}\ndata: {value: %q}\n", name, mark, value))
}

const installYAML = `
apiVersion: apps.ksctl.com/v1
kind: KsctlInstall
metadata: {namespace: team, name: i, generation: 2}
status:
  lastAppliedRevision: main@sha1:abc
  conditions: [{type: Ready, status: "True", observedGeneration: 2, reason: Succeeded, message: ok}]
`

// world returns a cluster as it has to be, and what is expected of it.
func world(t *testing.T) (client.Client, Expected) {
	t.Helper()
	foreign := configMap(t, "foreign", "theirs", "x/local/KsctlInstall/team/i|team_a__ConfigMap") // with a copied mark
	objects := []client.Object{
		configMap(t, "a", "1", "x/local/KsctlInstall/team/i|team_a__ConfigMap"),
		configMap(t, "b", "2", "x/local/KsctlInstall/team/i|team_b__ConfigMap"),
		foreign, configMap(t, "kube-root-ca.crt", "x", ""), decode(t, installYAML),
		decode(t, "apiVersion: v1\nkind: Service\nmetadata: {namespace: team, name: s, annotations: {ksctl.com/mark: "+
			"x}}\nspec: {selector: {value: \"3\"}}\n"),
	}
	c := fake.NewClientBuilder().WithObjects(objects...).Build()
	stored := configMap(t, "foreign", "", "")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), stored); err != nil {
		t.Fatal(err)
	}
	return c, Expected{Namespaces: []string{"team"}, Installs: map[string]string{"team/i": "abc"},
		Objects: []Object{{"ConfigMap", "team", "a", "1"}, {"ConfigMap", "team", "b", "2"},
			{"Service", "team", "s", "3"}},
		Foreign: []Foreign{{Object: Object{Kind: "ConfigMap", Namespace: "team", Name: "foreign"},
			Content: Content(stored)}}}
}

// Each kind of difference is planted in a cluster without one, and found.
func TestClusterFindsPlantedDifferences(t *testing.T) {
	change := func(name, value string) func(*testing.T, client.Client) error {
		return func(t *testing.T, c client.Client) error {
			return c.Patch(t.Context(), configMap(t, name, "", ""),
				client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"`+value+`"}}`)))
		}
	}
	status := func(patch string) func(*testing.T, client.Client) error {
		return func(t *testing.T, c client.Client) error {
			return c.Patch(t.Context(), decode(t, installYAML),
				client.RawPatch("application/merge-patch+json", []byte(patch)))
		}
	}
	for name, tc := range map[string]struct {
		plant func(*testing.T, client.Client) error
		want  string
	}{
		"nothing": {func(*testing.T, client.Client) error { return nil }, ""},
		"an orphan": {func(t *testing.T, c client.Client) error {
			return c.Create(t.Context(),
				configMap(t, "orphan", "1", "x/local/KsctlInstall/team/gone|team_orphan__ConfigMap"))
		}, "orphan: ConfigMap team/orphan"},
		"a lost object": {func(t *testing.T, c client.Client) error {
			return c.Delete(t.Context(), configMap(t, "a", "", ""))
		}, "lost object: ConfigMap team/a"},
		"a changed field":          {change("b", "9"), `changed object: ConfigMap team/b has "9" instead of "2"`},
		"a touched foreign object": {change("foreign", "ours"), "touched foreign object: ConfigMap team/foreign"},
		"a lost foreign object": {func(t *testing.T, c client.Client) error {
			return c.Delete(t.Context(), configMap(t, "foreign", "", ""))
		}, "lost foreign object: ConfigMap team/foreign"},
		"an install that is not ready": {status(
			`{"status":{"conditions":[{"type":"Ready","status":"False","observedGeneration":2,"reason":"X","message":"y"}]}}`), "install team/i is not ready: Ready is False/X: y"},
		"an install with an old revision": {status(`{"status":{"lastAppliedRevision":"main@sha1:old"}}`),
			"install team/i is not ready: it has revision main@sha1:old instead of abc"},
		"an install that is left": {func(t *testing.T, c client.Client) error {
			return c.Create(t.Context(), decode(t, strings.Replace(installYAML, "name: i,", "name: j,", 1)))
		}, "install team/j exists"},
	} {
		t.Run(name, func(t *testing.T) {
			c, want := world(t)
			if err := tc.plant(t, c); err != nil {
				t.Fatal(err)
			}
			got, err := Cluster(t.Context(), c, want)
			if err != nil {
				t.Fatal(err)
			}
			if expected := slices.DeleteFunc([]string{tc.want}, func(s string) bool {
				return s == ""
			}); !slices.Equal(got, expected) {
				t.Errorf("found %q, want %q", got, expected)
			}
		})
	}
}

// An object of any kind that was not there before is found, and one that is no longer there.
func TestRestFindsPlantedDifferences(t *testing.T) {
	kinds := []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}}
	for name, tc := range map[string]struct {
		plant func(*testing.T, client.Client) error
		want  []string
	}{
		"nothing": {func(*testing.T, client.Client) error { return nil }, nil},
		"a Secret": {func(t *testing.T, c client.Client) error {
			return c.Create(t.Context(),
				decode(t, "apiVersion: v1\nkind: Secret\nmetadata: {namespace: team, name: s}\n"))
		}, []string{"object that was not there before: Secret team/s"}},
		"a lost object": {func(t *testing.T, c client.Client) error {
			return c.Delete(t.Context(), configMap(t, "a", "", ""))
		}, []string{"object that was there before: ConfigMap team/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, want := world(t)
			if err := c.Delete(t.Context(), configMap(t, "foreign", "", "")); err != nil {
				t.Fatal(err)
			}
			var err error
			if want.Everything, err = Names(t.Context(), c, kinds); err != nil {
				t.Fatal(err)
			}
			// planted after the installs
			if err := c.Create(t.Context(), configMap(t, "foreign", "theirs", "")); err != nil {
				t.Fatal(err)
			}
			if err := tc.plant(t, c); err != nil {
				t.Fatal(err)
			}
			if got, err := Rest(t.Context(), c, kinds, want); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("found %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
