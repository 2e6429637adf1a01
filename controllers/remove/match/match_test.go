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

// rendered is an object as a stack renders it.
func rendered(t *testing.T, text string, release *stacks.Release) *match.Wanted {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := object(t, text)
	gvk := u.GroupVersionKind()
	return &match.Wanted{Release: release, Object: stacks.Object{Manifest: raw, Version: gvk.Version,
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

func TestJudgeOwner(t *testing.T) {
	web := &stacks.Release{Namespace: "ns", Name: "web"}
	const helmed = ", labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: web, meta.helm.sh/release-namespace: ns}"
	for name, c := range map[string]struct {
		release *stacks.Release
		meta    string // of the live object, whose data differ
		by      match.By
		why     string
	}{
		"the release of its component": {web, helmed, match.Release, ""},
		"a release of that name elsewhere": {&stacks.Release{Namespace: "m", Name: "web"}, helmed, "",
			"it belongs to Helm release ns/web"},
		"a release, and its component is none":     {nil, helmed, "", "it belongs to Helm release ns/web"},
		"the release's annotations, not its label": {web, strings.Replace(helmed, "Helm}", "kustomize}", 1), "", "data.k is not as the stack has it"},
		"the release of Flux":                      {web, strings.Replace(helmed, "labels: {", "labels: {helm.toolkit.fluxcd.io/name: web, helm.toolkit.fluxcd.io/namespace: f, ", 1), "", "it belongs to Flux HelmRelease f/web"},
		"Flux": {nil, ", labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: f}", "",
			"it belongs to Flux Kustomization f/apps"},
		"Argo CD":               {nil, `, annotations: {argocd.argoproj.io/tracking-id: "app:/ConfigMap:ns/a"}`, "", "it belongs to Argo CD (app:/ConfigMap:ns/a)"},
		"another controller":    {web, `, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: u, controller: true}]`, "", "it belongs to ReplicaSet rs, which created it"},
		"an install":            {web, `, annotations: {ksctl.com/mark: "o/local/KsctlInstall/n/i|ns_a__ConfigMap"}`, "", "it belongs to KsctlInstall n/i"},
		"a copied mark":         {web, `, annotations: {ksctl.com/mark: "o/local/KsctlInstall/n/i|ns_b__ConfigMap"}`, "", "data.k is not"},
		"nobody":                {web, "", "", "data.k is not as the stack has it, and no Helm release of the stack marked it"},
		"the release, and ours": {web, strings.Replace(helmed, "annotations: {", `annotations: {ksctl.com/mark: "`+self+`|ns_a__ConfigMap", `, 1), match.Release, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := match.Judge(rendered(t, configMap("", "data: {k: v}"), c.release), self, object(t, configMap(c.meta, "data: {k: other}")))
			if v.By != c.by || !strings.Contains(v.Why, c.why) || v.Counts() != (c.by != "") || (v.Why == "") != v.Counts() {
				t.Errorf("%+v, want by %q because %q", v, c.by, c.why)
			}
		})
	}
}

func TestJudgeFields(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: ns}\n"
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: ns}\nspec:\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec:\n"
	for name, c := range map[string]struct {
		want, live string
		by         match.By
		why        string
	}{
		"the same":                                    {configMap("", "data: {k: v}"), configMap("", "data: {k: v}"), match.Fields, ""},
		"more in the cluster":                         {configMap("", "data: {k: v}"), configMap("", "data: {k: v, l: w}\nimmutable: false"), match.Fields, ""},
		"less in the cluster":                         {configMap("", "data: {k: v, l: w}"), configMap("", "data: {k: v}"), "", "data.l is not"},
		"a key with dots":                             {configMap("", "data: {a.yaml: v}"), configMap("", "data: {a.yaml: w}"), "", `data["a.yaml"] is not`},
		"nothing rendered":                            {configMap("", ""), configMap("", "data: {k: v}"), match.Name, ""},
		"nothing rendered but empty":                  {configMap("", "data: {}"), configMap("", ""), match.Name, ""},
		"emptied in the stack":                        {configMap("", "data: {k: ''}"), configMap("", "data: {k: v}"), "", "data.k is not"},
		"nothing rendered, and labels in the cluster": {configMap("", ""), configMap(", labels: {app: a}", ""), match.Name, ""},
		"labels of little else":                       {configMap(", labels: {app: a}", ""), configMap(", labels: {app: a, more: b}", ""), match.Name, ""},
		"other labels of little else":                 {configMap(", labels: {app: a}", ""), configMap("", ""), "", "metadata.labels"},
		"other labels":                                {configMap(", labels: {app: a}", "data: {k: v}"), configMap("", "data: {k: v}"), match.Fields, ""},
		"quantities outside their fields": {configMap("", "data: {k: 1000m}"), configMap("", "data: {k: '1'}"), "",
			"data.k is not"},
		"a Secret as the API server keeps it": {secret + "stringData: {k: hello}", secret + "data: {k: aGVsbG8=}\ntype: Opaque", match.Fields, ""},
		"a Secret that says both":             {secret + "stringData: {k: hello}\ndata: {k: b3RoZXI=}", secret + "data: {k: aGVsbG8=}", match.Fields, ""},
		"another Secret":                      {secret + "stringData: {k: hello}", secret + "data: {k: aGVsbG9v}", "", "data.k is not"},
		"a Secret of another type":            {secret + "data: {k: aGVsbG8=}\ntype: Opaque", secret + "data: {k: aGVsbG8=}\ntype: x/y", "", "type is not"},
		"defaults, quantities and a sidecar": {deployment + `  replicas: 2
  template: {spec: {hostNetwork: false, nodeSelector: {}, containers: [{name: main, image: x, resources: {limits: {cpu: 1, memory: 1024Mi}, requests: {cpu: "0.5"}}, env: [{name: A, value: "1"}], ports: [{containerPort: 80}]}]}}`,
			deployment + `  replicas: 2
  revisionHistoryLimit: 10
  template: {spec: {restartPolicy: Always, containers: [{name: sidecar}, {name: main, image: x, imagePullPolicy: Always, resources: {limits: {cpu: "1", memory: 1Gi}, requests: {cpu: 500m}}, env: [{name: B}, {name: A, value: "1"}], ports: [{containerPort: 80, protocol: TCP}]}]}}`, match.Fields, ""},
		"another image": {deployment + "  template: {spec: {containers: [{name: main, image: x}]}}", deployment + "  template: {spec: {containers: [{name: main, image: y}]}}", "",
			"spec.template.spec.containers[main].image is not"},
		"no such container":   {deployment + "  template: {spec: {containers: [{name: main}]}}", deployment + "  template: {spec: {containers: [{name: other}]}}", "", "spec.template.spec.containers[main] is not"},
		"scaled":              {deployment + "  replicas: 2", deployment + "  replicas: 3", "", "spec.replicas is not"},
		"scaled to nothing":   {deployment + "  replicas: 2", deployment + "  paused: false", "", "spec.replicas is not"},
		"1 and 1.0":           {deployment + "  replicas: 1.0", deployment + "  replicas: 1", match.Fields, ""},
		"a number and a text": {deployment + "  x: 1", deployment + "  x: '1'", "", "spec.x is not"},
		"null":                {deployment + "  replicas: 1\n  strategy: null", deployment + "  replicas: 1", match.Fields, ""},
		"a port of two protocols": {service + "  ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]",
			service + "  ports: [{port: 53, targetPort: 53, protocol: TCP}, {port: 53, targetPort: 53, protocol: UDP}]\n  clusterIP: 10.0.0.1", match.Fields, ""},
		"a port that is not there": {service + "  ports: [{port: 80}]", service + "  ports: [{port: 81}]", "", "spec.ports[80] is not"},
		"rules in order": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrules: [{verbs: [get]}]",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrules: [{verbs: [get]}, {verbs: ['*']}]", "", "rules is not"},
		"rules that are aggregated": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: []",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: [{verbs: [get]}]", match.Fields, ""},
		"a status": {deployment + "  replicas: 1\nstatus: {replicas: 7}", deployment + "  replicas: 1\nstatus: {replicas: 1}", match.Fields, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := match.Judge(rendered(t, c.want, nil), self, object(t, c.live))
			if v.By != c.by || !strings.Contains(v.Why, c.why) {
				t.Errorf("%+v, want by %q because %q", v, c.by, c.why)
			}
		})
	}
}

