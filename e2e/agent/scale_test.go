package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/stacks/state"
)

// labelsFor returns the labels of an app and a selector of them.
func labelsFor(app string) (map[string]string, *metav1.LabelSelector) {
	l := map[string]string{"app": app}
	return l, &metav1.LabelSelector{MatchLabels: l}
}

func template(app, node string) corev1.PodTemplateSpec {
	l, _ := labelsFor(app)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}}
	if node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: spec}
}

// deployPod creates a Deployment of one pod on a node, and waits until it is available.
func deployPod(ctx context.Context, ns, app, node string) {
	GinkgoHelper()
	_, selector := labelsFor(app)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app},
		Spec: appsv1.DeploymentSpec{Selector: selector, Template: template(app, node)}}
	create(ctx, d)
	Eventually(ctx, func() (int32, error) {
		err := plane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
		return d.Status.AvailableReplicas, err
	}).WithTimeout(soon).Should(BeEquivalentTo(1))
}

// blockEvictions creates a PodDisruptionBudget that permits no evictions of an app, and waits
// until it is observed.
func blockEvictions(ctx context.Context, ns, app string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	_, selector := labelsFor(app)
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: selector}}
	create(ctx, b)
	Eventually(ctx, func() (int32, error) {
		err := plane.Client().Get(ctx, client.ObjectKeyFromObject(b), b)
		return b.Status.CurrentHealthy, err
	}).WithTimeout(soon).Should(BeEquivalentTo(1))
	return b
}

// pods returns the nodes of an app's pods, by pod name.
func pods(ctx context.Context, ns, app string) map[string]string {
	GinkgoHelper()
	var list corev1.PodList
	l, _ := labelsFor(app)
	Expect(plane.Client().List(ctx, &list, client.InNamespace(ns), client.MatchingLabels(l))).To(Succeed())
	out := map[string]string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out[p.Name] = p.Spec.NodeName
		}
	}
	return out
}

