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

// labelled is a selector and what it selects.
func labelled(app string) (map[string]string, *metav1.LabelSelector) {
	l := map[string]string{"app": app}
	return l, &metav1.LabelSelector{MatchLabels: l}
}

func template(app, node string) corev1.PodTemplateSpec {
	l, _ := labelled(app)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}}
	if node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: spec}
}

// deployed makes a Deployment of one pod on a node, and waits for it.
func deployed(ctx context.Context, ns, app, node string) {
	GinkgoHelper()
	_, selector := labelled(app)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template(app, node)}}
	create(ctx, d)
	Eventually(ctx, func() (int32, error) {
		err := plane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
		return d.Status.AvailableReplicas, err
	}).WithTimeout(soon).Should(BeEquivalentTo(1))
}

// budget lets none of an app's pods go, and waits until it is known.
func budget(ctx context.Context, ns, app string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	_, selector := labelled(app)
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: selector}}
	create(ctx, b)
	Eventually(ctx, func() (int32, error) {
		err := plane.Client().Get(ctx, client.ObjectKeyFromObject(b), b)
		return b.Status.CurrentHealthy, err
	}).WithTimeout(soon).Should(BeEquivalentTo(1))
	return b
}

// pods of an app, by their nodes.
func pods(ctx context.Context, ns, app string) map[string]string {
	GinkgoHelper()
	var list corev1.PodList
	l, _ := labelled(app)
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
	It("is admitted as it is shipped", func(ctx SpecContext) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl", Name: "ksctl-agent"}}
		Eventually(ctx, func() (int32, error) {
			err := plane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
			return d.Status.AvailableReplicas, err
		}).WithTimeout(soon).Should(BeEquivalentTo(1))
	})

	It("makes machines behind the last one, and deletes them from the end", func(ctx SpecContext) {
		r := newRig(ctx, 2)
		Expect(r.do(ctx, "up", 2, 4)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2, 3))
		last := r.node(ctx, 3)
		Expect(last.Spec.ProviderID).To(Equal("k3s://" + last.Name))
		Expect(last.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "medium"))
		Expect(last.Status.Allocatable.Cpu().MilliValue()).To(BeEquivalentTo(1900))
		first := r.node(ctx, 0).UID
		Expect(r.do(ctx, "down", 4, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
		Expect(r.node(ctx, 0).UID).To(Equal(first))
		res, err := r.workers().List(ctx, &agentpb.ListRequest{Cluster: r.name})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.GetWorkers()).To(HaveLen(1))
		Expect(res.GetWorkers()[0].GetNode()).To(Equal(r.node(ctx, 0).Name))
		Expect(res.GetOperation().GetId()).To(Equal("down"))
		Eventually(ctx, func() (string, error) { // it is counted after it has ended
			return ask(ctx, "http://"+r.agent.metrics+"/metrics")
		}).WithTimeout(soon).Should(ContainSubstring(`ksctl_agent_operations_total{cluster="` + r.name + `",direction="down",result="SUCCEEDED"} 1`))
	})

	It("keeps worker 10 apart from worker 1", func(ctx SpecContext) {
		r := newRig(ctx, 2)
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.name + "-vm-wp-10-abcde", Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
		create(ctx, other)
		DeferCleanup(func(ctx SpecContext) error { return client.IgnoreNotFound(plane.Client().Delete(ctx, other)) })
		ns := namespace(ctx)
		_, selector := labelled("everywhere")
		create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "everywhere"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("everywhere", "")}})
		uid := other.UID
		Expect(r.do(ctx, "down", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
		Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(other.UID).To(Equal(uid))
		Expect(other.Spec.Unschedulable).To(BeFalse())
	})

	It("moves pods away, and leaves those of DaemonSets", func(ctx SpecContext) {
		r := newRig(ctx, 2)
		ns := namespace(ctx)
		last := r.node(ctx, 1).Name
		deployed(ctx, ns, "web", last)
		_, selector := labelled("everywhere")
		create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "everywhere"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("everywhere", last)}})
		Eventually(ctx, func() map[string]string { return pods(ctx, ns, "everywhere") }).WithTimeout(soon).Should(HaveLen(1))
		Expect(r.do(ctx, "down", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("is held by a disruption budget, and deletes nothing then", func(ctx SpecContext) {
		r := newRig(ctx, 2, "--drain-timeout=4s")
		ns := namespace(ctx)
		last := r.node(ctx, 1)
		deployed(ctx, ns, "web", last.Name)
		b := budget(ctx, ns, "web")
		before := pods(ctx, ns, "web")
		began := time.Now()
		Expect(r.do(ctx, "held", 2, 1)).To(HaveFailed(agentpb.Operation_DRAIN, "node "+last.Name+" could not be drained within 4s, and no machine was deleted: "+ns+"/web-"))
		Expect(time.Since(began)).To(BeNumerically(">=", 4*time.Second))
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1))
		Expect(r.node(ctx, 1).Spec.Unschedulable).To(BeFalse(), "it is given back")
		Expect(r.node(ctx, 1).Annotations).NotTo(HaveKey("agent.ksctl.com/cordoned-by"))
		Expect(pods(ctx, ns, "web")).To(Equal(before))
		// From here on there is time to take the budget away.
		r.agent.kill()
		r.start(ctx)
		r.begin(ctx, "let-go", 2, 1)
		Eventually(ctx, func() bool { return r.node(ctx, 1).Spec.Unschedulable }).WithTimeout(soon).Should(BeTrue())
		Expect(plane.Client().Delete(ctx, b)).To(Succeed())
		Expect(r.await(ctx, "let-go", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("tells what the provisioner does not do", func(ctx SpecContext) {
		r := newRig(ctx, 2)
		r.turn(`{"create":{"pretend":true},"delete":{"pretend":true}}`)
		Expect(r.do(ctx, "up", 2, 3)).To(HaveFailed(agentpb.Operation_OTHER, "answered that the machines are made, and there are 2 workers, not 3"))
		Expect(r.do(ctx, "down", 2, 1)).To(HaveFailed(agentpb.Operation_OTHER, "answered that the machines are gone, and there are 2 workers, not 1"))
		Expect(r.node(ctx, 1).Spec.Unschedulable).To(BeFalse())
		r.turn(`{"create":{"after":1,"fail":{"code":"Quota","class":"OutOfResources","message":"no more of them"}}}`)
		Expect(r.do(ctx, "quota", 2, 5)).To(HaveFailed(agentpb.Operation_OUT_OF_RESOURCES, "there are 3 workers, and there were to be 5: Quota: no more of them"))
		r.turn(`{"create":{"panic":true}}`)
		Expect(r.do(ctx, "crash", 3, 5)).To(HaveFailed(agentpb.Operation_OTHER, "ended before it was done"))
		r.turn(`{}`)
		Expect(r.do(ctx, "again", 3, 5)).To(HaveSucceeded())
	})

	It("answers on ksctl's wire, too", func(ctx SpecContext) {
		r := newRig(ctx, 2)
		k := agentpb.NewKsctlAgentClient(r.connect())
		res, err := k.Scale(ctx, &agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_UP, DesiredNoOfWP: 3, NodeSizeOfWP: "large"})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.GetIsUpdated()).To(BeTrue())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
		Expect(r.node(ctx, 2).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "large"))
		_, err = k.Scale(ctx, &agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_UP, DesiredNoOfWP: 1, NodeSizeOfWP: "large"})
		Expect(status.Code(err)).To(Equal(codes.FailedPrecondition), "ksctl's own would forget machines")
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
		_, err = k.Scale(ctx, &agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_DOWN, DesiredNoOfWP: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("imports an export beside other states", func(ctx SpecContext) {
		r := newRig(ctx, 0)
		store := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: state.StoreNamespace, Name: state.StoreConfigMap},
			BinaryData: map[string][]byte{"civo.ha.other.LON1": []byte(`{"cluster_name":"other"}`)}}
		create(ctx, store)
		k := agentpb.NewKsctlAgentClient(r.connect())
		doc := map[string]any{"cluster_type": "ha", "cluster_name": "demo", "region": "us-east-1", "cloud_provider": "aws"}
		credentials := map[string]any{"cloud_provider": "aws", "aws": map[string]any{"access_key_id": "x", "secret_access_key": "y"}}
		data, err := json.Marshal(map[string]any{"Clusters": []any{doc}, "Credentials": []any{credentials, nil}})
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			_, err = k.Storage(ctx, &agentpb.ReqStore{Data: data})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(store), store)).To(Succeed())
		Expect(store.BinaryData).To(And(HaveKey("civo.ha.other.LON1"), HaveKey("aws.ha.demo.us-east-1"), HaveLen(2)))
		var secret corev1.Secret
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: state.StoreNamespace, Name: state.StoreSecret}, &secret)).To(Succeed())
		Expect(secret.Data).To(HaveKey("aws"))
		_, err = k.Storage(ctx, &agentpb.ReqStore{Data: []byte("{")})
		Expect(status.Code(err)).To(Equal(codes.InvalidArgument))
		_, err = k.Storage(ctx, &agentpb.ReqStore{Operation: agentpb.StorageOperation_EXPORT})
		Expect(status.Code(err)).To(Equal(codes.Unimplemented))
	})
})

