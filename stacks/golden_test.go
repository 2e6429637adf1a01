package stacks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	goldenfile "github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// Inventories store these hashes. If they changed, an update would apply every object of every
// install again.
func TestGoldenContentHashes(t *testing.T) {
	var lines strings.Builder
	for _, name := range []string{"helm", "kustomize", "manifests", "overrides", "preremove"} {
		for _, c := range mustRender(t, caseRequest(t, name)).Components {
			for _, o := range c.Objects {
				_, _ = fmt.Fprintf(&lines, "%s %s: %s\n", name, o.ID(), o.Hash)
			}
		}
	}
	goldenfile.Equal(t, "hashes.txt", []byte(lines.String()))
}

// Inventories store these IDs.
func TestGoldenIDs(t *testing.T) {
	const rbac = "rbac.authorization.k8s.io"
	var lines strings.Builder
	for _, ref := range []stacks.Ref{
		{Kind: "Namespace", Name: "site"},
		{Kind: "ConfigMap", Namespace: "team", Name: "site"},
		{Group: "apps", Kind: "Deployment", Namespace: "team", Name: "web.v1"},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "things.example.com"},
		{Group: "example.com", Kind: "Thing", Namespace: "team", Name: "under_score"},
		{Group: rbac, Kind: "ClusterRole", Name: "system:controller:web"},
		{Group: rbac, Kind: "RoleBinding", Namespace: "team", Name: "web:reader"},
	} {
		id := ref.ID()
		_, _ = fmt.Fprintf(&lines, "group %q, kind %q, namespace %q, name %q: %s\n", ref.Group, ref.Kind,
			ref.Namespace, ref.Name, id)
		if back, err := stacks.ParseID(id); err != nil || back != ref {
			t.Errorf("%s parses to %+v, %v; want %+v", id, back, err, ref)
		}
	}
	goldenfile.Equal(t, "ids.txt", []byte(lines.String()))
}

// randomTemplate calls every random function that charts may use.
const randomTemplate = `
data:
  randAlphaNum: {{ randAlphaNum 40 | quote }}
  randAlpha: {{ randAlpha 40 | quote }}
  randNumeric: {{ randNumeric 40 | quote }}
  randAscii: {{ randAscii 40 | b64enc | quote }}
  randBytes: {{ randBytes 32 | quote }}
  randInt: {{ randInt -1000000 1000000 | quote }}
  shuffle: {{ shuffle "abcdefghijklmnopqrstuvwxyz" | quote }}
  uuidv4: {{ uuidv4 | quote }}
`

// Charts generate passwords with these functions. If their output changed, an update of the
// controller would change the passwords of running programs.
func TestGoldenRandomFunctions(t *testing.T) {
	root := writeTree(t, map[string]string{
		"stack.yaml":       components("- {name: shop, namespace: shop, helm: {chart: chart}}"),
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		// The seed includes the template: another template gets other values.
		"chart/templates/first.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first}" + randomTemplate,
		"chart/templates/second.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}" + randomTemplate,
	})
	req := stacks.Request{Root: root, Stack: "demo", Install: stacks.Identity{Namespace: "team", Name: "site"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}, SecretKey: []byte("test key")}
	var lines strings.Builder
	for _, o := range mustRender(t, req).Components[0].Objects {
		_, _ = fmt.Fprintf(&lines, "%s\n", o.Manifest)
	}
	goldenfile.Equal(t, "random.jsonl", []byte(lines.String()))
}

// fullRequest returns a request with all fields set.
func fullRequest() stacks.Request {
	enabled := true
	chart := stacks.ChartRef{Component: "web", DependencyOf: "charts/web",
		Repository: "oci://registry.example.com/charts", Name: "web",
		Version: "1.2.3", Digest: "sha256:" + strings.Repeat("a", 64)}
	return stacks.Request{
		Root: "/cache/tree", Digest: "sha256:" + strings.Repeat("b", 64), Path: "stacks", Stack: "demo",
		Install: stacks.Identity{Namespace: "team", Name: "site"},
		Choices: stacks.Choices{
			StackVersion: "1.0.0", Parameters: map[string]any{"size": int64(3), "ratio": 0.5, "zone": "<eu>"},
			Components: []stacks.ComponentChoice{{Name: "web", Version: "1.2.3",
				Digest: "sha256:" + strings.Repeat("c", 64), Enabled: &enabled,
				Override: map[string]any{"values": map[string]any{"replicas": int64(2)}}}},
			Values: []stacks.ValuesInput{{Component: "web", Source: "ConfigMap site, key values.yaml",
				Public: true, Data: []byte("replicas: 1\n")}},
			TargetNamespace: "web", Strict: true,
		},
		Charts: []stacks.FetchedChart{{ChartRef: chart, Root: "/cache/chart"}}, WithoutCharts: true,
		ChartLimits:  stacks.ChartLimits{Bytes: 1 << 20, Files: 100},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "v1"}},
		SecretKey:    []byte("test key"), DecryptionKeyID: "keyed hash",
		Decrypted: map[string][]byte{"stacks/secret.yaml": []byte("data: {}\n")},
	}
}

