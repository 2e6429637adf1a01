package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ksctl/gitops/e2e/chaos/check"
)

const (
	namespaceCount  = 3
	repositoryCount = 3
)

// world is the desired state of a run. It changes with the commits of the run, and knows the
// objects that the cluster has to have, without a render.
type world struct {
	random   *rand.Rand
	prefix   string
	installs []*install
	// owners has the install of each object.
	owners map[check.Object]*install
	next   int // number of the next object
}

// install is the desired state of a KsctlInstall and its stack.
type install struct {
	name       string
	namespace  string
	repository int
	// objects has the value of each object; late are those of the second component.
	objects map[check.Object]string
	late    map[check.Object]bool
	// dependsOn are installs with a smaller number, so that there is no cycle.
	dependsOn []*install
	// broken is true while its stack does not render, deleted while there is no KsctlInstall, and
	// suspended while it is suspended.
	broken, deleted, suspended bool
}

// newWorld returns a world with n installs.
func newWorld(random *rand.Rand, prefix string, n int) *world {
	w := &world{random: random, prefix: prefix, owners: map[check.Object]*install{}}
	for i := range n {
		in := &install{name: fmt.Sprintf("i%02d", i), namespace: w.namespace(i % namespaceCount),
			repository: i / namespaceCount % repositoryCount,
			objects:    map[check.Object]string{}, late: map[check.Object]bool{}}
		w.installs = append(w.installs, in)
		w.assign(check.Object{Kind: "ConfigMap", Namespace: in.namespace, Name: anchorPrefix + in.name}, in, w.value())
		for range 3 + random.IntN(4) {
			w.addObject(in)
		}
		if i > 0 && random.IntN(3) == 0 {
			in.dependsOn = append(in.dependsOn, w.installs[random.IntN(i)])
		}
	}
	return w
}

func (w *world) namespace(i int) string { return fmt.Sprintf("%s-n%d", w.prefix, i) }

func (w *world) namespaces() (out []string) {
	for i := range namespaceCount {
		out = append(out, w.namespace(i))
	}
	return out
}

// addObject adds a new object to an install.
func (w *world) addObject(in *install) {
	kinds := []string{"ConfigMap", "ConfigMap", "ConfigMap", "Service", "Role", "ClusterRole"}
	o := check.Object{Kind: kinds[w.random.IntN(len(kinds))], Namespace: in.namespace,
		Name: fmt.Sprintf("o%04d", w.next)}
	if o.Kind == "ClusterRole" {
		o.Namespace, o.Name = "", w.prefix+"-"+o.Name
	}
	w.next++
	w.assign(o, in, w.value())
}

func (w *world) value() string { return fmt.Sprintf("v%d", w.random.IntN(1_000_000)) }

// assign makes an object one of an install, with a value. A nil install removes it.
func (w *world) assign(o check.Object, in *install, value string) {
	if before := w.owners[o]; before != nil {
		delete(before.objects, o)
		delete(before.late, o)
	}
	delete(w.owners, o)
	if in != nil {
		w.owners[o] = in
		in.objects[o] = value
		if w.random.IntN(4) == 0 && !isAnchor(o) {
			in.late[o] = true
		}
	}
}

// sorted returns the objects of an install in a fixed order, so that a seed repeats a run.
func (in *install) sorted() []check.Object {
	return slices.SortedFunc(maps.Keys(in.objects), func(a, b check.Object) int {
		return strings.Compare(a.String(), b.String())
	})
}

// Each install keeps one object, its anchor: a stack that renders no objects is refused.
const anchorPrefix = "anchor-"

func isAnchor(o check.Object) bool { return strings.HasPrefix(o.Name, anchorPrefix) }

// pick returns a random object of an install, but not its anchor.
func (w *world) pick(in *install) (check.Object, bool) {
	all := slices.DeleteFunc(in.sorted(), isAnchor)
	if len(all) == 0 {
		return check.Object{}, false
	}
	return all[w.random.IntN(len(all))], true
}

// expected returns the objects and installs of the cluster. heads are the commits of the
// repositories.
func (w *world) expected(heads []string) check.Expected {
	out := check.Expected{Namespaces: w.namespaces(), Installs: map[string]string{}}
	for _, in := range w.installs {
		if in.deleted {
			continue
		}
		out.Installs[in.namespace+"/"+in.name] = heads[in.repository]
		for _, o := range in.sorted() {
			o.Value = in.objects[o]
			out.Objects = append(out.Objects, o)
		}
	}
	return out
}

// files returns the files of the stack of an install.
func (in *install) files() map[string]string {
	dir := "stacks/" + in.name + "/"
	out := map[string]string{}
	var main, late strings.Builder
	for _, o := range in.sorted() {
		to := &main
		if in.late[o] {
			to = &late
		}
		to.WriteString(manifest(o, in.objects[o]))
	}
	components := "  - {name: main, manifests: [main.yaml]}\n"
	out[dir+"main.yaml"] = main.String()
	if late.Len() > 0 {
		components += "  - {name: late, dependsOn: [main], manifests: [late.yaml]}\n"
		out[dir+"late.yaml"] = late.String()
	}
	if in.broken {
		out[dir+"main.yaml"] = "kind: broken\n"
	}
	out[dir+"stack.yaml"] = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: " + in.name +
		"}\nspec:\n  version: 1.0.0\n  components:\n" + components
	return out
}

// manifest returns a document with an object.
func manifest(o check.Object, value string) string {
	head := fmt.Sprintf("---\nkind: %s\n", o.Kind)
	metadata := fmt.Sprintf("metadata:\n  name: %s\n", o.Name)
	if o.Namespace != "" {
		metadata += "  namespace: " + o.Namespace + "\n"
	}
	switch o.Kind {
	case "ConfigMap":
		return head + "apiVersion: v1\n" + metadata + "data: {value: " + value + "}\n"
	case "Service":
		return head + "apiVersion: v1\n" + metadata + "spec: {selector: {value: " + value + "}, ports: [{port: 80}]}\n"
	default:
		return head + "apiVersion: rbac.authorization.k8s.io/v1\n" + metadata + "  annotations: {value: " + value +
			"}\nrules: []\n"
	}
}
