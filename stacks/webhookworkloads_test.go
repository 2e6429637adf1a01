package stacks

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// objectsFrom returns the objects of YAML documents, as a render returns them.
func objectsFrom(t *testing.T, docs string) (out []Object) {
	t.Helper()
	for doc := range strings.SplitSeq(docs, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		var meta struct {
			APIVersion string
			Kind       string
			Metadata   struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		group, version, found := strings.Cut(meta.APIVersion, "/")
		if !found {
			group, version = "", group
		}
		out = append(out, Object{Ref: Ref{Group: group, Kind: meta.Kind, Namespace: meta.Metadata.Namespace,
			Name: meta.Metadata.Name}, Version: version, Manifest: raw})
	}
	return out
}

const webhookServer = `apiVersion: v1
kind: Service
metadata: {name: hooks, namespace: ns}
spec: {selector: {app: server}}
---
apiVersion: v1
kind: Service
metadata: {name: nothing, namespace: ns}
spec: {selector: {app: none}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: ns}
spec: {template: {metadata: {labels: {app: server, inject: "false"}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: ns}
spec: {template: {metadata: {labels: {app: other}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: elsewhere}
spec: {template: {metadata: {labels: {app: server}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: ns}
spec: {template: {metadata: {labels: {app: server}}}}
`

func TestWebhooksAreLinkedWithTheWorkloadsBehindTheirServices(t *testing.T) {
	server := Ref{Group: "apps", Kind: "Deployment", Namespace: "ns", Name: "server"}.ID()
	const (
		service    = "clientConfig: {service: {namespace: ns, name: hooks}}"
		pods       = `rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]`
		configMaps = `rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]`
		leavesOut  = `objectSelector: {matchExpressions: [{key: inject, operator: NotIn, values: ["false"]}]}`
		selects    = `objectSelector: {matchExpressions: [{key: app, operator: Exists}]}`
	)
	for name, tc := range map[string]struct {
		kind     string
		webhooks []string
		linked   bool
	}{
		"validating Pods":                    {"Validating", []string{service, pods}, true},
		"validating others":                  {"Validating", []string{service, configMaps}, true},
		"mutating Pods":                      {"Mutating", []string{service, pods}, true},
		"mutating Pods that it selects":      {"Mutating", []string{service, pods, selects}, true},
		"mutating Pods, and leaves them out": {"Mutating", []string{service, pods, leavesOut}, false},
		"mutating everything but them": {"Mutating", []string{
			service, strings.Replace(pods, "pods", `"*"`, 1), leavesOut}, false},
		"validating Pods but them":        {"Validating", []string{service, pods, leavesOut}, true},
		"mutating others, and leaves out": {"Mutating", []string{service, configMaps, leavesOut}, true},
		"by URL":                          {"Validating", []string{"clientConfig: {url: https://x}", pods}, false},
		"a Service outside of the component": {"Validating", []string{
			strings.Replace(service, "hooks", "x", 1), pods}, false},
		"a Service that selects nothing": {"Validating", []string{
			strings.Replace(service, "hooks", "nothing", 1), pods}, false},
		"an invalid configuration": {"Validating", []string{"clientConfig: []", pods}, false},
		"a Service of another namespace only": {"Validating", []string{
			strings.Replace(service, ": ns", ": x", 1), pods}, false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := objectsFrom(t, webhookServer+"---\napiVersion: admissionregistration.k8s.io/v1\nkind: "+tc.kind+
				"WebhookConfiguration\nmetadata: {name: c}\nwebhooks:\n- name: a.example.com\n  "+
				strings.Join(tc.webhooks, "\n  ")+"\n")
			linkWebhooks(objects)
			var want []string
			if tc.linked {
				want = []string{server}
			}
			if got := objects[len(objects)-1].AnsweredBy; !slices.Equal(got, want) {
				t.Errorf("answered by %v, want %v", got, want)
			}
			for _, o := range objects[:len(objects)-1] {
				if o.AnsweredBy != nil {
					t.Errorf("%s is linked, too", o.Ref)
				}
			}
		})
	}
}

func TestWebhookOfOneExemptAndOneOtherEntryIsLinked(t *testing.T) {
	objects := objectsFrom(t, webhookServer+`---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: c}
webhooks:
- name: a.example.com
  clientConfig: {service: {namespace: ns, name: hooks}}
  rules: [{apiGroups: [""], resources: [pods]}]
  objectSelector: {matchLabels: {inject: "true"}}
- name: b.example.com
  clientConfig: {service: {namespace: ns, name: hooks}}
  rules: [{apiGroups: ["*"], resources: ["*/*"]}]
`)
	linkWebhooks(objects)
	if got := objects[len(objects)-1].AnsweredBy; len(got) != 1 {
		t.Errorf("answered by %v, want the Deployment: the second entry is for its Pods", got)
	}
	hook := objects[len(objects)-1]
	hook.AnsweredBy, hook.Hook = nil, &Hook{Phase: HookPost}
	objects[len(objects)-1] = hook
	if linkWebhooks(objects); objects[len(objects)-1].AnsweredBy != nil {
		t.Error("a hook is linked: its phase says when it is created")
	}
}
