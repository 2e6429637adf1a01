package engine

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

func hookObject(kind, group string, hook *stacks.Hook) stacks.Object {
	return stacks.Object{Ref: stacks.Ref{Group: group, Kind: kind, Name: "x"}, Hook: hook}
}

func pre(weight int) *stacks.Hook  { return &stacks.Hook{Phase: stacks.HookPre, Weight: weight} }
func post(weight int) *stacks.Hook { return &stacks.Hook{Phase: stacks.HookPost, Weight: weight} }

func TestSteps(t *testing.T) {
	const crds = "apiextensions.k8s.io"
	for name, tc := range map[string]struct {
		objects []stacks.Object
		want    []int
	}{
		"main objects": {[]stacks.Object{hookObject("ConfigMap", "", nil),
			hookObject("Deployment", "apps", nil)}, []int{3, 3}},
		"Namespace and CRD": {[]stacks.Object{hookObject("Namespace", "", nil),
			hookObject("CustomResourceDefinition", crds, nil), hookObject("Thing", "g.io", nil)}, []int{0, 2, 3}},
		"same kinds, other group": {[]stacks.Object{hookObject("Namespace", "g.io", nil),
			hookObject("CustomResourceDefinition", "g.io", nil)}, []int{3, 3}},
		"hooks by weight": {[]stacks.Object{hookObject("Job", "batch", pre(-5)),
			hookObject("Job", "batch", pre(10)), hookObject("ConfigMap", "", nil), hookObject("Job", "batch", post(3))},
			[]int{3, 4, 5, 6}},
		"single large weight": {[]stacks.Object{hookObject("Job", "batch", pre(1000)),
			hookObject("ConfigMap", "", nil)}, []int{3, 4}},
		"hooks of same weight": {[]stacks.Object{hookObject("Job", "batch", pre(0)),
			hookObject("Secret", "", pre(0)), hookObject("ConfigMap", "", nil)}, []int{3, 3, 4}},
		"same weight, two phases": {[]stacks.Object{hookObject("Job", "batch", pre(1)),
			hookObject("ConfigMap", "", nil), hookObject("Job", "batch", post(1)), hookObject("Job", "batch", post(2))},
			[]int{3, 4, 5, 6}},
		"Namespace and CRD hooks": {[]stacks.Object{hookObject("Namespace", "", nil),
			hookObject("Namespace", "", pre(0)), hookObject("CustomResourceDefinition", crds, post(0)),
			hookObject("ConfigMap", "", nil)},
			[]int{0, 3, 5, 4}},
		"only hooks": {[]stacks.Object{hookObject("Job", "batch", post(2)), hookObject("Job", "batch", post(1))},
			[]int{5, 4}},
		"generated values": {[]stacks.Object{hookObject("Namespace", "", nil),
			{Ref: stacks.Ref{Kind: "Secret"}, Generated: true}, hookObject("CustomResourceDefinition", crds, nil),
			hookObject("Job", "batch", pre(0))}, []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			step := steps(tc.objects)
			var got []int
			for i := range tc.objects {
				got = append(got, step(&tc.objects[i]))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			// Independent of the order of the objects.
			mixed := slices.Clone(tc.objects)
			rand.New(rand.NewSource(1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			step = steps(mixed)
			for i := range tc.objects {
				if s := step(&tc.objects[i]); s != tc.want[i] {
					t.Errorf("object %d has step %d in another order", i, s)
				}
			}
		})
	}
}
