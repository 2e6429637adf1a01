package systems_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/dynamodb/dynalite"
	"github.com/ksctl/gitops/e2e/node/machine"
)

// slowServer is a proxy that pods reach, for a server that is slow on request.
type slowServer struct {
	// delay is that of each batch of deletions.
	delay atomic.Int64
}

// start starts the proxy, and returns its URL.
func (s *slowServer) start(host string) string {
	GinkgoHelper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	address, stop, err := machine.Listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".BatchWriteItem") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			select { // the body was read: so the end of the connection is noticed
			case <-r.Context().Done():
				return // the client is gone: its request must not reach the server later
			case <-time.After(time.Duration(s.delay.Load())):
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stop)
	return "http://" + address
}

var partitionJob = schema.GroupVersionKind{Group: "dynamoctl.dp.operators.sanjivmadhavan.io", Version: "v1alpha1",
	Kind: "DdbctlDpJob"}

// newPartitionJob creates an object with a spec.
func newPartitionJob(ctx context.Context, name string, spec map[string]any) *unstructured.Unstructured {
	GinkgoHelper()
	o := object(partitionJob, "orders", name)
	o.Object["spec"] = spec
	Expect(plane.Client().Create(ctx, o)).To(Succeed())
	return o
}

// jobs returns the Jobs of an object, the newest first.
func jobs(ctx context.Context, object string) (out []batchv1.Job, err error) {
	var list batchv1.JobList
	err = plane.Client().List(ctx, &list, client.InNamespace("orders"))
	for _, j := range list.Items {
		if strings.HasPrefix(j.Name, object+"-delete-") {
			out = append(out, j)
		}
	}
	return out, err
}

// podsOf returns the pods of a Job.
func podsOf(ctx context.Context, job string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := plane.Client().List(ctx, &pods, client.InNamespace("orders"), client.MatchingLabels{"job-name": job})
	return pods.Items, err
}

// onlyJob waits until an object has one Job, which is another one than those before, and returns
// it.
func onlyJob(ctx context.Context, object string, before ...batchv1.Job) batchv1.Job {
	GinkgoHelper()
	var found batchv1.Job
	Eventually(ctx, func(g Gomega) {
		all, err := jobs(ctx, object)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(all).To(HaveLen(1))
		for _, b := range before {
			g.Expect(all[0].UID).NotTo(Equal(b.UID))
		}
		found = all[0]
	}, soon).Should(Succeed())
	return found
}

// deleteJob deletes a Job and its Pods, as kubectl does.
func deleteJob(ctx context.Context, job batchv1.Job) {
	GinkgoHelper()
	Expect(plane.Client().Delete(ctx, &job,
		&client.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})).To(Succeed())
}

// requestReconcile requests a reconcile and waits until it is handled.
func requestReconcile(ctx context.Context, o *unstructured.Unstructured) {
	GinkgoHelper()
	token := o.GetResourceVersion()
	change(ctx, o, `{"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "`+token+`"}}}`)
	Eventually(ctx, func() (string, error) {
		err := get(ctx, o)
		handled, _, _ := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		return handled, err
	}, soon).Should(Equal(token))
}

// deletedItems returns the field of the status.
func deletedItems(o *unstructured.Unstructured) int {
	GinkgoHelper()
	n, found, err := unstructured.NestedInt64(o.Object, "status", "deletedItems")
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue(), status(o))
	return int(n)
}

// pushDynalite pushes an image of dynalite in place of that of the stack dynamodb-local.
func pushDynalite(ctx context.Context, dir string) {
	GinkgoHelper()
	image, err := dynalite.Image(ctx, dir)
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.NewTag(images.Host() + "/amazon/dynamodb-local:2.5.2")
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(tag, image, remote.WithContext(ctx))).To(Succeed())
}

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }

var _ = Describe("DdbctlDpJob", Ordered, func() {
	var (
		server   *dynalite.Server
		slow     slowServer
		endpoint string
	)
	fill := func(ctx context.Context, table string, items map[string]int) {
		GinkgoHelper()
		Expect(server.CreateTable(ctx, table, text(""))).To(Succeed())
		for partition, n := range items {
			Expect(server.Fill(ctx, table, text(partition), n)).To(Succeed())
		}
	}
	count := func(ctx context.Context, table, partition string) int {
		GinkgoHelper()
		n, err := server.Count(ctx, table, text(partition))
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	spec := func(table, partition string) map[string]any {
		return map[string]any{"tableName": table, "partitionValue": partition, "endpointURL": endpoint,
			"credentials": map[string]any{"secretName": "aws"}}
	}

	BeforeAll(func(ctx SpecContext) {
		if missing := dynalite.MissingRequirement(); missing != "" {
			Skip(missing)
		}
		dir := GinkgoT().TempDir()
		Expect(dynalite.Install(ctx, dir)).To(Succeed())
		var err error
		server, err = dynalite.Start(dir)
		Expect(err).NotTo(HaveOccurred())
		pushDynalite(ctx, dir)
		DeferCleanup(server.Stop)
		endpoint = slow.start(server.Host)
		apply(ctx, example("dynamodb-partition.md", "Publish it", "orders/account.yaml"))
		publish(ctx, "dynamodb-partition", example("dynamodb-partition.md", "Publish it",
			"platform/dynamodb-partition.yaml"), "orders")
	}, NodeTimeout(15*time.Minute))

	It("deletes the partition of the example, and nothing beside it", func(ctx SpecContext) {
		By("installing the stack dynamodb-local")
		apply(ctx, example("dynamodb-partition.md", "A DynamoDB for development", "orders/dynamodb.yaml"))
		install := object(appsv1.GroupVersion.WithKind("KsctlInstall"), "orders", "dynamodb")
		DeferCleanup(func(ctx SpecContext) {
			remove(ctx, install)
			gone(ctx, install)
		})
		becomes(ctx, install, "Ready", "True ")
		service := &corev1.Service{ObjectMeta: meta("orders", "dynamodb-local")}
		Expect(get(ctx, service)).To(Succeed())
		suiteServer, suiteEndpoint := server, endpoint
		server = &dynalite.Server{Host: service.Spec.ClusterIP + ":8000"}
		endpoint = "http://" + server.Host // the node has no DNS
		DeferCleanup(func() { server, endpoint = suiteServer, suiteEndpoint })
		const items = 10_000
		fill(ctx, "orders", map[string]int{"customer-17": items, "customer-170": items})

		By("creating the object of the example")
		apply(ctx, example("dynamodb-partition.md", "Create an object", "orders/delete.yaml",
			"http://dynamodb-local.orders.svc:8000", endpoint))
		o := object(partitionJob, "orders", "customer-17")
		becomes(ctx, o, "Ready", "True ")
		Eventually(ctx, func() (string, error) { return status(o), get(ctx, o) }, soon).
			Should(ContainSubstring(`"deletedItems":10000`))
		Expect(count(ctx, "orders", "customer-17")).To(BeZero())
		Expect(count(ctx, "orders", "customer-170")).To(Equal(items))
		done := onlyJob(ctx, "customer-17")
		Expect(done.Status.Succeeded).To(BeEquivalentTo(1))

		By("restarting the controller: the Job does not run again")
		restart()
		requestReconcile(ctx, o)
		becomes(ctx, o, "Ready", "True ")
		Expect(onlyJob(ctx, "customer-17").UID).To(Equal(done.UID))

		By("changing it to the other form with another partition")
		Expect(get(ctx, o)).To(Succeed())
		o.Object["spec"] = map[string]any{"ddbCtlDpJob": spec("orders", "customer-170")}
		Expect(plane.Client().Update(ctx, o)).To(Succeed())
		becomes(ctx, o, "Ready", "True ")
		Eventually(ctx, func() (int, error) {
			all, err := jobs(ctx, "customer-17")
			return len(all), err
		}, soon).Should(Equal(2), "the finished Job stays")
		Expect(count(ctx, "orders", "customer-170")).To(BeZero())
		remove(ctx, o)
		gone(ctx, o)
		Eventually(ctx, func() (int, error) {
			all, err := jobs(ctx, "customer-17")
			return len(all), err
		}, soon).Should(BeZero(), "all its Jobs are removed")
	}, SpecTimeout(20*time.Minute))

	It("has literal values, whatever Kubernetes replaces in arguments", func(ctx SpecContext) {
		const partition = `--$$(HOME) "$(KUBERNETES_PORT)" ${x} {{ y }}`
		fill(ctx, "literal", map[string]int{partition: 30, strings.ReplaceAll(partition, "$$", "$"): 30})
		o := newPartitionJob(ctx, "literal", spec("literal", partition))
		becomes(ctx, o, "Ready", "True ")
		Expect(count(ctx, "literal", partition)).To(BeZero())
		Expect(count(ctx, "literal", strings.ReplaceAll(partition, "$$", "$"))).To(Equal(30))

		By("deleting the complete Job: it does not run again")
		Expect(server.Fill(ctx, "literal", text(partition), 10)).To(Succeed())
		deleteJob(ctx, onlyJob(ctx, "literal"))
		requestReconcile(ctx, o)
		becomes(ctx, o, "Ready", "True ")
		Expect(jobs(ctx, "literal")).To(BeEmpty())
		Expect(count(ctx, "literal", partition)).To(Equal(10))
	}, SpecTimeout(10*time.Minute))

	It("deletes the rest after its Pod was killed, and after its Job was deleted", func(ctx SpecContext) {
		const items = 10_000
		fill(ctx, "killed", map[string]int{"a": items, "b": items})
		slow.delay.Store(int64(2 * time.Second))
		DeferCleanup(func() { slow.delay.Store(0) })
		o := newPartitionJob(ctx, "killed", spec("killed", "a"))
		first := onlyJob(ctx, "killed")
		Eventually(ctx, func() int { return count(ctx, "killed", "a") }, soon).Should(BeNumerically("<", items))

		By("killing the Pod")
		pods, err := podsOf(ctx, first.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))
		Expect(plane.Client().Delete(ctx, &pods[0], &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})).
			To(Succeed())
		Eventually(ctx, func(g Gomega) {
			again, err := podsOf(ctx, first.Name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(ContainElement(And(HaveField("UID", Not(Equal(pods[0].UID))),
				HaveField("Status.Phase", corev1.PodRunning))))
		}, soon).Should(Succeed(), "the Job has another Pod")
		Expect(count(ctx, "killed", "a")).To(BeNumerically(">", 0), "it has something to delete")

		By("deleting the Job")
		deleteJob(ctx, first)
		second := onlyJob(ctx, "killed", first)
		Expect(second.Name).To(Equal(first.Name))
		left := count(ctx, "killed", "a")
		slow.delay.Store(0)
		becomes(ctx, o, "Ready", "True ")
		Eventually(ctx, func() (string, error) { return status(o), get(ctx, o) }, soon).
			Should(ContainSubstring(`"deletedItems"`))
		Expect(deletedItems(o)).To(And(BeNumerically(">", 0), BeNumerically("<=", left)),
			"the number is that of the last Pod")
		Expect(count(ctx, "killed", "a")).To(BeZero())
		Expect(count(ctx, "killed", "b")).To(Equal(items))
	}, SpecTimeout(15*time.Minute))

	It("fails at once where no table is, and runs again when the Job is deleted", func(ctx SpecContext) {
		o := newPartitionJob(ctx, "missing", spec("absent", "a"))
		becomes(ctx, o, "Ready", "False JobFailed: ")
		Expect(condition(o, "Ready")).To(ContainSubstring("table absent does not exist"))
		failed := onlyJob(ctx, "missing")
		Expect(failed.Status.Failed).To(BeEquivalentTo(1), "there is no second attempt")
		Expect(failed.Status.Conditions).To(ContainElement(And(HaveField("Type", batchv1.JobFailed),
			HaveField("Reason", batchv1.JobReasonPodFailurePolicy))))

		By("creating the table")
		fill(ctx, "absent", map[string]int{"a": 10})
		deleteJob(ctx, failed)
		becomes(ctx, o, "Ready", "True ")
		Eventually(ctx, func() (string, error) { return status(o), get(ctx, o) }, soon).
			Should(ContainSubstring(`"deletedItems":10`))
	}, SpecTimeout(10*time.Minute))

	It("deletes nothing more of a partition that the spec no longer names", func(ctx SpecContext) {
		const items = 10_000
		fill(ctx, "changed", map[string]int{"old": items, "new": items})
		slow.delay.Store(int64(2 * time.Second))
		DeferCleanup(func() { slow.delay.Store(0) })
		o := newPartitionJob(ctx, "changed", spec("changed", "old"))
		first := onlyJob(ctx, "changed")
		Eventually(ctx, func() int { return count(ctx, "changed", "old") }, soon).Should(BeNumerically("<", items))
		change(ctx, o, `{"spec": {"partitionValue": "new"}}`)
		onlyJob(ctx, "changed", first)
		pods, err := podsOf(ctx, first.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(BeEmpty(), "the new Job starts when the Pods of the old one are gone")
		left := count(ctx, "changed", "old")
		Expect(left).To(BeNumerically(">", 0))
		slow.delay.Store(0)
		becomes(ctx, o, "Ready", "True ")
		Expect(count(ctx, "changed", "new")).To(BeZero())
		Expect(count(ctx, "changed", "old")).To(Equal(left))
	}, SpecTimeout(10*time.Minute))

	It("refuses a spec in both forms, and in none", func(ctx SpecContext) {
		both := spec("orders", "a")
		both["ddbCtlDpJob"] = spec("orders", "b")
		for want, invalid := range map[string]map[string]any{
			"not in both": both,
			"tableName and partitionValue are required": {"tableName": "orders"},
		} {
			o := object(partitionJob, "orders", "invalid")
			o.Object["spec"] = invalid
			Expect(plane.Client().Create(ctx, o)).To(MatchError(ContainSubstring(want)))
		}
	}, SpecTimeout(5*time.Minute))
})