var _ = Describe("The agent", func() {
	It("becomes available with its shipped manifests", func(ctx SpecContext) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl", Name: "ksctl-agent"}}
		Eventually(ctx, func() (int32, error) {
			err := plane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
			return d.Status.AvailableReplicas, err
		}).WithTimeout(soon).Should(BeEquivalentTo(1))
	})

	It("creates machines after the last one, and deletes them from the end", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2)
		Expect(r.run(ctx, "up", 2, 4)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2, 3))
		last := r.node(ctx, 3)
		Expect(last.Spec.ProviderID).To(Equal("k3s://" + last.Name))
		Expect(last.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "medium"))
		Expect(last.Status.Allocatable.Cpu().MilliValue()).To(BeEquivalentTo(1900))
		first := r.node(ctx, 0).UID
		Expect(r.run(ctx, "down", 4, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
		Expect(r.node(ctx, 0).UID).To(Equal(first))
		res, err := r.workers().List(ctx, &agentpb.ListRequest{Cluster: r.name})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.GetWorkers()).To(HaveLen(1))
		Expect(res.GetWorkers()[0].GetNode()).To(Equal(r.node(ctx, 0).Name))
		Expect(res.GetOperation().GetId()).To(Equal("down"))
		Eventually(ctx, func() (string, error) { // the counter is incremented after the end
			return httpGet(ctx, "http://"+r.agent.metrics+"/metrics")
		}).WithTimeout(soon).
			Should(ContainSubstring(`ksctl_agent_operations_total{cluster="` + r.name +
				`",direction="down",result="SUCCEEDED"} 1`))
	})

	It("does not confuse worker 10 with worker 1", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2)
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.name + "-vm-wp-10-abcde",
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
		create(ctx, other)
		DeferCleanup(func(ctx SpecContext) error { return client.IgnoreNotFound(plane.Client().Delete(ctx, other)) })
		ns := namespace(ctx)
		_, selector := labelsFor("everywhere")
		create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "everywhere"},
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("everywhere", "")}})
		uid := other.UID
		Expect(r.run(ctx, "down", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
		Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(other.UID).To(Equal(uid))
		Expect(other.Spec.Unschedulable).To(BeFalse())
	})

	It("evicts pods, except those of DaemonSets", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2)
		ns := namespace(ctx)
		last := r.node(ctx, 1).Name
		deployPod(ctx, ns, "web", last)
		_, selector := labelsFor("everywhere")
		create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "everywhere"},
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("everywhere", last)}})
		Eventually(ctx, func() map[string]string { return pods(ctx, ns, "everywhere") }).WithTimeout(soon).
			Should(HaveLen(1))
		Expect(r.run(ctx, "down", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("deletes no machine while a disruption budget blocks the drain", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2, "--drain-timeout=4s")
		ns := namespace(ctx)
		last := r.node(ctx, 1)
		deployPod(ctx, ns, "web", last.Name)
		b := blockEvictions(ctx, ns, "web")
		before := pods(ctx, ns, "web")
		began := time.Now()
		Expect(r.run(ctx, "held", 2, 1)).
			To(HaveFailed(agentpb.Operation_DRAIN,
				"node "+last.Name+" could not be drained within 4s, and no machine was deleted: "+ns+"/web-"))
		Expect(time.Since(began)).To(BeNumerically(">=", 4*time.Second))
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1))
		Expect(r.node(ctx, 1).Spec.Unschedulable).To(BeFalse(), "the node is uncordoned")
		Expect(r.node(ctx, 1).Annotations).NotTo(HaveKey("agent.ksctl.com/cordoned-by"))
		Expect(pods(ctx, ns, "web")).To(Equal(before))
		// The restarted agent has the default timeout: enough time to delete the budget.
		r.agent.kill()
		r.start(ctx)
		r.begin(ctx, "let-go", 2, 1)
		Eventually(ctx, func() bool { return r.node(ctx, 1).Spec.Unschedulable }).WithTimeout(soon).Should(BeTrue())
		Expect(plane.Client().Delete(ctx, b)).To(Succeed())
		Expect(r.await(ctx, "let-go", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("reports what the provisioner fails to do", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2)
		r.configure(`{"create":{"pretend":true},"delete":{"pretend":true}}`)
		Expect(r.run(ctx, "up", 2, 3)).
			To(HaveFailed(agentpb.Operation_OTHER,
				"reported the machines as created, but the cluster has 2 workers instead of 3"))
		Expect(r.run(ctx, "down", 2, 1)).
			To(HaveFailed(agentpb.Operation_OTHER,
				"reported the machines as deleted, but the cluster has 2 workers instead of 1"))
		Expect(r.node(ctx, 1).Spec.Unschedulable).To(BeFalse())
		r.configure(`{"create":{"after":1,"fail":{"code":"Quota","class":"OutOfResources","message":"no more of them"}}}`)
		Expect(r.run(ctx, "quota", 2, 5)).
			To(HaveFailed(agentpb.Operation_OUT_OF_RESOURCES,
				"the cluster has 3 workers instead of 5: Quota: no more of them"))
		r.configure(`{"create":{"panic":true}}`)
		Expect(r.run(ctx, "crash", 3, 5)).To(HaveFailed(agentpb.Operation_OTHER, "failed without a response"))
		r.configure(`{}`)
		Expect(r.run(ctx, "again", 3, 5)).To(HaveSucceeded())
	})

	It("implements ksctl's agent protocol", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2)
		k := agentpb.NewKsctlAgentClient(r.connect())
		res, err := k.Scale(ctx,
			&agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_UP, DesiredNoOfWP: 3, NodeSizeOfWP: "large"})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.GetIsUpdated()).To(BeTrue())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
		Expect(r.node(ctx, 2).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "large"))
		_, err = k.Scale(ctx,
			&agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_UP, DesiredNoOfWP: 1, NodeSizeOfWP: "large"})
		Expect(status.Code(err)).To(Equal(codes.FailedPrecondition), "ksctl's own agent would lose machines")
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
		_, err = k.Scale(ctx, &agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_DOWN, DesiredNoOfWP: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("imports an export without changing other states", func(ctx SpecContext) {
		r := newTestCluster(ctx, 0)
		store := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: state.StoreNamespace,
			Name: state.StoreConfigMap},
			BinaryData: map[string][]byte{"civo.ha.other.LON1": []byte(`{"cluster_name":"other"}`)}}
		create(ctx, store)
		k := agentpb.NewKsctlAgentClient(r.connect())
		doc := map[string]any{"cluster_type": "ha", "cluster_name": "demo", "region": "us-east-1",
			"cloud_provider": "aws"}
		credentials := map[string]any{"cloud_provider": "aws",
			"aws": map[string]any{"access_key_id": "x", "secret_access_key": "y"}}
		data, err := json.Marshal(map[string]any{"Clusters": []any{doc}, "Credentials": []any{credentials, nil}})
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			_, err = k.Storage(ctx, &agentpb.ReqStore{Data: data})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(store), store)).To(Succeed())
		Expect(store.BinaryData).To(And(HaveKey("civo.ha.other.LON1"), HaveKey("aws.ha.demo.us-east-1"), HaveLen(2)))
		var secret corev1.Secret
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: state.StoreNamespace, Name: state.StoreSecret},
			&secret)).To(Succeed())
		Expect(secret.Data).To(HaveKey("aws"))
		_, err = k.Storage(ctx, &agentpb.ReqStore{Data: []byte("{")})
		Expect(status.Code(err)).To(Equal(codes.InvalidArgument))
		_, err = k.Storage(ctx, &agentpb.ReqStore{Operation: agentpb.StorageOperation_EXPORT})
		Expect(status.Code(err)).To(Equal(codes.Unimplemented))
	})
})

