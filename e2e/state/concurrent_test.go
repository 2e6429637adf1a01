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

// otherKey is the key of a state in the store that no import has.
const otherKey = "aws.ha.beside.us-east-1"

// concurrentKsctl writes to the store like ksctl: to the state of an import, and to a state of
// its own. Each odd write changes the state of the import, which must not overwrite it then:
// another value is a lost update. Each even write reverts that change, so that the import can
// continue.
type concurrentKsctl struct {
	ns string
	// published is the revision that the source has, or is about to have.
	published atomic.Int64
	// writes and conflicts are the numbers of successful writes and of conflicts.
	writes, conflicts int
	// revision is the last revision in the store. found is how many revisions were found there.
	revision int64
	found    int
}

// write reads the store and writes all of it back, and retries conflicts.
func (r *concurrentKsctl) write(ctx context.Context) error {
	for {
		var cm corev1.ConfigMap
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: r.ns, Name: state.StoreConfigMap},
			&cm); err != nil {
			return err
		}
		if err := r.check(cm.BinaryData); err != nil {
			return fmt.Errorf("after %d writes: %w", r.writes, err)
		}
		next := r.writes + 1
		cm.BinaryData[otherKey], cm.BinaryData[keyOf("demo")] = []byte(otherDocument(next)),
			[]byte(r.demoDocument(next))
		err := h.ControlPlane.Client().Update(ctx, &cm)
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

// demoDocument returns the state of the import after a write.
func (r *concurrentKsctl) demoDocument(write int) string {
	if write%2 == 1 {
		return document("demo", fmt.Sprintf("write %d", write))
	}
	return document("demo", fmt.Sprintf("revision %d", r.revision))
}

func otherDocument(write int) string { return fmt.Sprintf(`{"write":%d}`, write) }

// check verifies that the store has the last write: its own, or after an even write that of the
// import, of a revision that the source has had.
func (r *concurrentKsctl) check(data map[string][]byte) error {
	if got := string(data[otherKey]); r.writes > 0 && got != otherDocument(r.writes) {
		return fmt.Errorf("%s is lost: found %s", otherDocument(r.writes), got)
	}
	var demo struct{ Words string }
	if err := json.Unmarshal(data[keyOf("demo")], &demo); err != nil {
		return err
	}
	if r.writes%2 == 1 {
		if want := fmt.Sprintf("write %d", r.writes); demo.Words != want {
			return fmt.Errorf("%q is lost: found %q", want, demo.Words)
		}
		return nil
	}
	var revision int64
	if _, err := fmt.Sscanf(demo.Words, "revision %d", &revision); err != nil || revision < r.revision ||
		revision > r.published.Load() {
		return fmt.Errorf("revision %d is lost: found %q, and the source has revision %d", r.revision, demo.Words,
			r.published.Load())
	}
	if revision > r.revision {
		r.found++
	}
	r.revision = revision
	return nil
}

// pause waits longer after even writes, so that the import can write, and shortly after odd
// writes, so that both often write at the same time.
func (r *concurrentKsctl) pause() {
	limit := 10 * time.Millisecond
	if r.writes%2 == 0 {
		limit = 60 * time.Millisecond
	}
	time.Sleep(rand.N(limit))
}

var _ = Describe("An ImportState concurrent with ksctl", func() {
	It("loses no update of ksctl, and ksctl loses none of its updates", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:0", map[string]string{"clusters/a.json": document("demo", "revision 0")})
		in := newImport(ns)
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).Should(HavePrefix("True "))
		const writes = 1000
		r, done, began := &concurrentKsctl{ns: ns}, make(chan error, 1), time.Now()
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
			publish(ctx, ns, fmt.Sprintf("main@sha1:%d", revision),
				map[string]string{"clusters/a.json": document("demo", fmt.Sprintf("revision %d", revision))})
			select {
			case failure = <-done:
				ended = true
			default:
			}
			return ended
		}, 12*time.Minute, 50*time.Millisecond).Should(BeTrue())
		Expect(failure).NotTo(HaveOccurred())
		AddReportEntry(fmt.Sprintf("%d writes of ksctl took", writes), time.Since(began).String())
		AddReportEntry("commits meanwhile, revisions that ksctl found in the store, and its conflicts",
			fmt.Sprint(r.published.Load(), " ", r.found, " ", r.conflicts))
		Expect(r.found).To(BeNumerically(">", writes/50), "otherwise there was no concurrent writer")
		Eventually(ctx, func() map[string]string { return stored(ctx, ns) }, soon).Should(And(
			HaveKeyWithValue(otherKey, otherDocument(writes)),
			HaveKeyWithValue(keyOf("demo"), ContainSubstring(fmt.Sprintf(`"revision %d"`, r.published.Load())))))
	}, SpecTimeout(15*time.Minute))
})
