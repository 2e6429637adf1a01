package lives_test

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

// life is what an object was, version by version.
type life struct {
	mu sync.Mutex
	// told are kstatus' words; one that repeats the one before is left out.
	told []status.Status
	// wrong are versions that kstatus judges other than their conditions say.
	wrong []string
	all   []string
}

// record begins a life before its object is made.
func record(ctx context.Context, o client.Object) *life {
	GinkgoHelper()
	gvk, err := apiutil.GVKForObject(o, h.Plane.Client().Scheme())
	Expect(err).NotTo(HaveOccurred())
	c, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: h.Plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w, err := c.Watch(ctx, list, client.InNamespace(o.GetNamespace()), client.MatchingFields{"metadata.name": o.GetName()})
	Expect(err).NotTo(HaveOccurred())
	l := &life{}
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
		AddReportEntry(gvk.Kind, strings.Join(l.all, "\n"))
	})
	return l
}

func (l *life) add(e watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		l.wrong = append(l.wrong, fmt.Sprintf("the watch ended: %s %v", e.Type, e.Object))
		return
	}
	word := gone
	if e.Type != watch.Deleted {
		word = judge(u)
		if should := is(u); word != should {
			l.wrong = append(l.wrong, fmt.Sprintf("%s, and not %s: %v", word, should, u.Object["status"]))
		}
	}
	l.all = append(l.all, fmt.Sprint(word, " ", conditions(u)))
	if len(l.told) == 0 || l.told[len(l.told)-1] != word {
		l.told = append(l.told, word)
	}
}

func judge(u *unstructured.Unstructured) status.Status {
	res, err := status.Compute(u)
	if err != nil {
		return status.Status(err.Error())
	}
	return res.Status
}

// is what a reader of the conditions would say of a version.
func is(u *unstructured.Unstructured) status.Status {
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

// reaches waits until the last version is judged so.
func (l *life) reaches(ctx context.Context, word status.Status) {
	GinkgoHelper()
	Eventually(ctx, func() status.Status {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.told) == 0 {
			return ""
		}
		return l.told[len(l.told)-1]
	}, soon).Should(Equal(word))
}

// was holds a whole life against what happened. A controller may say that it is at work
// before it says what came of it.
func (l *life) was(words ...status.Status) {
	GinkgoHelper()
	l.mu.Lock()
	defer l.mu.Unlock()
	Expect(l.wrong).To(BeEmpty())
	told := make([]status.Status, 0, len(l.told))
	for i, word := range l.told {
		if next := len(told); word == inProgress && next < len(words) && words[next] != inProgress && i > 0 {
			continue
		}
		if len(told) > 0 && told[len(told)-1] == word {
			continue // what stood between was left out
		}
		told = append(told, word)
	}
	Expect(told).To(Equal(words), strings.Join(l.all, "\n"))
}