var _ = Describe("An agent that is killed", func() {
	// It is killed once it has done a part; what it had begun is done once.
	DescribeTable("goes on where it was", func(ctx SpecContext, knobs string, current, desired uint32, half int, flags ...string) {
		r := newRig(ctx, current, flags...)
		before := map[string]bool{}
		for _, n := range r.nodes(ctx) {
			before[string(n.UID)] = true
		}
		r.turn(knobs)
		r.begin(ctx, "op", current, desired)
		Eventually(ctx, func() int { return len(r.indexes(ctx)) }).WithTimeout(soon).Should(Equal(half))
		Eventually(ctx, r.provisioners).WithTimeout(soon).ShouldNot(BeEmpty())
		r.agent.kill()
		Eventually(ctx, r.provisioners).WithTimeout(soon).Should(BeEmpty(), "its provisioner dies with it")
		Expect(r.indexes(ctx)).To(HaveLen(half))
		r.turn(`{}`)
		r.start(ctx, flags...)
		Expect(r.await(ctx, "op", current, desired)).To(HaveSucceeded())
		want := []int{}
		for i := range int(desired) {
			want = append(want, i)
		}
		Expect(r.indexes(ctx)).To(ConsistOf(want), "none is there twice")
		kept := 0
		for _, n := range r.nodes(ctx) {
			if before[string(n.UID)] {
				kept++
			}
		}
		Expect(kept).To(Equal(int(min(current, desired))), "nothing else was touched")
	},
		Entry("before it made machines", `{"create":{"delay":"1h"}}`, uint32(1), uint32(4), 1),
		Entry("between two that it made", `{"create":{"after":2,"delay":"1h"}}`, uint32(1), uint32(4), 3),
		Entry("when it had made them all", `{"create":{"after":9,"delay":"1h"}}`, uint32(1), uint32(4), 4),
		Entry("before it deleted machines", `{"delete":{"delay":"1h"}}`, uint32(4), uint32(1), 4),
		Entry("between two that it deleted", `{"delete":{"after":1,"delay":"1h"}}`, uint32(4), uint32(1), 3),
		Entry("when it had deleted them all", `{"delete":{"after":9,"delay":"1h"}}`, uint32(4), uint32(1), 1),
		Entry("and keeps what it begins in files", `{"create":{"after":2,"delay":"1h"}}`, uint32(1), uint32(4), 3, "--store-folder=store"),
	)

	It("goes on draining", func(ctx SpecContext) {
		r := newRig(ctx, 2)
		ns := namespace(ctx)
		deployed(ctx, ns, "web", r.node(ctx, 1).Name)
		b := budget(ctx, ns, "web")
		r.begin(ctx, "op", 2, 1)
		Eventually(ctx, func() bool { return r.node(ctx, 1).Spec.Unschedulable }).WithTimeout(soon).Should(BeTrue())
		r.agent.kill()
		r.start(ctx)
		Expect(r.node(ctx, 1).Spec.Unschedulable).To(BeTrue())
		Expect(plane.Client().Delete(ctx, b)).To(Succeed())
		Expect(r.await(ctx, "op", 2, 1)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0))
	})

	It("is done as often as it is killed, and each machine once", func(ctx SpecContext) {
		r := newRig(ctx, 0)
		const n = 6
		r.turn(`{"create":{"after":1,"delay":"1h"}}`)
		r.begin(ctx, "op", 0, n)
		for i := 1; i < n; i++ {
			Eventually(ctx, func() int { return len(r.indexes(ctx)) }).WithTimeout(soon).Should(Equal(i), fmt.Sprintf("machine %d", i))
			r.agent.kill()
			r.start(ctx)
		}
		r.turn(`{}`)
		r.agent.kill()
		r.start(ctx)
		Expect(r.await(ctx, "op", 0, n)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2, 3, 4, 5))
	})
})

