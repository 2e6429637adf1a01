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

var _ = Describe("A leader that is stopped for longer than its lease", suite.Safety, func() {
	It("finds itself replaced and ends, and has done no harm", func(ctx SpecContext) {
		f := newFleet(ctx, map[string]int{"i": 200})
		p := trouble()
		first := start(ctx, f, p, harness.Elected...)
		f.install(ctx, "i", 1)
		f.stands(ctx)
		second := start(ctx, f, nil, harness.Elected...)
		Expect(second.Healthy(ctx)).To(Succeed())

		By("the leader being stopped in the middle of a change")
		// Its requests are under way when it is stopped, and more of them to come.
		var under atomic.Int64
		held, release := make(chan struct{}, 100), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		DeferCleanup(letGo)
		p.Watch(func(q cluster.Request) {
			if cluster.Write(q) && notLease(q) && cluster.In(f.ns)(q) && q.Group != appsv1.GroupVersion.Group {
				under.Add(1)
				defer under.Add(-1)
				held <- struct{}{}
				<-release
			}
		})
		f.install(ctx, "i", 2)
		before := 0
		Eventually(func() bool {
			n := len(held)
			same := n > 0 && n == before
			before = n
			return same
		}).WithTimeout(soon).WithPolling(300*time.Millisecond).Should(BeTrue(), "as many as are sent at a time")
		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		p.Watch(nil)
		letGo()
		Eventually(ctx, under.Load, soon, "10ms").Should(BeZero(), "what was held has gone on")
		f.stands(ctx)

		By("the one that took over going on while the other one is continued")
		f.install(ctx, "i", 3)
		f.stands(ctx)
		version := versions(ctx, f)
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done()).WithTimeout(soon).Should(BeClosed(), "a lost lease ends the process")
		Expect(first.Err()).To(HaveOccurred(), "and says so by its status")
		Expect(first.Log()).To(ContainSubstring("leader election lost"))
		f.stands(ctx)
		Expect(versions(ctx, f)).To(Equal(version), "it wrote nothing more")
		f.install(ctx, "i", 4)
		f.stands(ctx)
		f.clears(ctx)
	})

	It("may have sent an object that its successor has removed since, which is removed again", func(ctx SpecContext) {
		f := newFleet(ctx, map[string]int{"i": 20})
		p := trouble()
		first := start(ctx, f, p, harness.Elected...)
		f.install(ctx, "i", 1)
		f.stands(ctx)
		second := start(ctx, f, nil, harness.Elected...)
		Expect(second.Healthy(ctx)).To(Succeed())

		By("the leader being stopped while it makes what comes with one revision and goes with another")
		const late = "i-021"
		Expect(f.has(2, late)).To(BeTrue())
		Expect(f.has(1, late) || f.has(7, late)).To(BeFalse())
		held, release := make(chan struct{}, 1), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		DeferCleanup(letGo)
		p.Watch(func(q cluster.Request) {
			if cluster.Write(q) && q.Name == late {
				held <- struct{}{}
				<-release
			}
		})
		f.install(ctx, "i", 2)
		Eventually(ctx, held, soon).Should(Receive())
		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		f.stands(ctx)
		f.install(ctx, "i", 7)
		f.stands(ctx)

		By("what it was about to send arriving")
		accounts := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccountList"}}
		watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{})
		Expect(err).NotTo(HaveOccurred())
		w, err := watching.Watch(ctx, accounts, client.InNamespace(f.ns))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		letGo()
		made := func(g Gomega) {
			var e watch.Event
			g.Expect(w.ResultChan()).To(Receive(&e))
			g.Expect(e.Type).To(Equal(watch.Added))
			g.Expect(e.Object.(*metav1.PartialObjectMetadata).Name).To(Equal(late))
		}
		Eventually(ctx, made, soon, "1ms").Should(Succeed(), "it is made")
		f.stands(ctx)
		f.knowsAll(ctx, "after it was removed again")
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done()).WithTimeout(soon).Should(BeClosed(), "a lost lease ends the process")
		f.clears(ctx)
	})
})

// has is true when the install "i" has an object of a name at a revision.
func (f *fleet) has(revision int, name string) bool {
	for n := range f.size["i"] {
		if _, key, _ := f.object("i", revision, n); strings.HasSuffix(key, "/"+name) {
			return true
		}
	}
	return false
}

// versions are the resourceVersions of a fleet's objects and of its installs.
func versions(ctx context.Context, f *fleet) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	objects, err := f.marked(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		out[o.GetKind()+" "+o.GetName()] = o.GetResourceVersion()
	}
	var installs appsv1.KsctlInstallList
	Expect(h.Plane.Client().List(ctx, &installs, client.InNamespace(f.ns))).To(Succeed())
	for i := range installs.Items {
		out["KsctlInstall "+installs.Items[i].Name] = installs.Items[i].ResourceVersion
	}
	return out
}
