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
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// exported is an ExportState of the store in its own namespace.
func exported(ns string, to v1alpha1.ExportTarget, reader *age.X25519Identity, change ...func(*v1alpha1.ExportStateSpec)) *v1alpha1.ExportState {
	hour := &metav1.Duration{Duration: time.Hour}
	out := &v1alpha1.ExportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "export"},
		Spec: v1alpha1.ExportStateSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour}, From: &v1alpha1.StateStore{Namespace: ns},
			Recipients: []string{reader.Recipient().String()}, To: to, ServiceAccountName: harness.Deployer}}
	for _, f := range change {
		f(&out.Spec)
	}
	return out
}

func toGit(repo *gitserver.Repo) v1alpha1.ExportTarget {
	return v1alpha1.ExportTarget{Git: &v1alpha1.ExportRepository{URL: repo.URL(), Branch: "main", Path: "states", Author: v1alpha1.CommitAuthor{Name: "Robot", Email: "robot@example.com"}}}
}

func toSecret(name string) v1alpha1.ExportTarget {
	return v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: name}}
}

// exports is how an export stands at its spec.
func exports(ctx context.Context, out *v1alpha1.ExportState) func() (string, error) {
	return func() (string, error) {
		if err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(out), out); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(out.Status.Conditions, appsv1.ReadyCondition)
		if c == nil || c.ObservedGeneration != out.Generation {
			return "", nil
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
	}
}

// askAgain asks an export for a reconcile and waits for its answer.
func askAgain(ctx context.Context, out *v1alpha1.ExportState, word string) {
	GinkgoHelper()
	patch(ctx, out, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, word))
	Eventually(ctx, func() (string, error) {
		err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(out), out)
		return out.Status.LastHandledReconcileAt, err
	}, soon).Should(Equal(word))
}

func inGit(ctx context.Context, repo *gitserver.Repo, args ...string) string {
	GinkgoHelper()
	out, err := git.Git(ctx, repo.Dir(), args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func commits(ctx context.Context, repo *gitserver.Repo) string {
	GinkgoHelper()
	return inGit(ctx, repo, "rev-list", "--count", "main")
}

// opened is what an encrypted file says, canonical.
func opened(ctx context.Context, data []byte, with *age.X25519Identity) string {
	GinkgoHelper()
	plain, err := codec.Decrypter(codec.Options{})(ctx, sops.Request{Data: data, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(with.String())}})
	Expect(err).NotTo(HaveOccurred())
	return canonical(plain)
}

func keep(ctx context.Context, ns string, states map[string]string) *corev1.ConfigMap {
	GinkgoHelper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}, BinaryData: map[string][]byte{}}
	for key, doc := range states {
		cm.BinaryData[key] = []byte(doc)
	}
	create(ctx, cm)
	return cm
}

