package cluster_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

func inNamespace(manifest, namespace string) []byte {
	return bytes.ReplaceAll([]byte(manifest), []byte("NS"), []byte(namespace))
}

func mark(ctx context.Context) cluster.Mark {
	GinkgoHelper()
	m, err := controlPlane.AuditMark(ctx)
	Expect(err).NotTo(HaveOccurred())
	return m
}

func since(ctx context.Context, m cluster.Mark) cluster.Requests {
	GinkgoHelper()
	requests, err := controlPlane.AuditSince(ctx, m)
	Expect(err).NotTo(HaveOccurred())
	return requests
}

var _ = Describe("The audit log", func() {
	It("records every answered request of every user, with verb, resource and status", func(ctx SpecContext) {
		ns := namespaceWithReader(ctx)
		config, err := controlPlane.ConfigFor(ctx, ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		config.UserAgent = "cluster-spec/1"
		c := newClient(config)
		// The first request triggers discovery, so that the count below is exact.
		Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})).To(Succeed())

		before := mark(ctx)
		const workers, each = 8, 25
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				defer GinkgoRecover()
				for range each {
					Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})).
						To(Succeed())
				}
			})
		}
		wg.Wait()
		Expect(apierrors.IsForbidden(c.Delete(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kube-root-ca.crt"}}))).To(BeTrue())

		all := since(ctx, before)
		mine := all.Where(cluster.ByUser(cluster.ServiceAccountUser(ns, "reader")))
		Expect(mine).To(HaveLen(workers*each+1), mine.String())
		Expect(mine.Where(cluster.ByUserAgent("cluster-spec/"))).To(HaveLen(len(mine)))
		Expect(mine.Where(cluster.Verb("get"), cluster.Resource("configmaps"), cluster.InNamespace(ns),
			cluster.Named("kube-root-ca.crt"))).
			To(HaveLen(workers * each))
		denied := mine.Where(cluster.Write)
		Expect(denied).To(HaveLen(1))
		Expect(denied[0].Code).To(Equal(403))
		Expect(denied[0].URI).To(Equal("/api/v1/namespaces/" + ns + "/configmaps/kube-root-ca.crt"))
		Expect(denied[0].Completed).NotTo(BeZero())
		Expect(denied.String()).To(ContainSubstring("1 × delete configmaps in " + ns))
		Expect(all).To(HaveEach(Not(HaveField("URI", ContainSubstring("sentinel")))),
			"without the suite's own requests")
	})

	It("is read until every received request is answered", func(ctx SpecContext) {
		ns := namespace(ctx)
		before := mark(ctx)
		transport, err := rest.HTTPClientFor(controlPlane.Config())
		Expect(err).NotTo(HaveOccurred())
		body, send := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, controlPlane.Config().Host+
			"/api/v1/namespaces/"+ns+"/configmaps", body)
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Content-Type", "application/json")
		answered := make(chan error, 1)
		go func() {
			answer, err := transport.Do(request)
			if err == nil {
				err = answer.Body.Close()
			}
			answered <- err
		}()
		Eventually(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // for the suite's own request
			defer cancel()
			_, err := controlPlane.AuditSince(ctx, before)
			return err
		}).WithTimeout(waitTimeout).Should(MatchError(ContainSubstring("1 requests without a response")),
			"the request's body is incomplete")

		go func() {
			defer GinkgoRecover()
			_, err := send.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"slow"}}`))
			Expect(err).NotTo(HaveOccurred())
			Expect(send.Close()).To(Succeed())
		}()
		Expect(since(ctx, before).Where(cluster.InNamespace(ns), cluster.Verb("create"), cluster.Resource("configmaps"),
			cluster.ByUser(cluster.AdminUser))).To(HaveLen(1))
		Expect(<-answered).To(Succeed())
	})

	It("records the authenticated and the impersonated user", func(ctx SpecContext) {
		ns := namespaceWithReader(ctx)
		config := controlPlane.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: cluster.ServiceAccountUser(ns, "reader")}
		before := mark(ctx)
		Expect(newClient(config).List(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns))).To(Succeed())

		made := since(ctx, before).Where(cluster.ByEffectiveUser(cluster.ServiceAccountUser(ns, "reader"))).
			Without(cluster.Discovery)
		Expect(made).To(HaveLen(1), made.String())
		Expect(made[0].User).To(Equal(cluster.AdminUser))
		Expect(made[0].Verb).To(Equal("list"))
	})

	It("filters background requests and dry runs", func(ctx SpecContext) {
		ns := namespace(ctx)
		before := mark(ctx)
		object := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		}
		Expect(controlPlane.Client().Create(ctx, object("one"))).To(Succeed())
		Expect(controlPlane.Client().Create(ctx, object("two"), client.DryRunAll)).To(Succeed())

		writes := since(ctx, before).Where(cluster.ByUser(cluster.AdminUser), cluster.Write).
			Without(cluster.Watch, cluster.Lease, cluster.Discovery)
		Expect(writes).To(HaveLen(2), writes.String())
		Expect(writes.Without(cluster.DryRun)).To(ConsistOf(HaveField("Name", "one")))
		Expect(since(ctx, mark(ctx)).Where(cluster.ByUser(cluster.AdminUser))).To(BeEmpty(), "after a new mark")
	})
})
