package state_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/state"
)

var _ = Describe("An ImportState", func() {
	It("stores every format unchanged, and writes nothing at the next reconcile", func(ctx SpecContext) {
		ns := namespace(ctx)
		files, want := map[string]string{}, []any{}
		wantCredentials := map[string]string{}
		for _, name := range []string{"v1_0_civo_ha_k3s", "v1_azure_ha_k3s", "v1_aws_ha_kubeadm", "v1_local_managed",
			"v2_0_azure_selfmanaged"} {
			data := storeFixture(name + ".json")
			files["clusters/"+name+"/state.json"] = string(data)
			states, credentials := documents(data)
			for _, doc := range states {
				want = append(want, doc)
			}
			for cloud, doc := range credentials {
				wantCredentials[cloud] = doc
			}
		}
		for _, name := range []string{"v1_2_0_aws_managed", "v2_aws_managed"} {
			files["clusters/"+name+".json"] = string(fixture(name + ".json"))
			want = append(want, canonical(fixture(name+".json")))
		}
		publish(ctx, ns, "main@sha1:1", files)
		in := newImport(ns)
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds in the ksctl store " +
				"in namespace " + ns))
		var got []string
		for _, doc := range stored(ctx, ns) {
			got = append(got, doc)
		}
		Expect(got).To(ConsistOf(want...))
		var secret corev1.Secret
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreSecret}, &secret)).
			To(Succeed())
		Expect(secret.Data).To(HaveLen(3))
		for cloud, doc := range wantCredentials {
			Expect(canonical(secret.Data[cloud])).To(Equal(doc), cloud)
		}
		Expect(in.Status.LastAppliedRevision).To(Equal("main@sha1:1"))

		By("a reconcile request without a change")
		var before, after corev1.ConfigMap
		name := client.ObjectKey{Namespace: ns, Name: state.StoreConfigMap}
		Expect(h.ControlPlane.Client().Get(ctx, name, &before)).To(Succeed())
		patch(ctx, in, fmt.Sprintf(`{"metadata":{"annotations":{%q:"again"}}}`, appsv1.RequestedAtAnnotation))
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return in.Status.LastHandledReconcileAt, err
		}, soon).Should(Equal("again"))
		Expect(h.ControlPlane.Client().Get(ctx, name, &after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
	})

	It("keeps changes by ksctl, reports a conflicting state, and overwrites it with conflict: "+
		"Overwrite", func(ctx SpecContext) {
		ns := namespace(ctx)
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap},
			BinaryData: map[string][]byte{"aws.ha.other.us-east-1": []byte(`{"not":"ours"}`),
				keyOf("taken"): []byte(document("taken", "of ksctl"))}}
		create(ctx, other)
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": document("demo", "one"), "clusters/b.json": document("taken", "one")})
		in := newImport(ns)
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("False StateConflict: "+keyOf("taken")),
				ContainSubstring("spec.conflict to Overwrite")))
		Expect(stored(ctx, ns)).
			To(And(HaveKeyWithValue(keyOf("demo"), ContainSubstring(`"one"`)),
				HaveKeyWithValue(keyOf("taken"), ContainSubstring("of ksctl")), HaveKey("aws.ha.other.us-east-1")))

		By("scaling a cluster like ksctl does, and setting conflict: Overwrite")
		patch(ctx, other, fmt.Sprintf(`{"binaryData":{%q:%q}}`, keyOf("demo"), encoded(document("demo", "scaled"))))
		patch(ctx, in, `{"spec":{"conflict":"Overwrite"}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 2 states in the ksctl store in namespace " + ns +
				"; changed in the store since the import: 1 state"))
		Expect(stored(ctx, ns)).
			To(And(HaveKeyWithValue(keyOf("demo"), ContainSubstring(`"scaled"`)),
				HaveKeyWithValue(keyOf("taken"), ContainSubstring(`"one"`))))

		By("a new state in the source")
		publish(ctx, ns, "main@sha1:2",
			map[string]string{"clusters/a.json": document("demo", "two"), "clusters/b.json": document("taken", "one")})
		Eventually(ctx, func() map[string]string {
			return stored(ctx, ns)
		}, soon).Should(HaveKeyWithValue(keyOf("demo"), ContainSubstring(`"two"`)))
		Expect(stored(ctx, ns)).To(HaveKeyWithValue("aws.ha.other.us-east-1", `{"not":"ours"}`))
	})

	It("refuses plaintext secrets, and reports their pointers without values", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": string(fixture("v1_azure_ha_k3s.json")),
			"clusters/b.json": document("demo", "one")})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) { s.AllowPlaintext = false })
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in),
			soon).Should(And(HavePrefix("False PlaintextSecrets: clusters/a.json: plaintext secrets at "+
			"/Clusters/0/cluster_kubeconfig"),
			ContainSubstring("and 4 more"), ContainSubstring("kubectl ksctl state encrypt")))
		Expect(stored(ctx, ns)).
			To(And(HaveLen(1), HaveKey(keyOf("demo"))), "an invalid file does not affect other files")
	})

	It("warns before the store is full, and stores nothing of an import that does not fit", func(ctx SpecContext) {
		ns := namespace(ctx)
		const clusters = 500
		files := map[string]string{}
		for i := range clusters {
			name := fmt.Sprintf("cluster-%03d", i)
			files["clusters/"+name+".json"] = strings.Replace(string(fixture("v1_azure_ha_k3s.json")),
				`"cluster_name": "demo"`, fmt.Sprintf(`"cluster_name": %q`, name), 1)
		}
		publish(ctx, ns, "main@sha1:1", files)
		in := newImport(ns)
		began := time.Now()
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("False StoreFull: the ksctl store would have "),
				ContainSubstring("bytes for 500 clusters, but a ConfigMap holds at most 1048576")))
		AddReportEntry("500 clusters in one folder are refused after", time.Since(began).String())
		Expect(stored(ctx, ns)).To(BeEmpty())
		Expect(in.Status.Clusters).To(HaveLen(clusters))

		By("fewer clusters")
		each := len(canonical(fixture("v1_azure_ha_k3s.json")))
		fit := state.MaxStoreBytes * 9 / 10 / each
		for i := fit; i < clusters; i++ {
			delete(files, fmt.Sprintf("clusters/cluster-%03d.json", i))
		}
		began = time.Now()
		publish(ctx, ns, "main@sha1:2", files)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("True "), ContainSubstring("% of the maximum size of a ConfigMap")))
		AddReportEntry(fmt.Sprintf("%d clusters in one folder are imported after", fit), time.Since(began).String())
		Expect(stored(ctx, ns)).To(HaveLen(fit))
	})

	It("imports spec.rawExportedData, with credentials that are null", func(ctx SpecContext) {
		ns := namespace(ctx)
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.SourceRef, s.Path, s.RawExportedData = nil, "", fixture("v1_local_managed.json")
		})
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state in the ksctl store in namespace " + ns))
		states, _ := documents(fixture("v1_local_managed.json"))
		Expect(stored(ctx, ns)).To(Equal(map[string]string{"local.managed.demo.LOCAL": states[0]}))
	})

	It("imports a manifest of ksctl's first ImportState, when the account and allowPlaintext "+
		"are set", func(ctx SpecContext) {
		ns := namespace(ctx)
		manifest := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(fmt.Appendf(nil, `apiVersion: storage.ksctl.com/v1alpha1
kind: ImportState
metadata:
  labels: {app.kubernetes.io/name: operators, app.kubernetes.io/managed-by: kustomize}
  name: importstate-sample
  namespace: %s
spec:
  handled: true
  success: false
  reasonOfFailure: the agent did not answer
  rawExportedData: %s
`, ns, encoded(string(fixture("v1_local_managed.json")))), &manifest.Object)).To(Succeed())
		spec := runtime.DeepCopyJSON(manifest.Object)["spec"].(map[string]any)
		strict := client.WithFieldValidation(h.ControlPlane.Client(), metav1.FieldValidationStrict)
		Expect(strict.Apply(ctx, client.ApplyConfigurationFromUnstructured(manifest), client.FieldOwner("fleet"))).
			To(Succeed())
		in := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: manifest.GetName()}}
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("False ServiceAccountNotFound: "), ContainSubstring("--default-service-account")))
		patch(ctx, in, fmt.Sprintf(`{"spec":{"serviceAccountName":%q,"store":{"namespace":%q}}}`, harness.Deployer, ns))
		Eventually(ctx, importReady(ctx, in), soon).Should(HavePrefix("False PlaintextSecrets: spec.rawExportedData: "))
		patch(ctx, in, `{"spec":{"allowPlaintext":true}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state in the ksctl store in namespace " + ns))
		states, _ := documents(fixture("v1_local_managed.json"))
		Expect(stored(ctx, ns)).To(Equal(map[string]string{"local.managed.demo.LOCAL": states[0]}))

		By("the spec of the manifest is unchanged")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), manifest)).To(Succeed())
		for field, value := range spec {
			Expect(manifest.Object["spec"]).To(HaveKeyWithValue(field, value))
		}
	})

	It("writes nothing on a dry run, or if ksctl stores its states in a MongoDB", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": string(fixture("v1_0_civo_ha_k3s.json"))})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) { s.DryRun = true })
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("True DryRun: spec.dryRun: would create 1 state"),
				ContainSubstring("the credentials of 1 cloud")))
		Expect(stored(ctx, ns)).To(BeEmpty())
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.ExternalStoreSecret},
			StringData: map[string]string{"MONGODB_URI": "mongodb://db"}})
		patch(ctx, in, `{"spec":{"dryRun":null}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False ExternalStorage: civo.ha.old.LON1: ksctl stores its states in a MongoDB"))
		Expect(stored(ctx, ns)).To(BeEmpty())
		var secret corev1.Secret
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreSecret}, &secret)).
			To(Succeed())
		Expect(secret.Data).To(And(HaveLen(1), HaveKey("civo")))
	})

	It("removes its states from the store when it is deleted with deletionPolicy Delete", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": document("demo", "one"),
			"clusters/b.json": document("scaled", "one"), "clusters/c.json": document("kept", "one")})
		keep := newImport(ns, func(s *v1alpha1.ImportStateSpec) { s.Path = "clusters/c.json" })
		keep.Name = "keep"
		goes := func(o client.Object) {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, func() error {
				return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
			}, soon).Should(MatchError(ContainSubstring("not found")))
		}
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.DeletionPolicy = v1alpha1.DeleteState
			s.Select = &v1alpha1.StateSelector{Cloud: "civo", ClusterType: "ha"}
		})
		create(ctx, keep)
		Eventually(ctx, importReady(ctx, keep), soon).Should(HavePrefix("True "))
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).Should(HavePrefix("True "))
		Expect(writeLikeKsctl(ctx, ns, keyOf("scaled"), document("scaled", "two"))).To(Succeed())
		goes(keep) // its states stay
		goes(in)
		Expect(stored(ctx, ns)).
			To(And(HaveLen(2), HaveKeyWithValue(keyOf("scaled"), ContainSubstring(`"two"`)), HaveKey(keyOf("kept"))))
	})

	It("does not restore states that ksctl deleted, until the source changes", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": document("demo", "one"), "clusters/b.json": document("other", "one")})
		in := newImport(ns)
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).Should(HavePrefix("True ReconciliationSucceeded: 2 states"))
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}}
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:null}}`, keyOf("demo")))
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state in the ksctl store in namespace " + ns +
				"; removed from the store since the import: 1 state"))
		Expect(stored(ctx, ns)).NotTo(HaveKey(keyOf("demo")))
		publish(ctx, ns, "main@sha1:2",
			map[string]string{"clusters/a.json": document("demo", "two"), "clusters/b.json": document("other", "one")})
		Eventually(ctx, func() map[string]string {
			return stored(ctx, ns)
		}, soon).Should(HaveKeyWithValue(keyOf("demo"), ContainSubstring(`"two"`)))
	})

	It("acts as its service account, and reports missing permissions", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": document("demo", "one")})
		create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "weak"}})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) { s.ServiceAccountName = "weak" })
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("False ReconciliationFailed: reading the ksctl store"), ContainSubstring(ns+":weak"),
				ContainSubstring("forbidden")))
		patch(ctx, in, `{"spec":{"serviceAccountName":"nobody"}}`)
		Eventually(ctx, importReady(ctx, in), soon).Should(HavePrefix("False ServiceAccountNotFound"))
		patch(ctx, in, `{"spec":{"serviceAccountName":"deployer","store":{"namespace":"nowhere-at-all"}}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(ContainSubstring("namespace nowhere-at-all does not exist: create the namespace"))
	})
})

// writeLikeKsctl writes to the store like ksctl: it reads all of it, writes all of it back, and
// retries conflicts.
func writeLikeKsctl(ctx context.Context, ns, key, doc string) error {
	// No Cap: a Backoff stops when it reaches its Cap.
	return retry.RetryOnConflict(wait.Backoff{Steps: 1000, Duration: 20 * time.Millisecond, Jitter: 1}, func() error {
		var cm corev1.ConfigMap
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreConfigMap},
			&cm); err != nil {
			return err
		}
		if cm.BinaryData == nil {
			cm.BinaryData = map[string][]byte{}
		}
		cm.BinaryData[key] = []byte(doc)
		return h.ControlPlane.Client().Update(ctx, &cm)
	})
}
