package state_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"filippo.io/age"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// newExport returns an ExportState of the store in its own namespace.
func newExport(ns string, to v1alpha1.ExportTarget, reader *age.X25519Identity,
	change ...func(*v1alpha1.ExportStateSpec)) *v1alpha1.ExportState {
	hour := &metav1.Duration{Duration: time.Hour}
	out := &v1alpha1.ExportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "export"},
		Spec: v1alpha1.ExportStateSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			From:       &v1alpha1.StateStore{Namespace: ns},
			Recipients: []string{reader.Recipient().String()}, To: to, ServiceAccountName: harness.Deployer}}
	for _, f := range change {
		f(&out.Spec)
	}
	return out
}

func toGit(repo *gitserver.Repo) v1alpha1.ExportTarget {
	return v1alpha1.ExportTarget{Git: &v1alpha1.ExportRepository{URL: repo.URL(), Branch: "main", Path: "states",
		Author: v1alpha1.CommitAuthor{Name: "Robot", Email: "robot@example.com"}}}
}

func toSecret(name string) v1alpha1.ExportTarget {
	return v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: name}}
}

// exportReady is like importReady, for an export.
func exportReady(ctx context.Context, out *v1alpha1.ExportState) func() (string, error) {
	return func() (string, error) {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(out), out); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(out.Status.Conditions, appsv1.ReadyCondition)
		if c == nil || c.ObservedGeneration != out.Generation {
			return "", nil
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
	}
}

// requestReconcile requests a reconcile of an export and waits until it is handled.
func requestReconcile(ctx context.Context, out *v1alpha1.ExportState, token string) {
	GinkgoHelper()
	patch(ctx, out, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token))
	Eventually(ctx, func() (string, error) {
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(out), out)
		return out.Status.LastHandledReconcileAt, err
	}, soon).Should(Equal(token))
}

func runGit(ctx context.Context, repo *gitserver.Repo, args ...string) string {
	GinkgoHelper()
	out, err := git.Git(ctx, repo.Dir(), args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func commits(ctx context.Context, repo *gitserver.Repo) string {
	GinkgoHelper()
	return runGit(ctx, repo, "rev-list", "--count", "main")
}

// decrypt returns the content of an encrypted file in canonical form.
func decrypt(ctx context.Context, data []byte, with *age.X25519Identity) string {
	GinkgoHelper()
	plain, err := codec.Decrypt(ctx,
		sops.Request{Data: data, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(with.String())}})
	Expect(err).NotTo(HaveOccurred())
	return canonical(plain)
}

func createStore(ctx context.Context, ns string, states map[string]string) *corev1.ConfigMap {
	GinkgoHelper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap},
		BinaryData: map[string][]byte{}}
	for key, doc := range states {
		cm.BinaryData[key] = []byte(doc)
	}
	create(ctx, cm)
	return cm
}

