package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/problem"
)

func parseTestFile(t *testing.T, name string) (*File, []byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return f, data
}

// poolSummary returns count, role and size of each pool.
func poolSummary(c *Cluster) string {
	var out []string
	for _, p := range c.Pools {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s", p.Count, p.Role, p.Size)))
	}
	return strings.Join(out, ", ")
}

func TestParseReadsEveryDialect(t *testing.T) {
	for _, c := range []struct {
		file        string
		form        Form
		dialect     Dialect
		key         string
		versions    map[string]string
		kubernetes  string
		pools       string
		addons      int
		credentials string
		external    bool
	}{
		{"v1_0_civo_ha_k3s.json", ExportForm, V1, "civo.ha.old.LON1", map[string]string{"kubernetes": "1.27.4"},
			"1.27.4",
			"3 ControlPlane, 2 Worker, 1 LoadBalancer", 0, "civo", false},
		{"v1_2_0_aws_managed.json", DocumentForm, V12, "aws.managed.eks-one.us-east-1",
			map[string]string{"kubernetes": "1.30"}, "1.30",
			"3 Worker t2.medium", 2, "", false},
		{"v1_azure_ha_k3s.json", ExportForm, V126, "azure.ha.demo.eastus", nil, "",
			"3 ControlPlane Standard_F2s, 1 Worker Standard_F2s, 3 Datastore Standard_F2s, 1 LoadBalancer Standard_F2s",
			-1, "azure", false},
		{"v1_aws_ha_kubeadm.json", ExportForm, V126, "aws.ha.demo.us-east-1", nil, "", "", -1, "aws", false},
		{"v1_local_managed.json", ExportForm, V126, "local.managed.demo.LOCAL",
			map[string]string{"kubernetes": "1.27.1"}, "1.27.1",
			"2 Worker local_machine", 0, "", false},
		{"v2_0_azure_selfmanaged.json", ExportForm, V2, "azure.selfmanaged.two.eastus",
			map[string]string{"kubeadm": "1.32.0", "etcd": "3.5.15", "haproxy": "3.0"}, "1.32.0",
			"1 ControlPlane Standard_F2s, 2 Worker, 1 LoadBalancer Standard_F2s", 1, "", true},
		{"v2_aws_managed.json", DocumentForm, V27, "aws.managed.demo.us-east-1", map[string]string{"eks": "1.31"},
			"1.31", "", 2, "", false},
	} {
		t.Run(c.file, func(t *testing.T) {
			f, data := parseTestFile(t, c.file)
			if f.Form != c.form || len(f.Clusters) != 1 {
				t.Fatalf("got %v", f)
			}
			got := f.Clusters[0]
			if got.Dialect != c.dialect || got.ID.Key() != c.key || got.External != c.external {
				t.Errorf("got dialect %s, key %s, external %v", got.Dialect, got.ID, got.External)
			}
			if c.versions != nil && !reflect.DeepEqual(got.Versions, c.versions) {
				t.Errorf("got versions %v", got.Versions)
			}
			if c.versions != nil && got.KubernetesVersion() != c.kubernetes {
				t.Errorf("got Kubernetes version %s", got.KubernetesVersion())
			}
			if poolSummary(got) != c.pools {
				t.Errorf("got pools %s", poolSummary(got))
			}
			if c.addons >= 0 && len(got.Addons) != c.addons {
				t.Errorf("got addons %v", got.Addons)
			}
			var clouds []string
			for _, cr := range f.Credentials {
				clouds = append(clouds, cr.Cloud)
			}
			if strings.Join(clouds, " ") != c.credentials {
				t.Errorf("got credentials of %v", clouds)
			}
			if problems := got.Validate(); len(problems) != 0 {
				t.Errorf("got problems %v", problems)
			}
			roundTrip(t, f, data)
		})
	}
}