// The digest of a request is a hash of its JSON. If it changed, an update would render every stack
// again.
func TestGoldenRequestDigests(t *testing.T) {
	full, decrypted, generates := fullRequest(), fullRequest(), fullRequest()
	values := map[string]*generated.Values{"web": {Key: []byte("another key"), Rotated: "2026-05",
		Calls: map[string]generated.Value{"randAlphaNum#0@templates/secret.yaml": {Text: "x7Gb", PrivateKey: "none",
			Arguments: "4", Derived: true}},
		Places: map[string]string{"web/login/password": "randAlphaNum#0@templates/secret.yaml"},
		Clock:  &generated.Clock{Time: time.Unix(1700000000, 0).UTC(), For: "chart and values"}}}
	generates.Generate = generated.Options{Policy: generated.Keep, Owner: "site", Rotate: "web@2026-06",
		Derive: []string{"web"}, Values: values, Now: time.Now()}
	goldenfile.JSON(t, "generated.json", values["web"]) // as stored in the Secret
	looksUp, withLookups := generates, values["web"].Clone()
	withLookups.Lookups = map[string]generated.Lookup{"v1 Secret web login": {Object: []byte(`{"kind":"Secret"}`),
		For: "chart and values", Asked: true, Foreign: true}}
	looksUp.Generate.Values = map[string]*generated.Values{"web": withLookups}
	goldenfile.JSON(t, "lookups.json", &withLookups.Lookups)
	hasHooks, withHooks := looksUp, withLookups.Clone()
	withHooks.Hooks = []byte("encoded")
	hasHooks.Generate.Values = map[string]*generated.Values{"web": withHooks}
	hasReleases := hasHooks
	withRelease := withHooks.Clone()
	withRelease.Hooks, withRelease.Release = withHooks.Hooks, &generated.Release{Revision: 2, Digest: "keyed hash"}
	hasReleases.Generate.Values = map[string]*generated.Values{"web": withRelease}
	hasReleases.Releases = map[string]stacks.ReleaseRecord{"web": {Revision: 2, Digest: "keyed hash", Complete: true,
		Helm: &stacks.HelmRelease{Chart: "web", Version: "1.2.3", Values: map[string]any{"replicas": int64(2)}}}}
	hasLive, withLive := hasReleases, withRelease.Clone()
	withLive.Hooks = withHooks.Hooks
	for call, v := range withLive.Calls {
		v.StaysLive = true
		withLive.Calls[call] = v
	}
	for query, l := range withLive.Lookups {
		l.Emptied = true
		withLive.Lookups[query] = l
	}
	hasLive.Generate.Values = map[string]*generated.Values{"web": withLive}
	hasNames := hasLive
	metadata := &stacks.CommonMetadata{Labels: map[string]string{"team": "a"},
		Annotations: map[string]string{"note": "b"}}
	hasNames.Choices.CommonMetadata = metadata
	hasNames.Choices.Components = slices.Clone(hasLive.Choices.Components)
	names := &hasNames.Choices.Components[0]
	names.CommonMetadata, names.NamePrefix, names.NameSuffix = metadata, "my-", "-2"
	names.KustomizeComponents = []string{"../component"}
	hasSettings := hasNames
	hasSettings.Choices.Components = slices.Clone(hasNames.Choices.Components)
	choice := &hasSettings.Choices.Components[0]
	choice.ReleaseName, choice.CRDs, choice.Hooks = "site", appsv1.CRDsCreateOnly, appsv1.HooksSkip
	choice.SkipSchemaValidation = new(true)
	reads := hasSettings
	reads.Choices.ParametersFrom = []stacks.ParametersInput{{Source: "Secret site", Key: "password",
		TargetPath: "db.password", Secret: true, Data: map[string][]byte{"password": []byte("x7Gb")}}}
	reads.Choices.Values = slices.Clone(reads.Choices.Values)
	reads.Choices.Values[0].TargetPath = "replicas"
	readsFacts := reads
	readsFacts.Cluster = stacks.SelectFacts(map[string]any{"labels": map[string]any{"env": "eu", "other": "x"}},
		[][]string{{"labels", "env"}})
	goldenfile.Complete(t, readsFacts)
	decrypted.DecryptionKeyID = ""
	var lines strings.Builder
	for _, c := range []struct {
		name string
		req  stacks.Request
	}{{"least", stacks.Request{}}, {"every field", full}, {"every field, decrypted files without keys", decrypted},
		{"with generated values", generates}, {"with answers of lookup", looksUp},
		{"with hooks of a removal", hasHooks}, {"with records of releases", hasReleases},
		{"with values that are not in the cluster", hasLive},
		{"with metadata and names", hasNames}, {"with settings of a chart", hasSettings},
		{"with parameters from a Secret", reads}, {"with facts of the cluster", readsFacts}} {
		digest, err := stacks.Digest(c.req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.name, digest)
	}
	goldenfile.Equal(t, "digests.txt", []byte(lines.String()))
}
