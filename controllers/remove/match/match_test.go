package match_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/stacks"
)

const self = "o/local/KsctlRemove/team/r"

// rendered returns a rendered object.
func rendered(t *testing.T, text string, release *stacks.Release) *match.Rendered {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := object(t, text)
	gvk := u.GroupVersionKind()
	return &match.Rendered{Release: release, Object: stacks.Object{Manifest: raw, Version: gvk.Version,
		Ref: stacks.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}}}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

const cm = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ns%s}\n%s\n"

func configMap(meta, rest string) string {
	return strings.Replace(strings.Replace(cm, "%s", meta, 1), "%s", rest, 1)
}

func TestMatchOwner(t *testing.T) {
	web := &stacks.Release{Namespace: "ns", Name: "web"}
	const helmed = ", labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: web, " +
		"meta.helm.sh/release-namespace: ns}"
	for name, c := range map[string]struct {
		release *stacks.Release
		meta    string // metadata of the live object, whose data differ
		// inRelease is true if the object matches, because of its release.
		inRelease bool
		why       string
	}{
		"release of the component": {web, helmed, true, ""},
		"release in another namespace": {&stacks.Release{Namespace: "m", Name: "web"}, helmed, false,
			"belongs to Helm release ns/web"},
		"release, but component is not a chart": {nil, helmed, false, "belongs to Helm release ns/web"},
		"annotations of the release without label": {web, strings.Replace(helmed, "Helm}", "kustomize}", 1), false,
			"data.k differs from the stack"},
		"release of Flux": {web,
			strings.Replace(helmed, "labels: {",
				"labels: {helm.toolkit.fluxcd.io/name: web, helm.toolkit.fluxcd.io/namespace: f, ", 1), false,
			"belongs to Flux HelmRelease f/web"},
		"Flux": {nil, ", labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: f}",
			false,
			"belongs to Flux Kustomization f/apps"},
		"Argo CD": {nil, `, annotations: {argocd.argoproj.io/tracking-id: "app:/ConfigMap:ns/a"}`, false,
			"belongs to Argo CD (app:/ConfigMap:ns/a)"},
		"other controller": {web,
			`, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: u, controller: true}]`, false,
			"belongs to ReplicaSet rs, which created it"},
		"install": {web, `, annotations: {ksctl.com/mark: "o/local/KsctlInstall/n/i|ns_a__ConfigMap"}`,
			false, "belongs to KsctlInstall n/i"},
		"copied mark": {web, `, annotations: {ksctl.com/mark: "o/local/KsctlInstall/n/i|ns_b__ConfigMap"}`,
			false, "data.k differs"},
		"no owner": {web, "", false,
			"data.k differs from the stack, and the object is not marked by a Helm release of the stack"},
		"release and own mark": {web,
			strings.Replace(helmed, "annotations: {", `annotations: {ksctl.com/mark: "`+self+`|ns_a__ConfigMap", `, 1),
			true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			why, inRelease := match.Match(rendered(t, configMap("", "data: {k: v}"), c.release), self,
				object(t, configMap(c.meta, "data: {k: other}")))
			if inRelease != c.inRelease || !strings.Contains(why, c.why) || (why == "") != inRelease {
				t.Errorf("in release %t, mismatch %q; want %t, %q", inRelease, why, c.inRelease, c.why)
			}
		})
	}
}

