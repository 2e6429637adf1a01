package live_test

import (
	"context"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
)

const deploymentYAML = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: example.com/web:1
        args: [--verbose]
        env: [{name: A, value: a}, {name: B, value: b}]
        ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]
        resources: {}
        securityContext: {}
      - {name: side, image: example.com/side:1}
      volumes: [{name: tmp, emptyDir: {}}]
`

const unscaledYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.com/web:1"}]}
`

const (
	configMapYAML = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, " +
		"finalizers: [ours.example.com/a]}, data: {a: '1', b: '2'}}"
	secretYAML  = "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: aHVudGVyMg==, user: bWU=}}"
	stringsYAML = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: hunter2, user: me}}"
	serviceYAML = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {a: b}, " +
		"ports: [{name: web, port: 80}, {name: tls, port: 443, targetPort: 8443}]}}"
	roleYAML = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, " +
		"rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}"
)

// scenario is a change of an object after we applied it. Its name is part of the name of its
// capture file.
type scenario struct {
	name    string
	mapping *meta.RESTMapping
	yaml    string
	ignore  string
	// change makes the change and returns the changed object.
	change func(ctx context.Context, u *unstructured.Unstructured) *unstructured.Unstructured
	// drifted is true if the change is drift.
	drifted bool
	kept    []live.KeptField
}

// edit returns a change by a user with kubectl edit.
func edit(m *meta.RESTMapping, text string, subresource ...string) func(context.Context,
	*unstructured.Unstructured) *unstructured.Unstructured {
	return func(ctx context.Context, u *unstructured.Unstructured) *unstructured.Unstructured {
		out := patch(ctx, m, u.GetNamespace(), u.GetName(), text, subresource...)
		if len(subresource) == 0 {
			return out
		}
		out, err := resource(m, u.GetNamespace()).Get(ctx, u.GetName(), getOptions)
		Expect(err).NotTo(HaveOccurred())
		return out
	}
}

func applied(manager string, m *meta.RESTMapping, text string) func(context.Context,
	*unstructured.Unstructured) *unstructured.Unstructured {
	return func(ctx context.Context, u *unstructured.Unstructured) *unstructured.Unstructured {
		v := parse(text)
		v.SetNamespace(u.GetNamespace())
		return applyAs(ctx, manager, m, v)
	}
}

const template0 = "/spec/template/spec/containers/0"

