package faults_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

var _ = Describe("A leader that is paused for longer than its lease", suite.Safety, func() {
	It("is replaced and ends, without further writes", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{"i": 200})
		p := newProxy()
		first := startController(ctx, f, p, harness.LeaderElectionFlags...)
		f.install(ctx, "i", 1)
		f.awaitConverged(ctx)
		second := startController(ctx, f, nil, harness.LeaderElectionFlags...)
		Expect(second.WaitHealthy(ctx)).To(Succeed())

		By("pausing the leader in the middle of a change")
		// Requests are in flight when it is paused, and more are to follow.
		var under atomic.Int64
		blocked, release := make(chan struct{}, 100), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		DeferCleanup(letGo)
		p.Watch(func(q cluster.Request) {
			if cluster.Write(q) && notLease(q) && cluster.InNamespace(f.ns)(q) && q.Group != appsv1.GroupVersion.Group {
				under.Add(1)
				defer under.Add(-1)
				blocked <- struct{}{}
				<-release
			}
		})
		f.install(ctx, "i", 2)
		before := 0
		Eventually(func() bool {
			n := len(blocked)
			same := n > 0 && n == before
			before = n
			return same
		}).WithTimeout(soon).WithPolling(300*time.Millisecond).
			Should(BeTrue(), "as many requests as are sent concurrently")
		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		p.Watch(nil)
		letGo()
		Eventually(ctx, under.Load, soon, "10ms").Should(BeZero(), "the blocked requests are forwarded")
		f.awaitConverged(ctx)

		By("resuming the old leader while the new one works")
		f.install(ctx, "i", 3)
		f.awaitConverged(ctx)
		version := versions(ctx, f)
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done()).WithTimeout(soon).Should(BeClosed(), "a lost lease ends the process")
		Expect(first.Err()).To(HaveOccurred(), "its exit status is an error")
		Expect(first.Log()).To(ContainSubstring("leader election lost"))
		f.awaitConverged(ctx)
		Expect(versions(ctx, f)).To(Equal(version), "the old leader wrote nothing")
		f.install(ctx, "i", 4)
		f.awaitConverged(ctx)
		f.removeAll(ctx)
	})

	It("may still create an object that its successor has removed since, which is "+
		"removed again", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{"i": 20})
		p := newProxy()
		first := startController(ctx, f, p, harness.LeaderElectionFlags...)
		f.install(ctx, "i", 1)
		f.awaitConverged(ctx)
		second := startController(ctx, f, nil, harness.LeaderElectionFlags...)
		Expect(second.WaitHealthy(ctx)).To(Succeed())

		By("pausing the leader while it creates an object that a later revision removes")
		const late = "i-021"
		Expect(f.has(2, late)).To(BeTrue())
		Expect(f.has(1, late) || f.has(7, late)).To(BeFalse())
		blocked, release := make(chan struct{}, 1), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		DeferCleanup(letGo)
		p.Watch(func(q cluster.Request) {
			if cluster.Write(q) && q.Name == late {
				blocked <- struct{}{}
				<-release
			}
		})
		f.install(ctx, "i", 2)
		Eventually(ctx, blocked, soon).Should(Receive())
		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		f.awaitConverged(ctx)
		f.install(ctx, "i", 7)
		f.awaitConverged(ctx)

		By("forwarding its blocked request")
		accounts := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
			Kind: "ServiceAccountList"}}
		w, err := h.ControlPlane.Client().Watch(ctx, accounts, client.InNamespace(f.ns))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		letGo()
		made := func(g Gomega) {
			var e watch.Event
			g.Expect(w.ResultChan()).To(Receive(&e))
			g.Expect(e.Type).To(Equal(watch.Added))
			g.Expect(e.Object.(*metav1.PartialObjectMetadata).Name).To(Equal(late))
		}
		Eventually(ctx, made, soon, "1ms").Should(Succeed(), "the object is created")
		f.awaitConverged(ctx)
		f.expectNoOrphans(ctx, "after the second removal")
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done()).WithTimeout(soon).Should(BeClosed(), "a lost lease ends the process")
		f.removeAll(ctx)
	})
})

// has reports whether the install "i" has an object of a name at a revision.
func (f *installSet) has(revision int, name string) bool {
	for n := range f.size["i"] {
		if _, key, _ := f.object("i", revision, n); strings.HasSuffix(key, "/"+name) {
			return true
		}
	}
	return false
}

// versions returns the resourceVersions of the objects and of the installs.
func versions(ctx context.Context, f *installSet) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	objects, err := f.marked(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		out[o.GetKind()+" "+o.GetName()] = o.GetResourceVersion()
	}
	var installs appsv1.KsctlInstallList
	Expect(h.ControlPlane.Client().List(ctx, &installs, client.InNamespace(f.ns))).To(Succeed())
	for i := range installs.Items {
		out["KsctlInstall "+installs.Items[i].Name] = installs.Items[i].ResourceVersion
	}
	return out
}