func TestMatchFields(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: ns}\n"
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: ns}\nspec:\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec:\n"
	for name, c := range map[string]struct {
		want, live string
		why        string // empty if the object matches
	}{
		"equal": {configMap("", "data: {k: v}"), configMap("", "data: {k: v}"), ""},
		"additional fields in the cluster": {configMap("", "data: {k: v}"),
			configMap("", "data: {k: v, l: w}\nimmutable: false"), ""},
		"missing field in the cluster": {configMap("", "data: {k: v, l: w}"),
			configMap("", "data: {k: v}"), "data.l differs"},
		"key with dots": {configMap("", "data: {a.yaml: v}"),
			configMap("", "data: {a.yaml: w}"), `data["a.yaml"] differs`},
		"only name rendered":        {configMap("", ""), configMap("", "data: {k: v}"), ""},
		"only empty field rendered": {configMap("", "data: {}"), configMap("", ""), ""},
		"empty value in the stack": {configMap("", "data: {k: ''}"), configMap("", "data: {k: v}"),
			"data.k differs"},
		"only name rendered, labels in the cluster": {configMap("", ""), configMap(", labels: {app: a}", ""), ""},
		"only equal labels rendered": {configMap(", labels: {app: a}", ""),
			configMap(", labels: {app: a, more: b}", ""), ""},
		"only differing labels rendered": {configMap(", labels: {app: a}", ""), configMap("", ""),
			"metadata.labels"},
		"differing labels, equal data": {configMap(", labels: {app: a}", "data: {k: v}"),
			configMap("", "data: {k: v}"), ""},
		"quantities in other fields": {configMap("", "data: {k: 1000m}"), configMap("", "data: {k: '1'}"),
			"data.k differs"},
		"Secret with stringData": {secret + "stringData: {k: hello}",
			secret + "data: {k: aGVsbG8=}\ntype: Opaque", ""},
		"Secret with data and stringData": {secret + "stringData: {k: hello}\ndata: {k: b3RoZXI=}",
			secret + "data: {k: aGVsbG8=}", ""},
		"differing Secret": {secret + "stringData: {k: hello}", secret + "data: {k: aGVsbG9v}",
			"data.k differs"},
		"Secret of another type": {secret + "data: {k: aGVsbG8=}\ntype: Opaque",
			secret + "data: {k: aGVsbG8=}\ntype: x/y", "type differs"},
		"defaults, quantities and a sidecar": {deployment + `  replicas: 2
  template: {spec: {hostNetwork: false, nodeSelector: {}, containers: [{name: main, image: x, resources: {limits: {cpu: 1, memory: 1024Mi}, requests: {cpu: "0.5"}}, env: [{name: A, value: "1"}], ports: [{containerPort: 80}]}]}}`,
			deployment + `  replicas: 2
  revisionHistoryLimit: 10
  template: {spec: {restartPolicy: Always, containers: [{name: sidecar}, {name: main, image: x, imagePullPolicy: Always, resources: {limits: {cpu: "1", memory: 1Gi}, requests: {cpu: 500m}}, env: [{name: B}, {name: A, value: "1"}], ports: [{containerPort: 80, protocol: TCP}]}]}}`, ""},
		"differing image": {deployment + "  template: {spec: {containers: [{name: main, image: x}]}}",
			deployment + "  template: {spec: {containers: [{name: main, image: y}]}}",
			"spec.template.spec.containers[main].image differs"},
		"missing container": {deployment + "  template: {spec: {containers: [{name: main}]}}",
			deployment + "  template: {spec: {containers: [{name: other}]}}",
			"spec.template.spec.containers[main] differs"},
		"scaled":            {deployment + "  replicas: 2", deployment + "  replicas: 3", "spec.replicas differs"},
		"replicas missing":  {deployment + "  replicas: 2", deployment + "  paused: false", "spec.replicas differs"},
		"1 and 1.0":         {deployment + "  replicas: 1.0", deployment + "  replicas: 1", ""},
		"number and string": {deployment + "  x: 1", deployment + "  x: '1'", "spec.x differs"},
		"null":              {deployment + "  replicas: 1\n  strategy: null", deployment + "  replicas: 1", ""},
		"port with two protocols": {service + "  ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]",
			service + "  ports: [{port: 53, targetPort: 53, protocol: TCP}, {port: 53, " +
				"targetPort: 53, protocol: UDP}]\n  clusterIP: 10.0.0.1", ""},
		"missing port": {service + "  ports: [{port: 80}]", service + "  ports: [{port: 81}]",
			"spec.ports[80] differs"},
		"additional rule": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n" +
			"metadata: {name: a}\nrules: [{verbs: [get]}]",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n" +
				"metadata: {name: a}\nrules: [{verbs: [get]}, {verbs: ['*']}]", "rules differs"},
		"aggregated rules": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n" +
			"aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: []",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n" +
				"aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: [{verbs: [get]}]", ""},
		"differing status": {deployment + "  replicas: 1\nstatus: {replicas: 7}",
			deployment + "  replicas: 1\nstatus: {replicas: 1}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			why, _ := match.Match(rendered(t, c.want, nil), self, object(t, c.live))
			if !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("mismatch %q, want %q", why, c.why)
			}
		})
	}
}