// roundTrip writes a file to the store, exports it from there, and compares.
func roundTrip(t *testing.T, f *File, data []byte) {
	t.Helper()
	var clusters []*Cluster
	for _, c := range f.Clusters {
		back, err := ReadCluster(c.ID.Key(), c.JSON())
		if err != nil {
			t.Fatal(err)
		}
		clusters = append(clusters, back)
	}
	var credentials []*Credentials
	for _, c := range f.Credentials {
		back, err := ReadCredentials(c.Cloud, c.JSON())
		if err != nil {
			t.Fatal(err)
		}
		credentials = append(credentials, back)
	}
	exported, err := Export(clusters, credentials)
	if err != nil {
		t.Fatal(err)
	}
	var was, is struct{ Clusters, Credentials []json.RawMessage }
	if f.Form == DocumentForm {
		was.Clusters = []json.RawMessage{data}
	} else if err := json.Unmarshal(data, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(exported, &is); err != nil {
		t.Fatal(err)
	}
	assertSameDocuments(t, was.Clusters, is.Clusters)
	assertSameDocuments(t, slices.DeleteFunc(was.Credentials, func(m json.RawMessage) bool {
		return string(m) == "null"
	}), is.Credentials)
}

// assertSameDocuments compares lists of documents, ignoring their order.
func assertSameDocuments(t *testing.T, was, is []json.RawMessage) {
	t.Helper()
	canonical := func(list []json.RawMessage) []string {
		var out []string
		for _, m := range list {
			c, err := Canonical(m)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(c))
		}
		slices.Sort(out)
		return out
	}
	if a, b := canonical(was), canonical(is); !slices.Equal(a, b) {
		t.Errorf("want\n%s\ngot\n%s", a, b)
	}
}

func TestParseReadsAddons(t *testing.T) {
	f, _ := parseTestFile(t, "v2_aws_managed.json")
	want := []Addon{{Name: "kcm", Version: "v0.2.0"}, {Name: "cilium"}}
	if got := f.Clusters[0].Addons; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if c := f.Clusters[0]; c.Phase != "running" {
		t.Errorf("got phase %s", c.Phase)
	}
}

func TestParseOmitsDeletedMachines(t *testing.T) {
	f, _ := parseTestFile(t, "v1_0_civo_ha_k3s.json")
	want := []Machine{{Ordinal: 0, Name: "old-vm-wp-0"}, {Ordinal: 2, Name: "old-vm-wp-2"}}
	if got := f.Clusters[0].Pools[1].Machines; !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestSecretPointersInEveryDialect(t *testing.T) {
	for file, want := range map[string][]string{
		"v1_0_civo_ha_k3s.json": {
			"/Clusters/0/cluster_kubeconfig", "/Clusters/0/kubernetes_bootstrap_state/b/cloud_ssh_info/PrivateKey",
			"/Clusters/0/kubernetes_bootstrap_state/b/etcd_key", "/Clusters/0/kubernetes_bootstrap_state/k3s/k3s_token",
			"/Clusters/0/ssh_key_pair/private_key", "/Credentials/0/civo/token",
		},
		"v1_0_aws_credentials.json": {"/aws/AcessKeyID", "/aws/AcessKeySecret"},
		"v1_local_managed.json":     {"/Clusters/0/cluster_kubeconfig"},
		"v1_2_0_aws_managed.json":   {"/cluster_kubeconfig"},
		"v2_aws_managed.json":       nil,
		"v2_0_azure_selfmanaged.json": {
			"/Clusters/0/cluster_kubeconfig", "/Clusters/0/kubernetes_bootstrap_state/b/cloud_ssh_info/PrivateKey",
			"/Clusters/0/kubernetes_bootstrap_state/b/etcd_key",
			"/Clusters/0/kubernetes_bootstrap_state/kubeadm/bootstrap_token",
			"/Clusters/0/kubernetes_bootstrap_state/kubeadm/certificate_key", "/Clusters/0/ssh_key_pair/private_key",
		},
	} {
		_, data := parseTestFile(t, file)
		got, err := SecretPointers(data)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: got %q\nwant %q", file, got, want)
		}
	}
}