var scenarios = []scenario{
	{name: "nothing but status", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "status: {replicas: 2, readyReplicas: 1}", "status")},
	{name: "the image is changed", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "[{op: replace, path: "+template0+"/image, value: evil}]")},
	{name: "a variable is added", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "[{op: add, path: "+template0+"/env/0, value: {name: C, value: c}}]")},
	{name: "a variable is removed", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "[{op: remove, path: "+template0+"/env/0}]")},
	{name: "a container is added before ours", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "[{op: add, path: "+template0+", value: {name: mesh, image: mesh}}]")},
	{name: "a container is removed", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "[{op: remove, path: /spec/template/spec/containers/1}]")},
	{name: "an atomic list is appended to", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "[{op: add, path: "+template0+"/args/-, value: --more}]")},
	{name: "a map that we left empty is filled", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "[{op: add, path: "+template0+"/securityContext/runAsUser, value: 7}, {op: "+
			"add, path: "+template0+
			"/resources/limits, value: {cpu: 1}}, {op: add, path: /spec/template/spec/volumes/0/emptyDir/sizeLimit, "+
			"value: 1Gi}]")},
	{name: "a label is added", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "metadata: {labels: {team: a}}")},
	{name: "our label is removed", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "metadata: {labels: {app: null}}")},
	{name: "the mark is removed", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "metadata: {annotations: {"+live.MarkAnnotation+": null}}")},
	{name: "another manager applies the same value", mapping: deployments, yaml: unscaledYAML,
		change: applied("other", deployments, unscaledYAML)},
	{name: "another manager takes a value over", mapping: deployments, yaml: unscaledYAML, drifted: true,
		change: applied("other", deployments,
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: "+
				"[{name: web, image: other}]}}}}")},
	{name: "it is scaled", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "spec: {replicas: 5}", "scale"),
		kept:   []live.KeptField{{Path: "/spec/replicas", Value: []byte("5"), Others: true}}},
	{name: "it is scaled to what we said", mapping: deployments, yaml: deploymentYAML,
		change: edit(deployments, "spec: {replicas: 2}", "scale")},
	{name: "it is scaled and we never said how many", mapping: deployments, yaml: unscaledYAML,
		change: edit(deployments, "spec: {replicas: 5}", "scale")},
	{name: "replicas are edited", mapping: deployments, yaml: deploymentYAML, drifted: true,
		change: edit(deployments, "spec: {replicas: 5}")},
	{name: "replicas are edited and we never said how many", mapping: deployments, yaml: unscaledYAML,
		change: edit(deployments, "spec: {replicas: 5}")},
	{name: "ignored replicas are edited", mapping: deployments, yaml: deploymentYAML, ignore: `["/spec/replicas"]`,
		change: edit(deployments, "spec: {replicas: 5}"),
		kept:   []live.KeptField{{Path: "/spec/replicas", Value: []byte("5"), Others: true}}},
	{name: "an ignored image is changed", mapping: deployments, yaml: deploymentYAML, ignore: `["` + template0 +
		`/image"]`,
		change: edit(deployments, "[{op: replace, path: "+template0+"/image, value: other}]"),
		kept:   []live.KeptField{{Path: template0 + "/image", Value: []byte(`"other"`), Others: true}}},
	{name: "beside an ignored image something else is changed", mapping: deployments, yaml: deploymentYAML,
		ignore: `["` + template0 + `/image"]`, drifted: true,
		change: edit(deployments, "[{op: replace, path: "+template0+"/env/0/value, value: other}]"),
		kept:   []live.KeptField{{Path: template0 + "/image", Value: []byte(`"example.com/web:1"`), Ours: true}}},
	{name: "an ignored field of an atomic list is changed", mapping: roles, yaml: roleYAML,
		ignore: `["/rules/0/verbs"]`,
		change: edit(roles, "[{op: add, path: /rules/0/verbs/-, value: list}]"),
		kept:   []live.KeptField{{Path: "/rules/0/verbs", Value: []byte(`["get","list"]`), Ours: true}}},
	{name: "beside an ignored field of an atomic list something else is changed", mapping: roles, yaml: roleYAML,
		ignore: `["/rules/0/verbs"]`, drifted: true,
		change: edit(roles, "[{op: add, path: /rules/0/resources/-, value: secrets}]"),
		kept:   []live.KeptField{{Path: "/rules/0/verbs", Value: []byte(`["get"]`), Ours: true}}},
	{name: "an ignored argument is changed", mapping: deployments, yaml: deploymentYAML, ignore: `["` + template0 +
		`/args/0"]`,
		change: edit(deployments, "[{op: replace, path: "+template0+"/args/0, value: --quiet}]"),
		kept:   []live.KeptField{{Path: template0 + "/args/0", Value: []byte(`"--quiet"`), Ours: true}}},
	{name: "the ignored image of a named container is changed in another place", mapping: deployments,
		yaml: deploymentYAML, ignore: `["/spec/template/spec/containers/[name=web]/image"]`,
		change: edit(deployments, "[{op: replace, path: "+template0+"/image, value: other}, "+
			"{op: add, path: "+template0+", value: {name: mesh, image: mesh}}]"),
		kept: []live.KeptField{{Path: "/spec/template/spec/containers/[name=web]/image",
			At: `/spec/template/spec/containers/k:{"name":"web"}/image`, Value: []byte(`"other"`), Others: true}}},
	{name: "ignored ports and another field are changed", mapping: services, yaml: serviceYAML,
		ignore: `["/spec/ports/*/targetPort"]`, drifted: true,
		change: edit(services, "[{op: replace, path: /spec/ports/1/targetPort, value: 8444}, "+
			"{op: replace, path: /spec/ports/0/name, value: other}]"),
		kept: []live.KeptField{
			{Path: "/spec/ports/*/targetPort", At: `/spec/ports/k:{"port":80,"protocol":"TCP"}/targetPort`,
				Value: []byte("80")},
			{Path: "/spec/ports/*/targetPort", At: `/spec/ports/k:{"port":443,"protocol":"TCP"}/targetPort`,
				Value: []byte("8444"), Others: true}}},
	{name: "an ignored part of a map that we left empty is filled", mapping: deployments, yaml: deploymentYAML,
		ignore: `["` + template0 + `/securityContext/runAsUser"]`,
		change: edit(deployments, "[{op: add, path: "+template0+
			"/securityContext/runAsUser, value: 7}, {op: add, path: "+template0+
			"/securityContext/runAsGroup, value: 7}]"),
		kept: []live.KeptField{{Path: template0 + "/securityContext/runAsUser", Value: []byte("7"), Others: true}}},
	{name: "a key is changed", mapping: configMaps, yaml: configMapYAML, drifted: true,
		change: edit(configMaps, "data: {a: x}")},
	{name: "a key is added", mapping: configMaps, yaml: configMapYAML,
		change: edit(configMaps, "data: {c: x}")},
	{name: "a key is removed", mapping: configMaps, yaml: configMapYAML, drifted: true,
		change: edit(configMaps, "data: {a: null}")},
	{name: "a finalizer is added", mapping: configMaps, yaml: configMapYAML,
		change: edit(configMaps, "[{op: add, path: /metadata/finalizers/0, value: theirs.example.com/b}]")},
	{name: "our finalizer is removed", mapping: configMaps, yaml: configMapYAML, drifted: true,
		change: edit(configMaps, "metadata: {finalizers: [theirs.example.com/b]}")},
	{name: "a key of a Secret is changed", mapping: secrets, yaml: secretYAML, drifted: true,
		change: edit(secrets, "data: {password: eA==}")},
	{name: "a key of a Secret given as text is changed", mapping: secrets, yaml: stringsYAML, drifted: true,
		change: edit(secrets, "data: {password: eA==}")},
	{name: "a key of a Secret given as text is removed", mapping: secrets, yaml: stringsYAML, drifted: true,
		change: edit(secrets, "data: {password: null}")},
	{name: "a key of a Secret is added", mapping: secrets, yaml: secretYAML,
		change: edit(secrets, "data: {other: eA==}")},
	{name: "an ignored key of a Secret is changed", mapping: secrets, yaml: secretYAML, ignore: `["/data/password"]`,
		change: edit(secrets, "data: {password: eA==}"),
		kept:   []live.KeptField{{Path: "/data/password", Withheld: true, Others: true}}},
	{name: "a port is changed", mapping: services, yaml: serviceYAML, drifted: true,
		change: edit(services, "[{op: replace, path: /spec/ports/1/targetPort, value: 8444}]")},
	{name: "a port is added", mapping: services, yaml: serviceYAML,
		change: edit(services, "[{op: add, path: /spec/ports/0, value: {name: extra, port: 81}}]")},
	{name: "a rule is added", mapping: roles, yaml: roleYAML, drifted: true,
		change: edit(roles,
			"[{op: add, path: /rules/-, value: {apiGroups: [''], resources: [secrets], verbs: [get]}}]")},
	{name: "we apply it again", mapping: deployments, yaml: deploymentYAML,
		change: func(ctx context.Context, u *unstructured.Unstructured) *unstructured.Unstructured {
			return apply(ctx, deployments, marked(u.GetNamespace(), parse(deploymentYAML)))
		}},
}