var _ = Describe("An agent that is killed", func() {
	// It is killed in the middle of an operation. What the operation had started is done once.
	DescribeTable("continues its operation when killed", func(ctx SpecContext, knobs string, current, desired uint32,
		half int, flags ...string) {
		r := newTestCluster(ctx, current, flags...)
		before := map[string]bool{}
		for _, n := range r.nodes(ctx) {
			before[string(n.UID)] = true
		}
		r.configure(knobs)
		r.begin(ctx, "op", current, desired)
		Eventually(ctx, func() int { return len(r.indexes(ctx)) }).WithTimeout(soon).Should(Equal(half))
		Eventually(ctx, r.provisioners).WithTimeout(soon).ShouldNot(BeEmpty())
		r.agent.kill()
		Eventually(ctx, r.provisioners).WithTimeout(soon).Should(BeEmpty(), "its provisioner ends with it")
		Expect(r.indexes(ctx)).To(HaveLen(half))
		r.configure(`{}`)
		r.start(ctx, flags...)
		Expect(r.await(ctx, "op", current, desired)).To(HaveSucceeded())
		want := []int{}
		for i := range int(desired) {
			want = append(want, i)
		}
		Expect(r.indexes(ctx)).To(ConsistOf(want), "no machine exists twice")
		kept := 0
		for _, n := range r.nodes(ctx) {
			if before[string(n.UID)] {
				kept++
			}
		}
		Expect(kept).To(Equal(int(min(current, desired))), "no other machine was changed")
	},
		Entry("before it created machines", `{"create":{"delay":"1h"}}`, uint32(1), uint32(4), 1),
		Entry("between two creations", `{"create":{"after":2,"delay":"1h"}}`, uint32(1), uint32(4), 3),
		Entry("after all creations", `{"create":{"after":9,"delay":"1h"}}`, uint32(1), uint32(4), 4),
		Entry("before it deleted machines", `{"delete":{"delay":"1h"}}`, uint32(4), uint32(1), 4),
		Entry("between two deletions", `{"delete":{"after":1,"delay":"1h"}}`, uint32(4), uint32(1), 3),
		Entry("after all deletions", `{"delete":{"after":9,"delay":"1h"}}`, uint32(4), uint32(1), 1),
		Entry("with operations stored in files", `{"create":{"after":2,"delay":"1h"}}`, uint32(1), uint32(4), 3,
			"--store-folder=store"),
	)

	It("continues a drain", func(ctx SpecContext) {
		r := newTestCluster(ctx, 2)
		ns := namespace(ctx)
		deployPod(ctx, ns, "web", r.node(ctx, 1).Name)
		b := blockEvictions(ctx, ns, "web")
		r.begin(ctx, "op", 2, 1)
		Eventually(ctx, func() bool { return r.node(ctx, 1).Spec.Unschedulable }).WithTimeout(soon).Should(BeTrue())
		r.agent.kill()
		r.start(ctx)
		Expect(r.node(ctx, 1).Spec.Unschedulable).To(BeTrue())
		Expect(plane.Client().Delete(ctx, b)).To(Succeed())
		Expect(r.await(ctx, "op", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("creates each machine once, however often it is killed", func(ctx SpecContext) {
		r := newTestCluster(ctx, 0)
		const n = 6
		r.configure(`{"create":{"after":1,"delay":"1h"}}`)
		r.begin(ctx, "op", 0, n)
		for i := 1; i < n; i++ {
			Eventually(ctx, func() int { return len(r.indexes(ctx)) }).WithTimeout(soon).
				Should(Equal(i), fmt.Sprintf("machine %d", i))
			r.agent.kill()
			r.start(ctx)
		}
		r.configure(`{}`)
		r.agent.kill()
		r.start(ctx)
		Expect(r.await(ctx, "op", 0, n)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2, 3, 4, 5))
	})
})

var _ = Describe("An agent that is stopped", func() {
	It("finishes the running operation, and accepts no new one", func(ctx SpecContext) {
		r := newTestCluster(ctx, 1)
		r.configure(`{"create":{"delay":"10s"}}`) // long enough to observe the operation
		r.begin(ctx, "op", 1, 3)
		workers := r.workers()
		Eventually(ctx, func() (string, error) {
			res, err := workers.List(ctx, &agentpb.ListRequest{})
			return res.GetOperation().GetMessage(), err
		}).WithTimeout(soon).Should(Equal("creating 2 machines of size medium"))
		Expect(r.agent.stop()).To(Succeed(), r.agent.logs())
		Expect(r.indexes(ctx)).To(HaveLen(3))
		r.start(ctx)
		Expect(r.await(ctx, "op", 1, 3)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
	})

	It("kills an operation that does not finish in time, and continues it at the next start", func(ctx SpecContext) {
		r := newTestCluster(ctx, 1, "--stop-timeout=1s")
		r.configure(`{"create":{"after":1,"delay":"1h"}}`)
		r.begin(ctx, "op", 1, 3)
		Eventually(ctx, func() int { return len(r.indexes(ctx)) }).WithTimeout(soon).Should(Equal(2))
		Expect(r.agent.stop()).To(Succeed(), r.agent.logs())
		Eventually(ctx, r.provisioners).WithTimeout(soon).Should(BeEmpty())
		r.configure(`{}`)
		r.start(ctx)
		Expect(r.await(ctx, "op", 1, 3)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
	})
})
