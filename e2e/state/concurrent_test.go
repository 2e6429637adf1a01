package state_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/stacks/state"
)

// beside is what ksctl keeps in the store that no import has.
const beside = "aws.ha.beside.us-east-1"

// rival is ksctl as it writes to the state that an import brings, and to one of its own. With each
// odd write it changes the import's, which may not be written over then: that another write is
// there instead is an update lost. With each even one it puts that back, so that the import goes on.
type rival struct {
	ns string
	// published is the revision that the source has, or is about to have.
	published atomic.Int64
	// writes it has done, and how often somebody else was first.
	writes, conflicts int
	// revision that it found last, and how many it found.
	revision int64
	found    int
}

// write reads everything, and writes everything back, until nobody else is first.
func (r *rival) write(ctx context.Context) error {
	for {
		var cm corev1.ConfigMap
		if err := h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: r.ns, Name: state.StoreConfigMap}, &cm); err != nil {
			return err
		}
		if err := r.check(cm.BinaryData); err != nil {
			return fmt.Errorf("after %d writes: %w", r.writes, err)
		}
		next := r.writes + 1
		cm.BinaryData[beside], cm.BinaryData[keyOf("demo")] = []byte(besideOf(next)), []byte(r.demo(next))
		err := h.Plane.Client().Update(ctx, &cm)
		if err == nil {
			r.writes = next
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		r.conflicts++
	}
}

// demo is the import's state as a write leaves it.
func (r *rival) demo(write int) string {
	if write%2 == 1 {
		return document("demo", fmt.Sprintf("write %d", write))
	}
	return document("demo", fmt.Sprintf("revision %d", r.revision))
}

func besideOf(write int) string { return fmt.Sprintf(`{"write":%d}`, write) }

// check that the store has what was written last: by this one, or after an even write by the
// import, of a revision that there is by now.
func (r *rival) check(data map[string][]byte) error {
	if got := string(data[beside]); r.writes > 0 && got != besideOf(r.writes) {
		return fmt.Errorf("%s is lost: there is %s", besideOf(r.writes), got)
	}
	var demo struct{ Words string }
	if err := json.Unmarshal(data[keyOf("demo")], &demo); err != nil {
		return err
	}
	if r.writes%2 == 1 {
		if want := fmt.Sprintf("write %d", r.writes); demo.Words != want {
			return fmt.Errorf("%q is lost: there is %q", want, demo.Words)
		}
		return nil
	}
	var revision int64
	if _, err := fmt.Sscanf(demo.Words, "revision %d", &revision); err != nil || revision < r.revision || revision > r.published.Load() {
		return fmt.Errorf("revision %d is lost: there is %q, and the source has revision %d", r.revision, demo.Words, r.published.Load())
	}
	if revision > r.revision {
		r.found++
	}
	r.revision = revision
	return nil
}

// pause lets the import write now and then, and be about to write more often.
func (r *rival) pause() {
	most := 10 * time.Millisecond
	if r.writes%2 == 0 {
		most = 60 * time.Millisecond
	}
	time.Sleep(rand.N(most))
}

var _ = Describe("An ImportState beside ksctl", func() {
	It("loses no update, and has none of its own lost", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:0", map[string]string{"clusters/a.json": document("demo", "revision 0")})
		in := imported(ns)
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		const writes = 1000
		r, done, began := &rival{ns: ns}, make(chan error, 1), time.Now()
		go func() {
			var err error
			for r.writes < writes && err == nil {
				err = r.write(ctx)
				r.pause()
			}
			done <- err
		}()
		ended, failure := false, error(nil)
		Eventually(ctx, func() bool {
			revision := r.published.Add(1)
			publish(ctx, ns, fmt.Sprintf("main@sha1:%d", revision), map[string]string{"clusters/a.json": document("demo", fmt.Sprintf("revision %d", revision))})
			select {
			case failure = <-done:
				ended = true
			default:
			}
			return ended
		}, 12*time.Minute, 50*time.Millisecond).Should(BeTrue())
		Expect(failure).NotTo(HaveOccurred())
		AddReportEntry(fmt.Sprintf("%d writes of ksctl took", writes), time.Since(began).String())
		AddReportEntry("commits meanwhile, those that ksctl found in the store, and its conflicts", fmt.Sprint(r.published.Load(), " ", r.found, " ", r.conflicts))
		Expect(r.found).To(BeNumerically(">", writes/50), "else there was nobody to write beside")
		Eventually(ctx, func() map[string]string { return stored(ctx, ns) }, soon).Should(And(
			HaveKeyWithValue(beside, besideOf(writes)),
			HaveKeyWithValue(keyOf("demo"), ContainSubstring(fmt.Sprintf(`"revision %d"`, r.published.Load())))))
	}, SpecTimeout(15*time.Minute))
})
