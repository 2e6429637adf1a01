package kind

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

var rolloutStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The words of an object in a test:
//
//	r1, r2, r3   its revision: that of the digest d1, d2, d3; none for a new object
//	applied      it has applied its revision
//	was-ready    it was Ready when the revision was released to it
//	failing      Ready is False for its revision
//	earlier      Ready is False for an earlier revision
//	old          its revision was released longer ago than the timeout
//	first        it has its revision since it was created
//	released, excluded
func rolloutObjectOf(name, words string) rolloutObject {
	o := rolloutObject{uid: types.UID(name), key: types.NamespacedName{Namespace: "a", Name: name},
		ready: metav1.ConditionUnknown}
	for _, part := range strings.Fields(words) {
		switch part {
		case "r1", "r2", "r3":
			o.taken = &appsv1.TakenArtifact{Revision: part, Digest: "d" + part[1:],
				Since: &metav1.Time{Time: rolloutStart}}
		case "applied":
			o.applied, o.attempted, o.ready = o.taken.Revision, o.taken.Revision, metav1.ConditionTrue
		case "was-ready":
			o.taken.WasReady = true
		case "failing":
			o.ready, o.attempted = metav1.ConditionFalse, o.taken.Revision
		case "earlier":
			o.ready, o.attempted = metav1.ConditionFalse, "r0"
		case "old":
			o.taken.Since = &metav1.Time{Time: rolloutStart.Add(-time.Hour)}
		case "first":
			o.taken.Since = nil
		case "released":
			o.released = true
		case "excluded":
			o.excluded = true
		default:
			panic(part)
		}
	}
	return o
}

func TestPlanRollout(t *testing.T) {
	for name, c := range map[string]struct {
		objects                            []string // a, b, c, …
		max                                int
		goesOn                             bool
		release, updating, waiting, failed string
	}{
		"nothing": {max: 2},
		"the first in the order of names": {objects: []string{"r1 applied", "r1 applied", "r1 applied"}, max: 2,
			release: "a b", updating: "a b", waiting: "c"},
		"an object that has the revision frees its place": {
			objects: []string{"r2 applied", "r2", "r1 applied", "r1 applied"}, max: 2,
			release: "c", updating: "b c", waiting: "d"},
		"a released object has its place before its status has the revision": {
			objects: []string{"r1 applied released", "r1 applied"}, max: 1, updating: "a", waiting: "b"},
		"complete": {objects: []string{"r2 applied", "r2 applied"}, max: 1},
		"an object that was Ready stops the rollout": {
			objects: []string{"r2 was-ready failing", "r1 applied"}, max: 2, waiting: "b", failed: "a"},
		"unless it goes on": {objects: []string{"r2 was-ready failing", "r1 applied"}, max: 1, goesOn: true,
			release: "b", updating: "b", failed: "a"},
		"an object that was not Ready does not stop it": {objects: []string{"r2 failing", "r1 applied"}, max: 1,
			release: "b", updating: "b"},
		"a failure of an earlier revision is none": {objects: []string{"r2 was-ready earlier", "r1 applied"}, max: 1,
			updating: "a", waiting: "b"},
		"a timeout is a failure": {objects: []string{"r2 was-ready old", "r1 applied"}, max: 1, waiting: "b",
			failed: "a"},
		"a timeout frees the place of an object that was not Ready": {objects: []string{"r2 old", "r1 applied"}, max: 1,
			release: "b", updating: "b"},
		"later failures are not those of the rollout": {
			objects: []string{"r2 was-ready applied failing", "r1 applied"}, max: 1, release: "b", updating: "b"},
		"an object with the previous revision has a place": {objects: []string{"r1", "r1 applied"}, max: 1,
			waiting: "a b"},
		"what the previous revision broke comes first": {
			objects: []string{"r1 applied", "r1 was-ready failing"}, max: 1, release: "b", updating: "b", waiting: "a"},
		"a new object waits for nothing": {objects: []string{"r2 first failing", "r1 first", ""}, max: 5, release: "b",
			updating: "b"},
		"excluded objects": {objects: []string{"r1 applied excluded", "r1 excluded released", "r1 applied"}, max: 1,
			release: "c", updating: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []rolloutObject
			for i, words := range c.objects {
				objects = append(objects, rolloutObjectOf(string(rune('a'+i)), words))
			}
			r := planRollout(objects, rolloutOptions{digest: "d2", maxConcurrent: c.max, stopOnFailure: !c.goesOn,
				timeout: time.Minute, now: rolloutStart.Add(time.Second)})
			var release []string
			for _, o := range r.release {
				release = append(release, o.key.Name)
			}
			for what, got := range map[string][2]string{
				"release": {strings.Join(release, " "), c.release}, "updating": {namesIn(r.updating), c.updating},
				"waiting": {namesIn(r.waiting), c.waiting}, "failed": {namesIn(r.failed), c.failed}} {
				if got[0] != got[1] {
					t.Errorf("%s: got %q, want %q", what, got[0], got[1])
				}
			}
			if r.complete() != (c.updating == "" && c.waiting == "") {
				t.Error("complete is wrong")
			}
		})
	}
}

// namesIn returns sorted names without their namespace.
func namesIn(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return strings.ReplaceAll(strings.Join(names, " "), "a/", "")
}

// With the timeout, an object that never becomes Ready is found without an event.
func TestPlanRolloutNext(t *testing.T) {
	r := planRollout([]rolloutObject{rolloutObjectOf("a", "r2 was-ready"), rolloutObjectOf("b", "r2 applied")},
		rolloutOptions{digest: "d2", maxConcurrent: 1, timeout: time.Minute, now: rolloutStart})
	if want := rolloutStart.Add(time.Minute); !r.next.Equal(want) {
		t.Errorf("next is %s, want %s", r.next, want)
	}
	if got, want := r.summary(2), "1 of 2 objects are updated; 1 updating: a/a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Releases belong to one revision; a suspended object has to be released again.
func TestReleases(t *testing.T) {
	var r releases
	if r.setSuspended("a", true) {
		t.Error("suspended without a rollout")
	}
	r.start("d1")
	r.release("a")
	r.release("gone")
	r.start("d1")
	if !r.isReleased("d1", "a") || r.isReleased("d2", "a") || r.isReleased("d1", "b") {
		t.Error("the releases are wrong")
	}
	objects := []Object{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}, {ObjectMeta: metav1.ObjectMeta{UID: "b"}}}
	got := r.rolloutObjects(objects)
	if !got[0].released || got[1].released || r.isReleased("d1", "gone") {
		t.Errorf("got %+v", got)
	}
	if !r.setSuspended("a", true) || r.setSuspended("a", true) || r.isReleased("d1", "a") {
		t.Error("a suspended object is released")
	}
	if got := r.rolloutObjects(objects); !got[0].excluded || got[1].excluded {
		t.Errorf("got %+v", got)
	}
	if !r.setSuspended("a", false) || r.setSuspended("a", false) {
		t.Error("suspended is not reset")
	}
	r.start("d2")
	if r.isReleased("d2", "a") {
		t.Error("a release of the previous revision")
	}
}
