package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// history records all versions of an object.
type history struct {
	mu sync.Mutex
	// statuses are the kstatus results, without consecutive duplicates.
	statuses []status.Status
	// mismatches describe versions whose kstatus result differs from their conditions.
	mismatches []string
	versions   []string // status and conditions of each version
}

// recordHistory starts recording an object. The caller creates the object afterwards.
func recordHistory(ctx context.Context, o client.Object) *history {
	GinkgoHelper()
	gvk, err := apiutil.GVKForObject(o, h.ControlPlane.Client().Scheme())
	Expect(err).NotTo(HaveOccurred())
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w, err := h.ControlPlane.Client().Watch(ctx, list, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{"metadata.name": o.GetName()})
	Expect(err).NotTo(HaveOccurred())
	l := &history{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			l.add(e)
		}
	}()
	DeferCleanup(func() {
		w.Stop()
		<-done
		AddReportEntry(gvk.Kind, strings.Join(l.versions, "\n"))
	})
	return l
}

func (l *history) add(e watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		l.mismatches = append(l.mismatches, fmt.Sprintf("watch failed: %s %v", e.Type, e.Object))
		return
	}
	got := gone
	if e.Type != watch.Deleted {
		got = computeStatus(u)
		if want := expectedStatus(u); got != want {
			l.mismatches = append(l.mismatches,
				fmt.Sprintf("kstatus %s, expected %s: %v", got, want, u.Object["status"]))
		}
	}
	l.versions = append(l.versions, fmt.Sprint(got, " ", conditions(u)))
	if len(l.statuses) == 0 || l.statuses[len(l.statuses)-1] != got {
		l.statuses = append(l.statuses, got)
	}
}

func computeStatus(u *unstructured.Unstructured) status.Status {
	res, err := status.Compute(u)
	if err != nil {
		return status.Status(err.Error())
	}
	return res.Status
}

// expectedStatus derives the kstatus result of a version from its conditions.
func expectedStatus(u *unstructured.Unstructured) status.Status {
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	have := conditions(u)
	switch {
	case u.GetDeletionTimestamp() != nil:
		return terminating
	case observed != u.GetGeneration():
		return inProgress
	case have["Stalled"] == metav1.ConditionTrue:
		return failed
	case have["Ready"] == metav1.ConditionTrue && have["Reconciling"] == "":
		return current
	}
	return inProgress
}

func conditions(u *unstructured.Unstructured) map[string]metav1.ConditionStatus {
	out := map[string]metav1.ConditionStatus{}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			out[fmt.Sprint(c["type"])] = metav1.ConditionStatus(fmt.Sprint(c["status"]))
		}
	}
	return out
}

// awaitStatus waits until the last version has a kstatus result.
func (l *history) awaitStatus(ctx context.Context, want status.Status) {
	GinkgoHelper()
	Eventually(ctx, func() status.Status {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.statuses) == 0 {
			return ""
		}
		return l.statuses[len(l.statuses)-1]
	}, waitTimeout).Should(Equal(want))
}

// expectStatuses compares all recorded statuses with the expected ones. It ignores an additional
// InProgress before an expected status, because a controller may report progress before the result.
func (l *history) expectStatuses(want ...status.Status) {
	GinkgoHelper()
	l.mu.Lock()
	defer l.mu.Unlock()
	Expect(l.mismatches).To(BeEmpty())
	got := make([]status.Status, 0, len(l.statuses))
	for i, s := range l.statuses {
		if next := len(got); s == inProgress && next < len(want) && want[next] != inProgress && i > 0 {
			continue
		}
		if len(got) > 0 && got[len(got)-1] == s {
			continue // the statuses in between were skipped
		}
		got = append(got, s)
	}
	Expect(got).To(Equal(want), strings.Join(l.versions, "\n"))
}
