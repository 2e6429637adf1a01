package engine

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

func object1(kind, group string, hook *stacks.Hook) stacks.Object {
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
		"nothing special":         {[]stacks.Object{object1("ConfigMap", "", nil), object1("Deployment", "apps", nil)}, []int{2, 2}},
		"what gates":              {[]stacks.Object{object1("Namespace", "", nil), object1("CustomResourceDefinition", crds, nil), object1("Thing", "g.io", nil)}, []int{0, 1, 2}},
		"kinds that sound alike":  {[]stacks.Object{object1("Namespace", "g.io", nil), object1("CustomResourceDefinition", "g.io", nil)}, []int{2, 2}},
		"hooks by weight":         {[]stacks.Object{object1("Job", "batch", pre(-5)), object1("Job", "batch", pre(10)), object1("ConfigMap", "", nil), object1("Job", "batch", post(3))}, []int{2, 3, 4, 5}},
		"weights are not ranks":   {[]stacks.Object{object1("Job", "batch", pre(1000)), object1("ConfigMap", "", nil)}, []int{2, 3}},
		"hooks of one weight":     {[]stacks.Object{object1("Job", "batch", pre(0)), object1("Secret", "", pre(0)), object1("ConfigMap", "", nil)}, []int{2, 2, 3}},
		"a weight in both phases": {[]stacks.Object{object1("Job", "batch", pre(1)), object1("ConfigMap", "", nil), object1("Job", "batch", post(1)), object1("Job", "batch", post(2))}, []int{2, 3, 4, 5}},
		"hooks of kinds that gate": {[]stacks.Object{object1("Namespace", "", nil), object1("Namespace", "", pre(0)), object1("CustomResourceDefinition", crds, post(0)), object1("ConfigMap", "", nil)},
			[]int{0, 2, 4, 3}},
		"only hooks": {[]stacks.Object{object1("Job", "batch", post(2)), object1("Job", "batch", post(1))}, []int{4, 3}},
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
			// Whatever the order in which they are asked for.
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