var _ = Describe("An ExportState", func() {
	It("commits states that an ImportState elsewhere imports unchanged, and later only states that ksctl has "+
		"changed", func(ctx SpecContext) {
		ns, there, mine := namespace(ctx), namespace(ctx), identity()
		files := map[string]string{}
		for _, name := range []string{"v1_0_civo_ha_k3s", "v1_azure_ha_k3s", "v1_aws_ha_kubeadm", "v1_local_managed",
			"v1_2_0_aws_managed", "v2_0_azure_selfmanaged", "v2_aws_managed"} {
			files["clusters/"+name+".json"] = string(storeFixture(name + ".json"))
		}
		publish(ctx, ns, "main@sha1:1", files)
		in := newImport(ns)
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds"))
		want := stored(ctx, ns)
		Expect(want).To(HaveLen(7))

		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		out := newExport(ns, toGit(repo), mine, func(s *v1alpha1.ExportStateSpec) {
			s.Credentials = v1alpha1.ExportCredentials
		})
		create(ctx, out)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(Equal("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds in branch main of " +
				repo.URL() + ", folder states"))
		Expect(commits(ctx, repo)).To(Equal("1"))
		Expect(out.Status.LastExportedRevision).To(Equal("main@sha1:" + runGit(ctx, repo, "rev-parse", "main")))
		Expect(out.Status.Clusters).To(HaveLen(7))
		Expect(runGit(ctx, repo, "log", "-1", "--format=%an <%ae>%n%B", "main")).
			To(And(HavePrefix("Robot <robot@example.com>\nExport the state of clusters\n"),
				ContainSubstring("- azure.ha.demo.eastus.json\n"), ContainSubstring("ExportState: "+ns+"/export")))
		for name := range strings.SplitSeq(runGit(ctx, repo, "ls-tree", "-r", "--name-only", "main"), "\n") {
			readable, err := state.SecretPointers([]byte(runGit(ctx, repo, "cat-file", "blob", "main:"+name)))
			Expect(err).NotTo(HaveOccurred())
			Expect(readable).To(BeEmpty(), name)
		}

		By("importing them elsewhere")
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "age"},
			StringData: map[string]string{"keys.agekey": mine.String()}})
		create(ctx, &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: there,
			Name: "src"}, Spec: appsv1.KsctlSourceSpec{
			Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Second}},
			Git:      &appsv1.GitSource{URL: repo.URL()}}})
		back := newImport(there, func(s *v1alpha1.ImportStateSpec) {
			s.Path, s.AllowPlaintext = "states", false
			s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		create(ctx, back)
		Eventually(ctx, importReady(ctx, back), soon).
			Should(HavePrefix("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds"))
		Expect(stored(ctx, there)).To(Equal(want))
		var first, second corev1.Secret
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreSecret}, &first)).
			To(Succeed())
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: there, Name: state.StoreSecret}, &second)).
			To(Succeed())
		for cloud, data := range first.Data {
			Expect(canonical(second.Data[cloud])).To(Equal(canonical(data)), cloud)
		}

		By("a reconcile request without a change")
		before := out.Status.LastExportedRevision
		requestReconcile(ctx, out, "again")
		Expect(commits(ctx, repo)).To(Equal("1"))
		Expect(out.Status.LastExportedRevision).To(Equal(before))

		By("changing one state like ksctl does")
		unknown := scanner.AddSecret("what-a-later-release-adds")
		scaled := canonical([]byte(replaceOnce(document("scaled", "by ksctl"), `"words":`,
			`"vault":{"name":"new","unseal":["`+unknown+`"]},"words":`)))
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}}
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:%q}}`, keyOf("scaled"), encoded(scaled)))
		Eventually(ctx, func() string { return commits(ctx, repo) }, soon).Should(Equal("2"))
		Eventually(ctx, exportReady(ctx, out), soon).Should(HavePrefix("True ReconciliationSucceeded: 8 states"))
		Expect(runGit(ctx, repo, "diff", "--name-only", "main~1", "main")).
			To(Equal("states/" + keyOf("scaled") + ".json"))
		Expect(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("scaled")+
			".json")).To(And(ContainSubstring(`"cluster_name": "scaled"`),
			Not(ContainSubstring(unknown)), Not(ContainSubstring(`"new"`)), Not(ContainSubstring("by ksctl"))))
		Eventually(ctx, func() map[string]string {
			return stored(ctx, there)
		}, soon).Should(HaveKeyWithValue(keyOf("scaled"), scaled))
		requestReconcile(ctx, out, "once more")
		Expect(commits(ctx, repo)).To(Equal("2"))
	})

	It("keeps files of others, repairs its own, and commits on top of other commits", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		createStore(ctx, ns,
			map[string]string{keyOf("demo"): document("demo", "one"), keyOf("taken"): document("taken", "one")})
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx, map[string]string{"states/README": "mine", "states/" + keyOf("taken") +
			".json": "mine, too",
			// a file of the same cluster from an earlier release, whose status is lost
			"states/" + keyOf("demo") + ".json": encryptOldFormat(document("demo", "one"), mine)}, "one")
		Expect(err).NotTo(HaveOccurred())
		out := newExport(ns, toGit(repo), mine)
		create(ctx, out)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(HavePrefix("False FileTaken: " + keyOf("taken") + ": a file with this name exists in the target"))
		Expect(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("taken")+".json")).To(Equal("mine, too"))
		Expect(decrypt(ctx, []byte(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).
			To(Equal(canonical([]byte(document("demo", "one")))))
		Expect(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")).
			NotTo(ContainSubstring(`"one"`))

		By("removing the other file, and breaking a file of the export")
		_, err = repo.Commit(ctx, map[string]string{"states/" + keyOf("demo") + ".json": "broken"}, "two",
			gitserver.Delete("states/"+keyOf("taken")+".json"))
		Expect(err).NotTo(HaveOccurred())
		requestReconcile(ctx, out, "again")
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(Equal("True ReconciliationSucceeded: 2 states in branch main of " + repo.URL() + ", folder states"))
		Expect(decrypt(ctx, []byte(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).
			To(Equal(canonical([]byte(document("demo", "one")))))
		Expect(runGit(ctx, repo, "cat-file", "blob", "main:states/README")).To(Equal("mine"))
		Expect(commits(ctx, repo)).To(Equal("4"))

		By("another recipient")
		other := identity()
		patch(ctx, out, fmt.Sprintf(`{"spec":{"recipients":[%q]}}`, other.Recipient()))
		Eventually(ctx, func() string { return commits(ctx, repo) }, soon).Should(Equal("5"))
		Eventually(ctx, exportReady(ctx, out), soon).Should(HavePrefix("True "))
		Expect(decrypt(ctx, []byte(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("taken")+".json")),
			other)).To(Equal(canonical([]byte(document("taken", "one")))))

		By("pruning a cluster that ksctl deletes")
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}}
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:null}}`, keyOf("taken")))
		Eventually(ctx, exportReady(ctx, out), soon).Should(ContainSubstring("and kept: 1 state"))
		Expect(commits(ctx, repo)).To(Equal("5"))
		patch(ctx, out, `{"spec":{"prune":true}}`)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(HavePrefix("True ReconciliationSucceeded: 1 state in branch main"))
		Expect(runGit(ctx, repo, "ls-tree", "-r", "--name-only", "main")).
			To(Equal("states/README\nstates/" + keyOf("demo") + ".json"))

		By("deleting the export, which keeps all files")
		Expect(h.ControlPlane.Client().Delete(ctx, out)).To(Succeed())
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(out), out)
		}, soon).Should(Satisfy(apierrors.IsNotFound))
		Expect(commits(ctx, repo)).To(Equal("6"))
	})

	It("does not write a file of an older ExportState, and takes over when that is suspended", func(ctx SpecContext) {
		ns, there, mine := namespace(ctx), namespace(ctx), identity()
		createStore(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		createStore(ctx, there,
			map[string]string{keyOf("demo"): document("demo", "another"), keyOf("mine"): document("mine", "one")})
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		older := newExport(ns, toGit(repo), mine)
		younger := newExport(ns, toGit(repo), mine, func(spec *v1alpha1.ExportStateSpec) {
			spec.From.Namespace = there
		})
		younger.Name = "younger" // of two with the same creation time, the first by name counts as older
		create(ctx, older)
		Eventually(ctx, exportReady(ctx, older), soon).Should(HavePrefix("True ReconciliationSucceeded: 1 state"))
		create(ctx, younger)
		Eventually(ctx, exportReady(ctx, younger), soon).
			Should(HavePrefix("False ExportedByAnother: " + keyOf("demo") + ": older ExportState " + ns +
				"/export writes this file to the same folder"))
		Expect(runGit(ctx, repo, "ls-tree", "-r", "--name-only", "main")).
			To(Equal("states/" + keyOf("demo") + ".json\nstates/" + keyOf("mine") + ".json"))
		requestReconcile(ctx, older, "again")
		requestReconcile(ctx, younger, "again")
		Expect(commits(ctx, repo)).To(Equal("2"))
		Expect(decrypt(ctx, []byte(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).
			To(Equal(canonical([]byte(document("demo", "one")))))

		By("suspending the older one, which takes effect at once")
		patch(ctx, older, `{"spec":{"suspend":true}}`)
		Eventually(ctx, exportReady(ctx, younger), soon).Should(HavePrefix("True ReconciliationSucceeded: 2 states"))
		Expect(decrypt(ctx, []byte(runGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).
			To(Equal(canonical([]byte(document("demo", "another")))))
		Expect(commits(ctx, repo)).To(Equal("3"))
	})

	It("reports why a push fails, and pushes when it is possible", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		createStore(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		guarded := framework.GitServer(gitserver.WithBasicAuth("robot", scanner.AddSecret("a-password-of-git")))
		repo, err := guarded.NewRepo(ctx, "fleet")
		Expect(err).NotTo(HaveOccurred())
		out := newExport(ns, toGit(repo), mine, func(s *v1alpha1.ExportStateSpec) {
			s.To.Git.SecretRef = &fluxmeta.LocalObjectReference{Name: "login"}
		})
		create(ctx, out)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(HavePrefix("False SecretNotFound: Secret " + ns + "/login does not exist"))
		login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"},
			StringData: map[string]string{"username": "robot", "password": "another"}}
		create(ctx, login)
		Eventually(ctx, exportReady(ctx, out), soon).Should(HavePrefix("False AuthenticationFailed: "))
		login.StringData = map[string]string{"username": "robot", "password": "a-password-of-git"}
		Expect(h.ControlPlane.Client().Update(ctx, login)).To(Succeed())
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(HavePrefix("True ReconciliationSucceeded: 1 state in branch main"))
	})

	It("needs only the permissions in docs/state.md", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		createStore(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet-git"},
			StringData: map[string]string{"username": "robot", "password": "unused"}})
		rights, err := harness.CodeBlocks("docs/state.md", "The account of an export", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(rights).To(HaveLen(1))
		Expect(h.ControlPlane.ApplyYAML(ctx,
			[]byte(strings.NewReplacer("namespace: team", "namespace: "+ns, "namespace: ksctl", "namespace: "+ns).
				Replace(rights[0])))).To(Succeed())
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		out := newExport(ns, toGit(repo), mine, func(s *v1alpha1.ExportStateSpec) {
			s.ServiceAccountName, s.To.Git.SecretRef = "exporter", &fluxmeta.LocalObjectReference{Name: "fleet-git"}
			s.RetryInterval = &metav1.Duration{Duration: time.Second} // permissions take effect with a delay
		})
		create(ctx, out)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(HavePrefix("True ReconciliationSucceeded: 1 state in branch main"))
	})

	It("writes a Secret of its own, and deletes it only with deletionPolicy Delete", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		cm := createStore(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "backup"},
			StringData: map[string]string{"a": "b"}})
		out := newExport(ns, toSecret("backup"), mine)
		create(ctx, out)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(HavePrefix("False SecretConflict: Secret " + ns + "/backup exists"))
		patch(ctx, out, `{"spec":{"to":{"secret":{"name":"states"}}}}`)
		Eventually(ctx, exportReady(ctx, out), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state in Secret states"))
		var secret corev1.Secret
		name := client.ObjectKey{Namespace: ns, Name: "states"}
		Expect(h.ControlPlane.Client().Get(ctx, name, &secret)).To(Succeed())
		Expect(secret.Data).To(HaveLen(1))
		Expect(decrypt(ctx, secret.Data[keyOf("demo")+".json"], mine)).
			To(Equal(canonical([]byte(document("demo", "one")))))

		By("a reconcile request without a change")
		requestReconcile(ctx, out, "again")
		var after corev1.Secret
		Expect(h.ControlPlane.Client().Get(ctx, name, &after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(secret.ResourceVersion))

		By("a change, and a deletion of the Secret")
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:%q}}`, keyOf("demo"), encoded(document("demo", "two"))))
		Eventually(ctx, func(g Gomega) {
			g.Expect(h.ControlPlane.Client().Get(ctx, name, &after)).To(Succeed())
			g.Expect(decrypt(ctx, after.Data[keyOf("demo")+".json"], mine)).To(ContainSubstring(`"two"`))
		}, soon).Should(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, &after)).To(Succeed())
		Eventually(ctx, func() error { return h.ControlPlane.Client().Get(ctx, name, &after) }, soon).Should(Succeed())

		By("deleting the export")
		patch(ctx, out, `{"spec":{"deletionPolicy":"Delete"}}`)
		Expect(h.ControlPlane.Client().Delete(ctx, out)).To(Succeed())
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(out), out)
		}, soon).Should(Satisfy(apierrors.IsNotFound))
		Expect(h.ControlPlane.Client().Get(ctx, name, &after)).To(Satisfy(apierrors.IsNotFound))
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "backup"}, &after)).
			To(Succeed(), "the other Secret stays")
	})
})
