package stored

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOf(t *testing.T) {
	etcd := map[string][]byte{}
	for key, kind := range map[string]string{
		"configmaps/ns-1/a": "ConfigMap", "configmaps/ns-1/kube-root-ca.crt": "ConfigMap",
		"configmaps/ns-2/a":      "ConfigMap",
		"clusterroles/ns-1-view": "ClusterRole", "ns-1.example.com/widgets/ns-1/w": "Widget", "pods/ns-1/a": "Pod",
		"namespaces/ns-1": "Namespace", "namespaces/ns-1-more": "Namespace", "configmaps/ns-1-more/b": "ConfigMap",
		"secrets/ns-1/sh.helm.release.v1.my.v1": "Secret", "serviceaccounts/ns-1/default": "ServiceAccount",
		"serviceaccounts/ns-1/default-2": "ServiceAccount", "apps.ksctl.com/ksctlinstalls/ns-1/i": "KsctlInstall",
	} {
		parts := strings.Split(key, "/")
		metadata := `"name":"` + parts[len(parts)-1] + `"`
		if len(parts) > 2 {
			metadata += `,"namespace":"` + parts[len(parts)-2] + `"`
		}
		etcd[key] = []byte(`{"kind":"` + kind + `","metadata":{` + metadata + `}}`)
	}
	got, err := Of(etcd, "ns-1")
	if err != nil {
		t.Fatal(err)
	}
	var names []Difference
	for _, name := range []string{"ClusterRole/NAMESPACE-view", "ConfigMap/NAMESPACE-more/b", "ConfigMap/a",
		"Namespace/NAMESPACE-more", "ServiceAccount/default-2", "Widget/w"} {
		names = append(names, Difference{Object: name})
	}
	if missing := Differences(got, nil); !reflect.DeepEqual(missing, names) {
		t.Errorf("%v", missing)
	}
}

func TestContentLeavesOutWhatIsNotOfTheChart(t *testing.T) {
	got := Content(decode(t, `{"kind":"Job","metadata":{"name":"j","namespace":"ns-1","uid":"u-1","generation":2,
		"labels":{"app.kubernetes.io/managed-by":"Helm","uid":"u-1"},
		"annotations":{"meta.helm.sh/release-name":"my","own":"of ns-1"}},
		"spec":{"template":{"metadata":{"labels":{"uid":"u-1"}}}},"status":{"succeeded":1}}`), "ns-1")
	if want := decode(t, `{"kind":"Job","metadata":{"name":"j","namespace":"NAMESPACE",
		"annotations":{"own":"of NAMESPACE"}},"spec":{"template":{"metadata":{"labels":{"uid":"UID"}}}}}`,
	); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestSetField(t *testing.T) {
	object := decode(t, `{"a":{"b":1},"c":2}`)
	for _, path := range []string{"a.b", "a.x", "x.b", "c.b"} {
		SetField(object, path, "set")
	}
	if want := decode(t, `{"a":{"b":"set"},"c":2}`); !reflect.DeepEqual(object, want) {
		t.Errorf("%v", object)
	}
}

func TestDifferences(t *testing.T) {
	one := func(text string) Objects { return Objects{"X/x": decode(t, text)} }
	for name, c := range map[string]struct {
		a, b Objects
		want []Difference
	}{
		"equal":                        {one(`{"a":{"b":[1]}}`), one(`{"a":{"b":[1]}}`), nil},
		"another value":                {one(`{"a":{"b":1,"c":1}}`), one(`{"a":{"b":2,"c":1}}`), []Difference{{"X/x", "a.b"}}},
		"a field more":                 {one(`{"a":{}}`), one(`{"a":{"b":1}}`), []Difference{{"X/x", "a.b"}}},
		"a field less":                 {one(`{"a":{"b":1}}`), one(`{}`), []Difference{{"X/x", "a"}}},
		"a list":                       {one(`{"a":[1,2]}`), one(`{"a":[2,1]}`), []Difference{{"X/x", "a"}}},
		"another type":                 {one(`{"a":"1"}`), one(`{"a":1}`), []Difference{{"X/x", "a"}}},
		"an object that only Helm has": {one(`{}`), nil, []Difference{{"X/x", ""}}},
		"an object that only we have":  {Objects{}, one(`{}`), []Difference{{"X/x", ""}}},
	} {
		if got := Differences(c.a, c.b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

func TestParseTable(t *testing.T) {
	const head = "text\n| Chart | Object | Field | Reason |\n|---|---|---|---|\n"
	rows, err := ParseTable(head + "| a | `X/x` | `b.c` | drift is put right |\n" +
		"| b | `X/y` | – | claims are kept |\n\n| c |\n")
	want := []Row{{"a", Difference{"X/x", "b.c"}, "drift is put right"},
		{"b", Difference{"X/y", ""}, "claims are kept"}}
	if err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("%v, %v", rows, err)
	}
	for text, message := range map[string]string{"no table": "there is no table", head + "| a | b |\n": "4 cells",
		head + "| a | b | c | because |\n": `the reason "because" is not one of`} {
		if _, err := ParseTable(text); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