var _ = Describe("An agent that is to end", func() {
	It("lets what runs end, and takes nothing new", func(ctx SpecContext) {
		r := newRig(ctx, 1)
		r.turn(`{"create":{"delay":"10s"}}`) // so long it is seen at work
		r.begin(ctx, "op", 1, 3)
		workers := r.workers()
		Eventually(ctx, func() (string, error) {
			res, err := workers.List(ctx, &agentpb.ListRequest{})
			return res.GetOperation().GetMessage(), err
		}).WithTimeout(soon).Should(Equal("making 2 machines of size medium"))
		Expect(r.agent.term()).To(Succeed(), r.agent.said())
		Expect(r.indexes(ctx)).To(HaveLen(3))
		r.start(ctx)
		Expect(r.await(ctx, "op", 1, 3)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
	})

	It("kills what does not, and does it at the next start", func(ctx SpecContext) {
		r := newRig(ctx, 1, "--stop-timeout=1s")
		r.turn(`{"create":{"after":1,"delay":"1h"}}`)
		r.begin(ctx, "op", 1, 3)
		Eventually(ctx, func() int { return len(r.indexes(ctx)) }).WithTimeout(soon).Should(Equal(2))
		Expect(r.agent.term()).To(Succeed(), r.agent.said())
		Eventually(ctx, r.provisioners).WithTimeout(soon).Should(BeEmpty())
		r.turn(`{}`)
		r.start(ctx)
		Expect(r.await(ctx, "op", 1, 3)).To(HaveSucceeded())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1, 2))
	})
})