func TestKeptByHelm(t *testing.T) {
	const keep = ", annotations: {helm.sh/resource-policy: keep}"
	for name, c := range map[string]struct {
		want, live string
		kept       bool
	}{
		"no annotation": {}, "in the stack": {want: keep, kept: true}, "in the cluster": {live: keep, kept: true},
	} {
		if got := match.KeptByHelm(rendered(t, configMap(c.want, ""), nil),
			object(t, configMap(c.live, ""))); got != c.kept {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestKeptByAnnotation(t *testing.T) {
	annotation := func(text string) string { return ", annotations: {" + text + "}" }
	keep := annotation(`ksctl.com/keep: "true"`)
	for name, c := range map[string]struct {
		want, live string
		kept       bool
	}{
		"no annotation": {}, "in the stack": {want: keep, kept: true}, "in the cluster": {live: keep, kept: true},
		"Delete=false of Argo CD": {live: annotation("argocd.argoproj.io/sync-options: Delete=false"), kept: true},
		"Prune=false of Argo CD":  {live: annotation("argocd.argoproj.io/sync-options: Prune=false")},
	} {
		got := match.KeptByAnnotation(rendered(t, configMap(c.want, ""), nil), object(t, configMap(c.live, "")))
		if got != c.kept {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// FuzzMatch checks that a rendered object matches itself, also with additional fields of the
// cluster, and that no input panics.
func FuzzMatch(f *testing.F) {
	f.Add(`{"data":{"k":"v"},"spec":{"containers":[{"name":"a","x":null}],"n":1.5}}`, `{"spec":{"y":1},"z":[]}`)
	f.Add(`{"spec":{"ports":[{"port":1},{"port":1}],"limits":{"cpu":"1"}}}`, `{"spec":{"ports":[]}}`)
	f.Fuzz(func(t *testing.T, want, more string) {
		var w, m map[string]any
		if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(more), &m) != nil || w == nil {
			return
		}
		head := func(o map[string]any) *unstructured.Unstructured {
			o["apiVersion"], o["kind"], o["metadata"] = "v1", "ConfigMap",
				map[string]any{"name": "a", "namespace": "ns"}
			raw, err := json.Marshal(o)
			if err != nil {
				t.Skip()
			}
			u := &unstructured.Unstructured{}
			if u.UnmarshalJSON(raw) != nil {
				t.Skip()
			}
			return u
		}
		u := head(w)
		raw, err := json.Marshal(u.Object)
		if err != nil {
			t.Skip()
		}
		wanted := &match.Rendered{Object: stacks.Object{Manifest: raw,
			Ref: stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"}}}
		if why, _ := match.Match(wanted, self, u); why != "" {
			t.Errorf("an object does not match itself: %s", why)
		}
		for k, v := range m {
			if _, there := w[k]; !there {
				u.Object[k] = v
			}
		}
		if why, _ := match.Match(wanted, self, head(u.Object)); why != "" {
			t.Errorf("an object does not match itself with additional %s: %s", more, why)
		}
		if m == nil {
			m = map[string]any{}
		}
		match.Match(wanted, self, head(m)) // other object: must not panic
	})
}

// FuzzSecret checks that no message contains data of a Secret.
func FuzzSecret(f *testing.F) {
	f.Add("password", "hunter2-hunter2", "other")
	f.Fuzz(func(t *testing.T, key, value, other string) {
		if len(value) < 8 || strings.Contains(key, value) || value == other {
			return
		}
		raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": "a", "namespace": "ns"}, "stringData": map[string]any{key: value}})
		if err != nil {
			t.Skip()
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": "a", "namespace": "ns"},
			"data":     map[string]any{key: other}}}
		why, _ := match.Match(&match.Rendered{Object: stacks.Object{Manifest: raw,
			Ref: stacks.Ref{Kind: "Secret", Namespace: "ns", Name: "a"}}}, self, u)
		if strings.Contains(why, value) ||
			(len(other) > 8 && !strings.Contains(key, other) && strings.Contains(why, other)) {
			t.Errorf("the message contains a value: %s", why)
		}
	})
}
