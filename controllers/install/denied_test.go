package install

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestPermissionChangeEnqueuesDeniedInstalls(t *testing.T) {
	a, b, c := key("a"), key("b"), key("c")
	now := time.Unix(0, 0)
	newSet := func() *deniedInstalls {
		d := &deniedInstalls{}
		d.record(a, []string{"ns"}, d.count())
		d.record(b, []string{"other", ""}, 0)
		d.record(c, []string{"ns"}, 0)
		d.record(c, nil, 0) // succeeded since
		return d
	}
	for name, tc := range map[string]struct {
		namespace string
		want      []types.NamespacedName
	}{
		"in a namespace":         {"ns", []types.NamespacedName{a}},
		"in another namespace":   {"other", []types.NamespacedName{b}},
		"where nobody is denied": {"third", nil},
		"in the whole cluster":   {"", []types.NamespacedName{a, b}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newSet()
			got := d.change(tc.namespace, now)
			if len(got) != len(tc.want) {
				t.Fatalf("enqueued %v, want %v", got, tc.want)
			}
			for _, install := range tc.want {
				if delay, ok := got[install]; !ok || delay != authorizerDelay {
					t.Errorf("%s is enqueued after %s: %v", install, delay, ok)
				}
				if !d.consumeChange(install) || d.consumeChange(install) {
					t.Errorf("%s does not retry exactly once", install)
				}
			}
		})
	}
}

// A controller that changes roles continuously causes one reconcile a second.
func TestPermissionChangesEnqueueOnceASecond(t *testing.T) {
	d, a := &deniedInstalls{}, key("a")
	d.record(a, []string{"ns"}, d.count())
	now := time.Unix(0, 0)
	reconciles, due := 0, time.Time{}
	for range 100 { // 10 s
		now = now.Add(100 * time.Millisecond)
		if delay, ok := d.change("", now)[a]; ok {
			due = now.Add(delay)
		}
		if !due.IsZero() && !now.Before(due) {
			reconciles, due = reconciles+1, time.Time{}
			d.consumeChange(a)
			d.record(a, []string{"ns"}, d.count()) // still denied
		}
	}
	if reconciles < 9 || reconciles > 10 {
		t.Errorf("%d reconciles in 10 s", reconciles)
	}
}