func TestSecretPointersRecognizesValues(t *testing.T) {
	got, err := SecretPointers(
		[]byte(`{"a/b":"-----BEGIN RSA PRIVATE KEY-----","m":{"uri":"mongodb+srv://u:p@host/?x=y"},"k":["x","apiVersion: v1\nclient-key-data: eA=="],
		"open":"https://example.com/a:b@c","token":"ENC[AES256_GCM,data:x,type:str]","certificate_key":"","Credentials":[{"cloud_provider":"gcp","ID":"0","gcp":{"json":"x","n":1}}]}`))
	bare, err2 := SecretPointers([]byte(`{"cloud_provider":"gcp","gcp":{"api_key":"x"},"K3S_Token":"y"}`))
	if err2 != nil || !slices.Equal(bare, []string{"/K3S_Token", "/gcp/api_key"}) {
		t.Errorf("credentials file: got %q, %v", bare, err2)
	}
	sealed, err2 := EncryptedPointers([]byte(`{"a":["ENC[AES256_GCM,data:x,type:str]"],"b":"x"}`))
	if err2 != nil || !slices.Equal(sealed, []string{"/a/0"}) {
		t.Errorf("encrypted values: got %q, %v", sealed, err2)
	}
	want := []string{"/Credentials/0/gcp/json", "/Credentials/0/gcp/n", "/a~1b", "/k/1", "/m/uri"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestParseRefusesInvalidFiles(t *testing.T) {
	for name, c := range map[string]struct{ data, says string }{
		"empty file":       {``, "line 1: not JSON"},
		"truncated":        {"{\n\"Clusters\": [", "line 2: not JSON"},
		"two documents":    {`{"Clusters":[]} {}`, "content after"},
		"duplicate key":    {`{"Clusters":[],"Clusters":[]}`, "duplicate key"},
		"list":             {`[]`, "not a JSON object"},
		"lower-case key":   {`{"clusters":[]}`, `did you mean "Clusters"?`},
		"another document": {`{"kind":"ConfigMap"}`, "none of the keys"},
		"not a list":       {`{"Clusters":{}}`, "/Clusters: not a list"},
		"not an object":    {`{"Clusters":["x"]}`, "/Clusters/0: not an object"},
		"no cloud": {`{"Credentials":[null,{"aws":{"secret_access_key":"FAKE"}}]}`,
			"/Credentials/1/cloud_provider"},
		"deep nesting":  {strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), "nested objects"},
		"encrypted":     {`{"Clusters":[],"sops":{}}`, "was not decrypted"},
		"many values":   {`{"Clusters":[` + strings.Repeat("{},", 10000) + `{}]}`, "more values than"},
		"path as cloud": {`{"cloud_provider":"../x"}`, "not the name of a cloud"},
	} {
		_, err := Parse("a.json", []byte(c.data))
		e, ok := errors.AsType[*problem.Error](err)
		if !ok || e.File != "a.json" || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "FAKE") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Parse("large", make([]byte, MaxBytes+1)); err == nil {
		t.Error("a file larger than MaxBytes was accepted")
	}
}

func TestParseAcceptsEmptyValues(t *testing.T) {
	for _, data := range []string{`{"Clusters":null,"Credentials":[null]}`, `{"Clusters":[null]}`,
		`{"Credentials":[]}`} {
		if f, err := Parse("x", []byte(data)); err != nil || len(f.Clusters)+len(f.Credentials) != 0 {
			t.Errorf("%s: %v, %v", data, f, err)
		}
	}
	f, err := Parse("x",
		[]byte(`{"cluster_name":null,"cloud_infrastructure_state":{"aws":null},"kubernetes_bootstrap_state":7,"addons":{"apps":[null,3],"cni":null}}`))
	if err != nil || len(f.Clusters) != 1 || len(f.Clusters[0].Pools)+len(f.Clusters[0].Addons) != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

func TestDialectOfSparseDocuments(t *testing.T) {
	for doc, want := range map[string]Dialect{
		`{}`:                                          V1,
		`{"cluster_type":"selfmanaged"}`:              V2,
		`{"bootstrap_provider":"kind"}`:               V2,
		`{"provisioner_addons":null}`:                 V2,
		`{"platform":null,"versions":{}}`:             V27,
		`{"addons":{"apps":null}}`:                    V126,
		`{"addons":{"cni":{"name":"","version":""}}}`: V12,
		`{"addons":null,"kubernetes_bootstrap_state":{"b":{"k8s_version":""}}}`:       V12,
		`{"addons":{"apps":[{"name":"x","components":{"x":{"version":"1"}}}]}}`:       V126,
		`{"addons":{"apps":[{"name":"x","version":"1"}],"cni":{"components":null}}}`:  V12,
		`{"addons":{"cni":null},"kubernetes_bootstrap_state":{"b":{"etcd_key":"x"}}}`: V126,
	} {
		v, err := decode([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if got := dialectOf(v.(object)); got != want {
			t.Errorf("%s: got %s, want %s", doc, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for doc, want := range map[string][]string{
		`{"cluster_name":"demo","region":"eastus","cloud_provider":"azur","cluster_type":"ha"}`: {
			`/cloud_provider: the value is "azur"; ksctl supports aws, azure, civo and local; did you mean "azure"?`},
		`{"cluster_name":"demo","region":"eastus","cloud_provider":"gcp","cluster_type":"HA"}`: {
			"/cloud_provider", "/cluster_type"},
		`{"cluster_name":"a.b","region":"x.y","cloud_provider":"aws","cluster_type":"ha"}`: {
			"/cluster_name", "/region"},
		`{"cluster_name":"","cloud_provider":"aws","cluster_type":"ha"}`: {
			"/cluster_name: the value is empty", "/region: the value is empty"},
		`{"cluster_name":"demo","region":"r","cloud_provider":"aws","cluster_type":"managed","ID":"000"}`: nil,
		`{"cluster_name":"demo","region":"r","cloud_provider":"aws","cluster_type":"managed","cloud_infrastructure_state":{"azure":{}}}`: {
			"/cloud_infrastructure_state: no entry for aws"},
	} {
		f, err := Parse("x", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		got := f.Clusters[0].Validate()
		if len(got) != len(want) {
			t.Errorf("%s: got %v", doc, got)
			continue
		}
		for i, e := range got {
			if !strings.Contains(e.Error(), want[i]) {
				t.Errorf("%s: got %v, want %s", doc, e, want[i])
			}
		}
	}
}

func TestFilterMatches(t *testing.T) {
	id := ID{"azure", "ha", "demo", "eastus"}
	for _, f := range []Filter{{}, {Cloud: "azure"}, {"azure", "ha", "demo", "eastus"}} {
		if !f.Matches(id) {
			t.Errorf("%+v does not match", f)
		}
	}
	for _, f := range []Filter{{Cloud: "aws"}, {ClusterType: "managed"}, {ClusterName: "demo", Region: "westus"}} {
		if f.Matches(id) {
			t.Errorf("%+v matches", f)
		}
	}
	if back, ok := ParseKey(id.Key()); !ok || back != id {
		t.Errorf("got ID %v", back)
	}
	if _, ok := ParseKey("a.b.c"); ok {
		t.Error("a text of three parts was accepted as a key")
	}
}

func TestCheckStoreSize(t *testing.T) {
	values := map[string][]byte{"small": make([]byte, 10), "large": make([]byte, MaxStoreBytes-10)}
	if err := CheckStoreSize(values); err != nil {
		t.Error(err)
	}
	values["last"] = make([]byte, 1)
	if err := CheckStoreSize(values); err == nil ||
		!strings.Contains(err.Error(), "would have 1048577 bytes for 3 clusters") ||
		!strings.Contains(err.Error(), "large (1048566 bytes), small (10 bytes)") {
		t.Errorf("got %v", err)
	}
}

func TestEqualIgnoresNotation(t *testing.T) {
	if !Equal([]byte(`{"a":1.50,"b":[null, 1e3, 12345678901234567890]}`),
		[]byte("{\n\"b\": [null, 1000, 12345678901234567890], \"a\": 1.5}")) ||
		Equal([]byte(`{"a":1}`), []byte(`{"a":2}`)) || Equal([]byte(`{`), []byte(`[`)) {
		t.Error("got an unexpected result")
	}
}

// Formatting a document prints none of its content, with any verb.
func TestFormatPrintsNoContent(t *testing.T) {
	for _, file := range slices.Sorted(maps.Keys(map[string]bool{"v1_0_civo_ha_k3s.json": true,
		"v1_aws_ha_kubeadm.json": true})) {
		f, _ := parseTestFile(t, file)
		var out bytes.Buffer
		for _, v := range []any{f, *f.Clusters[0], f.Clusters, f.Credentials, f.Credentials[0]} {
			_, _ = fmt.Fprintf(&out, "%v %+v %#v %s", v, v, v, v)
		}
		if strings.Contains(out.String(), "FAKE") {
			t.Errorf("%s: %s", file, out.String())
		}
	}
}

// FuzzParse checks that any bytes are refused, or parsed to a file that can be validated, exported
// and parsed again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("x", data)
		if err != nil {
			return
		}
		_, _ = SecretPointers(data)
		for _, c := range file.Clusters {
			_ = c.Validate()
			if !Equal(c.JSON(), c.JSON()) {
				t.Fatal("a document is not equal to itself")
			}
		}
		exported, err := Export(file.Clusters, file.Credentials)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse("y", exported)
		if err != nil || len(back.Clusters) != len(file.Clusters) || len(back.Credentials) != len(file.Credentials) {
			t.Fatalf("got %v, %v, want %v", back, err, file)
		}
	})
}