func TestKept(t *testing.T) {
	const keep = ", annotations: {helm.sh/resource-policy: keep}"
	for name, c := range map[string]struct {
		want, live string
		kept       bool
	}{
		"neither": {}, "the stack": {want: keep, kept: true}, "the cluster": {live: keep, kept: true},
	} {
		if got := match.Kept(rendered(t, configMap(c.want, ""), nil), object(t, configMap(c.live, ""))); got != c.kept {
			t.Errorf("%s: kept is %v", name, got)
		}
	}
}

// FuzzJudge: an object is found to be what it is, with whatever the cluster adds,
// and a value never shows in a message.
func FuzzJudge(f *testing.F) {
	f.Add(`{"data":{"k":"v"},"spec":{"containers":[{"name":"a","x":null}],"n":1.5}}`, `{"spec":{"y":1},"z":[]}`)
	f.Add(`{"spec":{"ports":[{"port":1},{"port":1}],"limits":{"cpu":"1"}}}`, `{"spec":{"ports":[]}}`)
	f.Fuzz(func(t *testing.T, want, more string) {
		var w, m map[string]any
		if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(more), &m) != nil || w == nil {
			return
		}
		head := func(o map[string]any) *unstructured.Unstructured {
			o["apiVersion"], o["kind"], o["metadata"] = "v1", "ConfigMap", map[string]any{"name": "a", "namespace": "ns"}
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
		wanted := &match.Wanted{Object: stacks.Object{Manifest: raw, Ref: stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"}}}
		if v := match.Judge(wanted, self, u); !v.Counts() {
			t.Errorf("not itself: %+v", v)
		}
		for k, v := range m {
			if _, there := w[k]; !there {
				u.Object[k] = v
			}
		}
		if v := match.Judge(wanted, self, head(u.Object)); !v.Counts() {
			t.Errorf("not itself with %s: %+v", more, v)
		}
		if m == nil {
			m = map[string]any{}
		}
		match.Judge(wanted, self, head(m)) // another object: no panic
	})
}

// FuzzSecret: no message says what is in a Secret.
func FuzzSecret(f *testing.F) {
	f.Add("password", "hunter2-hunter2", "other")
	f.Fuzz(func(t *testing.T, key, value, other string) {
		if len(value) < 8 || strings.Contains(key, value) || value == other {
			return
		}
		raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": "ns"}, "stringData": map[string]any{key: value}})
		if err != nil {
			t.Skip()
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": "ns"},
			"data": map[string]any{key: other}}}
		v := match.Judge(&match.Wanted{Object: stacks.Object{Manifest: raw, Ref: stacks.Ref{Kind: "Secret", Namespace: "ns", Name: "a"}}}, self, u)
		if strings.Contains(v.Why, value) || (len(other) > 8 && !strings.Contains(key, other) && strings.Contains(v.Why, other)) {
			t.Errorf("shown: %s", v.Why)
		}
	})
}