var _ = Describe("An ExportState", func() {
	It("commits what an ImportState elsewhere brings back equal, and commits again only what ksctl has changed", func(ctx SpecContext) {
		ns, there, mine := namespace(ctx), namespace(ctx), identity()
		files := map[string]string{}
		for _, name := range []string{"v1_0_civo_ha_k3s", "v1_azure_ha_k3s", "v1_aws_ha_kubeadm", "v1_local_managed", "v1_2_0_aws_managed", "v2_0_azure_selfmanaged", "v2_aws_managed"} {
			files["clusters/"+name+".json"] = string(ofStore(name + ".json"))
		}
		publish(ctx, ns, "main@sha1:1", files)
		in := imported(ns)
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds"))
		want := stored(ctx, ns)
		Expect(want).To(HaveLen(7))

		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		out := exported(ns, toGit(repo), mine, func(s *v1alpha1.ExportStateSpec) { s.Credentials = v1alpha1.ExportCredentials })
		create(ctx, out)
		Eventually(ctx, exports(ctx, out), soon).Should(Equal("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds in branch main of " + repo.URL() + ", folder states"))
		Expect(commits(ctx, repo)).To(Equal("1"))
		Expect(out.Status.LastExportedRevision).To(Equal("main@sha1:" + inGit(ctx, repo, "rev-parse", "main")))
		Expect(out.Status.Clusters).To(HaveLen(7))
		Expect(inGit(ctx, repo, "log", "-1", "--format=%an <%ae>%n%B", "main")).To(And(HavePrefix("Robot <robot@example.com>\nExport the state of clusters\n"), ContainSubstring("- azure.ha.demo.eastus.json\n"), ContainSubstring("ExportState: "+ns+"/export")))
		for name := range strings.SplitSeq(inGit(ctx, repo, "ls-tree", "-r", "--name-only", "main"), "\n") {
			readable, err := state.Secrets([]byte(inGit(ctx, repo, "cat-file", "blob", "main:"+name)))
			Expect(err).NotTo(HaveOccurred())
			Expect(readable).To(BeEmpty(), name)
		}

		By("importing that elsewhere")
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "age"}, StringData: map[string]string{"keys.agekey": mine.String()}})
		create(ctx, &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "src"}, Spec: appsv1.KsctlSourceSpec{
			Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Second}}, Git: &appsv1.GitSource{URL: repo.URL()}}})
		back := imported(there, func(s *v1alpha1.ImportStateSpec) {
			s.Path, s.AllowPlaintext = "states", false
			s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		create(ctx, back)
		Eventually(ctx, stands(ctx, back), soon).Should(HavePrefix("True ReconciliationSucceeded: 7 states and the credentials of 3 clouds"))
		Expect(stored(ctx, there)).To(Equal(want))
		var first, second corev1.Secret
		Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreSecret}, &first)).To(Succeed())
		Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: there, Name: state.StoreSecret}, &second)).To(Succeed())
		for cloud, data := range first.Data {
			Expect(canonical(second.Data[cloud])).To(Equal(canonical(data)), cloud)
		}

		By("asking for a reconcile with nothing new")
		before := out.Status.LastExportedRevision
		askAgain(ctx, out, "again")
		Expect(commits(ctx, repo)).To(Equal("1"))
		Expect(out.Status.LastExportedRevision).To(Equal(before))

		By("changing one state as ksctl does")
		unknown := heard.Secret("what-a-later-release-adds")
		scaled := canonical([]byte(replaced(document("scaled", "by ksctl"), `"words":`, `"vault":{"name":"new","unseal":["`+unknown+`"]},"words":`)))
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}}
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:%q}}`, keyOf("scaled"), encoded(scaled)))
		Eventually(ctx, func() string { return commits(ctx, repo) }, soon).Should(Equal("2"))
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("True ReconciliationSucceeded: 8 states"))
		Expect(inGit(ctx, repo, "diff", "--name-only", "main~1", "main")).To(Equal("states/" + keyOf("scaled") + ".json"))
		Expect(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("scaled")+".json")).To(And(ContainSubstring(`"cluster_name": "scaled"`),
			Not(ContainSubstring(unknown)), Not(ContainSubstring(`"new"`)), Not(ContainSubstring("by ksctl"))))
		Eventually(ctx, func() map[string]string { return stored(ctx, there) }, soon).Should(HaveKeyWithValue(keyOf("scaled"), scaled))
		askAgain(ctx, out, "once more")
		Expect(commits(ctx, repo)).To(Equal("2"))
	})

	It("leaves files of others, mends its own, and goes on top of what others push", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		keep(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one"), keyOf("taken"): document("taken", "one")})
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx, map[string]string{"states/README": "mine", "states/" + keyOf("taken") + ".json": "mine, too",
			// one of the same cluster that an earlier release wrote, of whose status nothing is left
			"states/" + keyOf("demo") + ".json": sealedBefore(document("demo", "one"), mine)}, "one")
		Expect(err).NotTo(HaveOccurred())
		out := exported(ns, toGit(repo), mine)
		create(ctx, out)
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("False FileTaken: " + keyOf("taken") + ": the file that it would go to is there"))
		Expect(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("taken")+".json")).To(Equal("mine, too"))
		Expect(opened(ctx, []byte(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).To(Equal(canonical([]byte(document("demo", "one")))))
		Expect(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")).NotTo(ContainSubstring(`"one"`))

		By("moving that away, and breaking the file that is the export's")
		_, err = repo.Commit(ctx, map[string]string{"states/" + keyOf("demo") + ".json": "broken"}, "two", gitserver.Delete("states/"+keyOf("taken")+".json"))
		Expect(err).NotTo(HaveOccurred())
		askAgain(ctx, out, "again")
		Eventually(ctx, exports(ctx, out), soon).Should(Equal("True ReconciliationSucceeded: 2 states in branch main of " + repo.URL() + ", folder states"))
		Expect(opened(ctx, []byte(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).To(Equal(canonical([]byte(document("demo", "one")))))
		Expect(inGit(ctx, repo, "cat-file", "blob", "main:states/README")).To(Equal("mine"))
		Expect(commits(ctx, repo)).To(Equal("4"))

		By("another recipient")
		other := identity()
		patch(ctx, out, fmt.Sprintf(`{"spec":{"recipients":[%q]}}`, other.Recipient()))
		Eventually(ctx, func() string { return commits(ctx, repo) }, soon).Should(Equal("5"))
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("True "))
		Expect(opened(ctx, []byte(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("taken")+".json")), other)).To(Equal(canonical([]byte(document("taken", "one")))))

		By("a cluster that ksctl deletes, and pruning")
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}}
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:null}}`, keyOf("taken")))
		Eventually(ctx, exports(ctx, out), soon).Should(ContainSubstring("and kept: 1 state"))
		Expect(commits(ctx, repo)).To(Equal("5"))
		patch(ctx, out, `{"spec":{"prune":true}}`)
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("True ReconciliationSucceeded: 1 state in branch main"))
		Expect(inGit(ctx, repo, "ls-tree", "-r", "--name-only", "main")).To(Equal("states/README\nstates/" + keyOf("demo") + ".json"))

		By("its deletion, which leaves everything")
		Expect(h.Plane.Client().Delete(ctx, out)).To(Succeed())
		Eventually(ctx, func() error { return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(out), out) }, soon).Should(Satisfy(apierrors.IsNotFound))
		Expect(commits(ctx, repo)).To(Equal("6"))
	})

	It("leaves to an older one what that writes to the same folder, and takes over when it is suspended", func(ctx SpecContext) {
		ns, there, mine := namespace(ctx), namespace(ctx), identity()
		keep(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		keep(ctx, there, map[string]string{keyOf("demo"): document("demo", "another"), keyOf("mine"): document("mine", "one")})
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		older := exported(ns, toGit(repo), mine)
		younger := exported(ns, toGit(repo), mine, func(spec *v1alpha1.ExportStateSpec) { spec.From.Namespace = there })
		younger.Name = "younger" // of those of one second the first by name is the older one
		create(ctx, older)
		Eventually(ctx, exports(ctx, older), soon).Should(HavePrefix("True ReconciliationSucceeded: 1 state"))
		create(ctx, younger)
		Eventually(ctx, exports(ctx, younger), soon).Should(HavePrefix("False ExportedByAnother: " + keyOf("demo") + ": ExportState " + ns + "/export, which is older, writes it to the same folder"))
		Expect(inGit(ctx, repo, "ls-tree", "-r", "--name-only", "main")).To(Equal("states/" + keyOf("demo") + ".json\nstates/" + keyOf("mine") + ".json"))
		askAgain(ctx, older, "again")
		askAgain(ctx, younger, "again")
		Expect(commits(ctx, repo)).To(Equal("2"))
		Expect(opened(ctx, []byte(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).To(Equal(canonical([]byte(document("demo", "one")))))

		By("suspending the older one, which is noticed at once")
		patch(ctx, older, `{"spec":{"suspend":true}}`)
		Eventually(ctx, exports(ctx, younger), soon).Should(HavePrefix("True ReconciliationSucceeded: 2 states"))
		Expect(opened(ctx, []byte(inGit(ctx, repo, "cat-file", "blob", "main:states/"+keyOf("demo")+".json")), mine)).To(Equal(canonical([]byte(document("demo", "another")))))
		Expect(commits(ctx, repo)).To(Equal("3"))
	})

	It("says why it can't push, and pushes when it can", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		keep(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		guarded, err := gitserver.New(GinkgoT().TempDir(), gitserver.WithLogin("robot", heard.Secret("a-password-of-git")))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(guarded.Close)
		repo, err := guarded.NewRepo(ctx, "fleet")
		Expect(err).NotTo(HaveOccurred())
		out := exported(ns, toGit(repo), mine, func(s *v1alpha1.ExportStateSpec) {
			s.To.Git.SecretRef = &fluxmeta.LocalObjectReference{Name: "login"}
		})
		create(ctx, out)
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("False SecretNotFound: there is no Secret " + ns + "/login"))
		login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"}, StringData: map[string]string{"username": "robot", "password": "another"}}
		create(ctx, login)
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("False AuthenticationFailed: "))
		login.StringData = map[string]string{"username": "robot", "password": "a-password-of-git"}
		Expect(h.Plane.Client().Update(ctx, login)).To(Succeed())
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("True ReconciliationSucceeded: 1 state in branch main"))
	})

	It("needs no more rights than the page says", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		keep(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet-git"}, StringData: map[string]string{"username": "robot", "password": "unused"}})
		rights, err := harness.Blocks("docs/state.md", "The account of an export", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(rights).To(HaveLen(1))
		Expect(h.Plane.ApplyYAML(ctx, []byte(strings.NewReplacer("namespace: team", "namespace: "+ns, "namespace: ksctl", "namespace: "+ns).Replace(rights[0])))).To(Succeed())
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		out := exported(ns, toGit(repo), mine, func(s *v1alpha1.ExportStateSpec) {
			s.ServiceAccountName, s.To.Git.SecretRef = "exporter", &fluxmeta.LocalObjectReference{Name: "fleet-git"}
			s.RetryInterval = &metav1.Duration{Duration: time.Second} // rights may be a moment behind
		})
		create(ctx, out)
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("True ReconciliationSucceeded: 1 state in branch main"))
	})

	It("keeps states in a Secret of its own, and takes it away only if it is told to", func(ctx SpecContext) {
		ns, mine := namespace(ctx), identity()
		cm := keep(ctx, ns, map[string]string{keyOf("demo"): document("demo", "one")})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "backup"}, StringData: map[string]string{"a": "b"}})
		out := exported(ns, toSecret("backup"), mine)
		create(ctx, out)
		Eventually(ctx, exports(ctx, out), soon).Should(HavePrefix("False SecretTaken: Secret " + ns + "/backup exists"))
		patch(ctx, out, `{"spec":{"to":{"secret":{"name":"states"}}}}`)
		Eventually(ctx, exports(ctx, out), soon).Should(Equal("True ReconciliationSucceeded: 1 state in Secret states"))
		var secret corev1.Secret
		name := client.ObjectKey{Namespace: ns, Name: "states"}
		Expect(h.Plane.Client().Get(ctx, name, &secret)).To(Succeed())
		Expect(secret.Data).To(HaveLen(1))
		Expect(opened(ctx, secret.Data[keyOf("demo")+".json"], mine)).To(Equal(canonical([]byte(document("demo", "one")))))

		By("asking for a reconcile with nothing new")
		askAgain(ctx, out, "again")
		var after corev1.Secret
		Expect(h.Plane.Client().Get(ctx, name, &after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(secret.ResourceVersion))

		By("a change, and the loss of the Secret")
		patch(ctx, cm, fmt.Sprintf(`{"binaryData":{%q:%q}}`, keyOf("demo"), encoded(document("demo", "two"))))
		Eventually(ctx, func(g Gomega) {
			g.Expect(h.Plane.Client().Get(ctx, name, &after)).To(Succeed())
			g.Expect(opened(ctx, after.Data[keyOf("demo")+".json"], mine)).To(ContainSubstring(`"two"`))
		}, soon).Should(Succeed())
		Expect(h.Plane.Client().Delete(ctx, &after)).To(Succeed())
		Eventually(ctx, func() error { return h.Plane.Client().Get(ctx, name, &after) }, soon).Should(Succeed())

		By("its deletion")
		patch(ctx, out, `{"spec":{"deletionPolicy":"Delete"}}`)
		Expect(h.Plane.Client().Delete(ctx, out)).To(Succeed())
		Eventually(ctx, func() error { return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(out), out) }, soon).Should(Satisfy(apierrors.IsNotFound))
		Expect(h.Plane.Client().Get(ctx, name, &after)).To(Satisfy(apierrors.IsNotFound))
		Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "backup"}, &after)).To(Succeed(), "it was never the export's")
	})
})
