package catalog

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// renderServed renders the stack of an object as the controller does, and returns the objects by
// kind and name. The object has the label of the account acme.
func renderServed(t *testing.T, stack, name, spec string) map[string]map[string]any {
	t.Helper()
	return renderOfAccount(t, "acme", stack, name, spec)
}

// renderOfAccount is renderServed for another account.
func renderOfAccount(t *testing.T, account, stack, name, spec string) map[string]map[string]any {
	t.Helper()
	o := object(t, name, spec)
	o["metadata"].(map[string]any)["labels"] = map[string]any{"accounts": account}
	install, _, err := load(t, stack).Install(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	choices, err := stacks.ChoicesFromInstall(&appsv1.KsctlInstall{Spec: install}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := stacks.Render(t.Context(), stacks.Request{Root: folder(t, stack, "1.0.0"), Stack: stack,
		Install: stacks.Identity{Namespace: "team", Name: name}, Choices: choices,
		Generate:     generated.Options{Policy: generated.Keep, Owner: name},
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
	if err != nil || len(res.Warnings) > 0 {
		t.Fatal(err, res.Warnings)
	}
	out := map[string]map[string]any{}
	for _, c := range res.Components {
		objects := c.Objects
		if kept := res.Generated[c.Name]; kept != nil {
			hooks, err := stacks.DecodeHooks(kept.Hooks)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(slices.DeleteFunc(objects, func(o stacks.Object) bool { return o.Generated }), hooks...)
		}
		for _, rendered := range objects {
			var value map[string]any
			if err := json.Unmarshal(rendered.Manifest, &value); err != nil {
				t.Fatal(err)
			}
			out[rendered.Kind+"/"+rendered.Name] = value
		}
	}
	return out
}

// at returns a field of an object; names and numbers are keys and indices.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := value.(map[string]any)
			if !ok {
				t.Fatalf("%v is not an object: %v", value, path)
			}
			value = m[p]
		case int:
			list, ok := value.([]any)
			if !ok || len(list) <= p {
				t.Fatalf("%v has no item %d: %v", value, p, path)
			}
			value = list[p]
		}
	}
	return value
}

func only(t *testing.T, objects map[string]map[string]any, prefix string) map[string]any {
	t.Helper()
	var found map[string]any
	for id, o := range objects {
		if strings.HasPrefix(id, prefix) {
			if found != nil {
				t.Fatalf("several objects begin with %s", prefix)
			}
			found = o
		}
	}
	if found == nil {
		t.Fatalf("no object begins with %s", prefix)
	}
	return found
}

func arguments(t *testing.T, o map[string]any) (out []string) {
	t.Helper()
	for _, a := range at(t, o, "spec", "template", "spec", "containers", 0, "args").([]any) {
		out = append(out, a.(string))
	}
	return out
}

const workerTemplate = `template: {scriptName: hello, workerNumber: 8081, secretRef: {name: hello},
 scriptUrls: ["https://files.example.com/a$1/index.mjs", "s3://scripts/add.wasm"]}, releaseHistoryLimit: 2`

// What a WorkerDeployment contributes to the bundle is the image that its WorkerRelease pushes.
func TestWorkerReleasePushesTheImageOfTheBundle(t *testing.T) {
	deployment := renderServed(t, "worker-deployment", "acme.hello", "{"+workerTemplate+"}")
	release := only(t, deployment, "WorkerRelease/acme.hello.")
	item := at(t, deployment["WorkerBundle/acme"], "spec", "workers", 0)
	if at(t, item, "workerNumber") != float64(8081) || at(t, item, "secretRef", "name") != "hello" {
		t.Errorf("the item is %v", item)
	}
	spec, err := json.Marshal(release["spec"])
	if err != nil {
		t.Fatal(err)
	}
	jobs := renderServed(t, "worker-release", at(t, release, "metadata", "name").(string), string(spec))
	push := arguments(t, only(t, jobs, "Job/hello-push-"))
	image := at(t, item, "image").(string)
	for _, want := range []string{"--image=" + image, "--url=https://files.example.com/a$$1/index.mjs",
		"--url=s3://scripts/add.wasm"} {
		if !slices.Contains(push, want) {
			t.Errorf("%s is not in %v", want, push)
		}
	}
	if !slices.Contains(arguments(t, only(t, jobs, "Job/hello-remove-")), "--image="+image) {
		t.Error("the Job after the removal is for another image")
	}
	if !strings.HasSuffix(at(t, release, "metadata", "name").(string), image[strings.LastIndex(image, ":")+1:]) {
		t.Error("the release is named by another hash than its image")
	}
}

func TestWorkerReleaseIsNamedByItsContent(t *testing.T) {
	name := func(replace ...string) string {
		spec := strings.NewReplacer(replace...).Replace("{" + workerTemplate + "}")
		return at(t, only(t, renderServed(t, "worker-deployment", "acme.hello", spec), "WorkerRelease/"), "metadata",
			"name").(string)
	}
	if name("8081", "8090") != name() {
		t.Error("another port is another release")
	}
	if name("add.wasm", "sub.wasm") == name() {
		t.Error("another script is the same release")
	}
}

func TestWorkerBundle(t *testing.T) {
	const hello = `{workerName: hello, workerNumber: 8081, envPrefix: WASM_WORKER_, image: "r/acme/hello:1"}`
	const sum = `{workerName: add, workerNumber: 8080, envPrefix: "", secretRef: {name: s}, image: "r/acme/add:1",
 compatibilityDate: "2026-01-02"}`
	render := func(workers string) map[string]map[string]any {
		return renderServed(t, "worker-bundle", "acme", "{deploymentName: web, workers: ["+workers+`],
 podTemplate: {imagePullSecret: login}, ingress: {host: acme.example.com}}`)
	}
	objects := render(hello + "," + sum)
	build, run := only(t, objects, "Job/acme-build-"), objects["Deployment/web"]
	image := at(t, run, "spec", "template", "spec", "containers", 0, "image").(string)
	for _, want := range []string{"--image=" + image, "--worker=hello=r/acme/hello:1", "--worker=add=r/acme/add:1"} {
		if args := arguments(t, build); !slices.Contains(args, want) {
			t.Errorf("%s is not in %v", want, args)
		}
	}
	var workers []map[string]any
	args := arguments(t, run)
	if err := json.Unmarshal([]byte(strings.TrimPrefix(args[0], "--workers=")), &workers); err != nil {
		t.Fatal(args, err)
	}
	if len(workers) != 2 || workers[0]["name"] != "add" || workers[0]["secret"] != true ||
		workers[1]["port"] != float64(8081) || workers[1]["envPrefix"] != "WASM_WORKER_" {
		t.Errorf("workers %v", workers)
	}
	pod := at(t, run, "spec", "template", "spec")
	if at(t, pod, "volumes", 1, "secret", "secretName") != "s" ||
		at(t, pod, "containers", 0, "volumeMounts", 1, "mountPath") != "/secrets/add" ||
		at(t, pod, "imagePullSecrets", 0, "name") != "login" {
		t.Errorf("the Pod is %v", pod)
	}
	if at(t, objects["Service/web"], "spec", "ports", 1, "port") != float64(8081) ||
		at(t, objects["Ingress/web"], "spec", "rules", 0, "http", "paths", 1, "path") != "/hello" {
		t.Errorf("the Service or the Ingress lacks a worker: %v", objects)
	}
	tag := image[strings.LastIndex(image, ":")+1:]
	if !slices.Contains(arguments(t, only(t, objects, "Job/acme-purge-")), "--keep="+tag) {
		t.Error("the image that runs is purged")
	}

	same := render(sum + "," + strings.Replace(hello, "8081", "8082", 1))
	if at(t, only(t, same, "Job/acme-build-"), "metadata", "name") != at(t, build, "metadata", "name") {
		t.Error("another order or port is another build")
	}
	if other := render(strings.Replace(hello, "hello:1", "hello:2", 1) + "," + sum); at(t, other["Deployment/web"],
		"spec", "template", "spec", "containers", 0, "image") == image {
		t.Error("another script has the same image")
	}
	if empty := render(""); len(empty) != 1 || only(t, empty, "Job/acme-remove-") == nil {
		t.Errorf("without workers there are %d objects", len(empty))
	}
}

// Job names are labels of Pods, which have at most 63 characters.
func TestLongNamesOfWorkers(t *testing.T) {
	account, script := "a"+strings.Repeat("b", 29), "s"+strings.Repeat("t", 62)
	release := renderOfAccount(t, account, "worker-release", "r",
		`{scriptName: `+script+`, scriptUrls: ["https://files.example.com/index.mjs"]}`)
	bundle := renderOfAccount(t, account, "worker-bundle", account, `{deploymentName: `+account+`, workers: [
 {workerName: `+script+`, workerNumber: 65535, envPrefix: "", image: "r/a/s:1", secretRef: {name: a.b}}]}`)
	for _, objects := range []map[string]map[string]any{release, bundle} {
		for id := range objects {
			if _, name, _ := strings.Cut(id, "/"); len(name) > 63 {
				t.Errorf("%s has %d characters", id, len(name))
			}
		}
	}
	if len(release) != 2 || len(bundle) != 5 {
		t.Errorf("%d and %d objects", len(release), len(bundle))
	}
}

func TestWorkerAccountMakesTheBundle(t *testing.T) {
	objects := renderServed(t, "worker-account", "acme", `{podTemplate: {image: "runtime:1"}, ingress: {host: h}}`)
	bundle := objects["WorkerBundle/acme"]
	if at(t, bundle, "spec", "deploymentName") != "acme" ||
		at(t, bundle, "spec", "podTemplate", "image") != "runtime:1" ||
		at(t, bundle, "spec", "ingress", "host") != "h" || at(t, bundle, "spec", "workers") != nil {
		t.Errorf("the bundle is %v", bundle)
	}
	renderServed(t, "worker-account", "acme", "{}")
}
