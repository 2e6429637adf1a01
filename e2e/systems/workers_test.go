package systems_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scripts of the specs. A module of WebAssembly that adds two numbers is beside the second one.
const (
	greetingScript = `export default {
  async fetch(request, env) {
    const name = new URL(request.url).searchParams.get('name')
    return new Response(env.WASM_WORKER_GREETING + ', ' + name.toUpperCase() + ' VERSION')
  }
}`
	sumScript = `import wasm from './add.wasm'
export default {
  async fetch(request) {
    const p = new URL(request.url).searchParams
    const { exports } = new WebAssembly.Instance(wasm)
    return new Response('sum ' + exports.add(Number(p.get('a')), Number(p.get('b'))))
  }
}`
)

// addModule is (module (func (export "add") (param i32 i32) (result i32)
// local.get 0 local.get 1 i32.add)).
var addModule = []byte("\x00asm\x01\x00\x00\x00\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f\x03\x02\x01\x00" +
	"\x07\x07\x01\x03add\x00\x00\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b")

var _ = Describe("Workers", Ordered, ContinueOnFailure, func() {
	var w *workerServers
	BeforeAll(func(ctx SpecContext) { w = newWorkerServers(ctx) }, NodeTimeout(15*time.Minute))

	It("run scripts of a web server and of S3, whatever is released", func(ctx SpecContext) {
		By("applying the example, and another script")
		w.files.put("/hello/1/index.mjs", greeting(1))
		apply(ctx, example("workers.md", "An account and a script", "workers/acme.yaml",
			"https://files.example.com", w.files.url))
		sum, hello := w.newSum(ctx, "acme"), w.deployment("acme.hello")
		DeferCleanup(func(ctx SpecContext) { w.removeAccount(ctx, "acme") })
		becomes(ctx, hello, "Ready", "True ")
		becomes(ctx, sum, "Ready", "True ")
		w.serves(ctx, "acme", 8080, "/?name=world", "200 Hello, WORLD 1")
		w.serves(ctx, "acme", 8081, "/?a=40&b=2", "200 sum 42")
		Expect(status(hello)).To(ContainSubstring(`"url":"http://acme.workers.svc:8080"`))
		w.settles(ctx, "acme")
		account := object(workersKind("WorkerAccount"), "workers", "acme")
		becomes(ctx, account, "Ready", "True ")
		Eventually(ctx, func() (string, error) { return status(account), get(ctx, account) }, soon).
			Should(ContainSubstring(`"workers":2`))
		Expect(w.files.downloads("/hello/1/index.mjs")).To(Equal(1))

		By("replacing one of them")
		w.replaceOne(ctx)
		By("releasing scripts that fail, and failing a build")
		w.failReleases(ctx)
		By("going back to old content, and shortening the history")
		w.goBack(ctx)
	}, SpecTimeout(20*time.Minute))

	It("pass on a changed Secret without a build", func(ctx SpecContext) {
		w.newAccount(ctx, "secret")
		jobs, pod := w.jobs(ctx), w.pod(ctx, "secret")
		load := w.load(ctx, "secret", map[int]string{8080: "/?name=x", 8081: "/?a=1&b=2"})
		change(ctx, &corev1.Secret{ObjectMeta: meta("workers", "secret")}, `{"stringData": {"GREETING": "Bonjour"}}`)
		w.serves(ctx, "secret", 8080, "/?name=world", "200 Bonjour, WORLD 1")
		load.none()
		Expect(w.pod(ctx, "secret").UID).To(Equal(pod.UID))
		Expect(w.jobs(ctx)).To(Equal(jobs))
	}, SpecTimeout(15*time.Minute))

	It("keep images when the registry restarts, and delete those that are purged", func(ctx SpecContext) {
		w.newAccount(ctx, "purged")
		before, layer := w.tags(ctx, "purged"), w.layers(ctx, "purged")["hello"]
		Expect(before).NotTo(BeEmpty(), "one with both scripts, and perhaps one with the first script alone")
		w.restartRegistry(ctx)
		Expect(w.tags(ctx, "purged")).To(Equal(before))

		By("making more images than are kept")
		change(ctx, w.deployment("purged.hello"), `{"spec": {"releaseHistoryLimit": 1}}`)
		for version := 2; version <= 5; version++ {
			w.release(ctx, "purged", version)
		}
		tags := w.tags(ctx, "purged")
		Expect(tags).To(HaveLen(4), "the current one, and the three before")
		for _, tag := range before {
			Expect(tags).NotTo(ContainElement(tag))
		}
		Eventually(ctx, w.tags, soon).WithArguments("purged/hello").Should(HaveLen(2), "the history is one release")
		w.collectGarbage()
		Eventually(ctx, w.hasBlob, soon).WithArguments("purged", layer).Should(BeFalse())
		for _, tag := range tags {
			w.pulls(ctx, "purged:"+tag)
		}

		By("losing the volume of the registry")
		w.loseImages(ctx)
		for _, kind := range []string{"WorkerRelease", "WorkerBundle"} {
			w.deleteAll(ctx, kind, "purged")
		}
		w.serves(ctx, "purged", 8080, "/?name=world", "200 Hello, WORLD 5")
		w.settles(ctx, "purged")
		Expect(w.tags(ctx, "purged")).NotTo(BeEmpty())
	}, SpecTimeout(15*time.Minute))

	It("serve a script that wrangler uploads, for the token of the account alone", func(ctx SpecContext) {
		w.uploads(ctx)
	}, SpecTimeout(uploadTimeout))

	It("use the registry of a namespace", func(ctx SpecContext) { w.useRegistry(ctx) }, SpecTimeout(10*time.Minute))

	It("lose no worker of 20 releases at once, and are gone with their account", func(ctx SpecContext) {
		w.newAccount(ctx, "calm")
		pod := w.pod(ctx, "calm")
		load := w.load(ctx, "calm", map[int]string{8080: "/?name=x"})
		w.releaseMany(ctx)

		By("removing the account")
		w.removeAccount(ctx, "busy")
		Expect(w.repositories(ctx)).NotTo(ContainElement(HavePrefix("busy")))
		load.none()
		Expect(w.pod(ctx, "calm").UID).To(Equal(pod.UID))
	}, SpecTimeout(25*time.Minute))
})

// greeting returns a version of the script hello.
func greeting(version int) string {
	return strings.Replace(greetingScript, "VERSION", strconv.Itoa(version), 1)
}

// replaceOne releases the second version of hello in the account acme.
func (w *workerServers) replaceOne(ctx context.Context) {
	GinkgoHelper()
	before, releases := w.layers(ctx, "acme"), w.releases(ctx, "acme")
	load := w.load(ctx, "acme", map[int]string{8080: "/?name=x", 8081: "/?a=1&b=2"})
	w.release(ctx, "acme", 2)
	load.none()
	Expect(w.layers(ctx, "acme")).To(HaveKeyWithValue("sum", before["sum"]))
	Expect(w.layers(ctx, "acme")["hello"]).NotTo(Equal(before["hello"]))
	Expect(w.releases(ctx, "acme")).To(HaveLen(3))
	for name, uid := range releases {
		Expect(w.releases(ctx, "acme")).To(HaveKeyWithValue(name, uid), "it is kept")
	}
}

// failReleases releases a script that does not exist, and one that workerd refuses, and makes a
// build fail.
func (w *workerServers) failReleases(ctx context.Context) {
	GinkgoHelper()
	w.files.put("/hello/bad/index.mjs", "export default {")
	bundle := object(workersKind("WorkerBundle"), "workers", "acme")
	Expect(get(ctx, bundle)).To(Succeed())
	generation := bundle.GetGeneration()
	load := w.load(ctx, "acme", map[int]string{8080: "/?name=x", 8081: "/?a=1&b=2"})
	hello := w.deployment("acme.hello")
	for url, message := range map[string]string{"/hello/none/index.mjs": "404", "/hello/bad/index.mjs": "index.mjs"} {
		w.setScript(ctx, "acme.hello", w.files.url+url)
		Eventually(ctx, func() (string, error) {
			err := get(ctx, hello)
			return condition(hello, "Ready"), err
		}, soon).Should(And(Not(HavePrefix("True ")), ContainSubstring("failed: "), ContainSubstring(message)))
	}
	Expect(get(ctx, bundle)).To(Succeed())
	Expect(bundle.GetGeneration()).To(Equal(generation), "a failed release reaches no bundle")

	account := object(workersKind("WorkerAccount"), "workers", "acme")
	change(ctx, account, fmt.Sprintf(`{"spec": {"podTemplate": {"image": %q}}}`, w.images+"/UPPER:1"))
	becomes(ctx, bundle, "Ready", "False JobFailed: ")
	Expect(condition(bundle, "Ready")).To(ContainSubstring("/UPPER:1"))
	change(ctx, account, `{"spec": {"podTemplate": null}}`)
	Eventually(ctx, func() (string, error) { return w.buildResult(ctx, "acme"), nil }, soon).
		Should(ContainSubstring(`"built":false`), "the image before is still there")
	w.settles(ctx, "acme")
	load.none()
	w.serves(ctx, "acme", 8080, "/?name=world", "200 Hello, WORLD 2")
}

// goBack releases the first version of hello again, and shortens the history.
func (w *workerServers) goBack(ctx context.Context) {
	GinkgoHelper()
	w.release(ctx, "acme", 1)
	Expect(w.files.downloads("/hello/1/index.mjs")).To(Equal(1))
	Expect(w.buildResult(ctx, "acme")).To(ContainSubstring(`"built":false`))
	change(ctx, w.deployment("acme.hello"), `{"spec": {"releaseHistoryLimit": 1}}`)
	Eventually(ctx, w.releases, soon).WithArguments("acme").Should(HaveLen(3), "two of hello, one of sum")
	Eventually(ctx, w.tags, soon).WithArguments("acme/hello").Should(HaveLen(1), "a failed release has no image")
}

// useRegistry runs a worker in a namespace with another registry than that of the stack.
func (w *workerServers) useRegistry(ctx context.Context) {
	GinkgoHelper()
	apply(ctx, `
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: workers, namespace: elsewhere}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: workers, namespace: elsewhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: workers, namespace: elsewhere}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: workers, namespace: elsewhere}
data: {image: "`+w.images+`/ksctl/gitops/workers:0.1.0", registry: "`+w.images+`"}
`)
	w.files.put("/far/index.mjs", "export default { fetch() { return new Response('far') } }")
	account, o := object(workersKind("WorkerAccount"), "elsewhere", "far"),
		workerDeployment("far", "near", 8080, w.files.url+"/far/index.mjs")
	o.SetNamespace("elsewhere")
	for _, created := range []client.Object{account, o} {
		Expect(plane.Client().Create(ctx, created)).To(Succeed())
	}
	becomes(ctx, o, "Ready", "True ")
	service := &corev1.Service{ObjectMeta: meta("elsewhere", "far")}
	Eventually(ctx, fetch, soon).WithArguments(service, "/").Should(Equal("200 far"))
	repository, err := name.NewRepository(images.Host() + "/elsewhere/far")
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.List(repository, remote.WithContext(ctx))).To(HaveLen(1))
	for _, removed := range []client.Object{o, account} {
		remove(ctx, removed)
		gone(ctx, removed)
	}
}

// left returns what there is of an account.
func (w *workerServers) left(ctx context.Context, account string) (out []string, err error) {
	selected := &client.ListOptions{Namespace: "workers",
		LabelSelector: labels.SelectorFromSet(labels.Set{"accounts": account})}
	for _, kind := range []string{"WorkerAccount", "WorkerDeployment", "WorkerRelease", "WorkerBundle"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(workersKind(kind + "List"))
		if err := plane.Client().List(ctx, list, selected); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			out = append(out, kind+"/"+o.GetName())
		}
	}
	for _, list := range []client.ObjectList{&k8sappsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.PodList{},
		&batchv1.JobList{}} {
		if err := plane.Client().List(ctx, list, client.InNamespace("workers")); err != nil {
			return nil, err
		}
		for _, o := range objectsOf(list) {
			if o.GetLabels()["accounts"] == account || strings.HasPrefix(o.GetName(), account+"-") {
				out = append(out, fmt.Sprintf("%T/%s", o, o.GetName()))
			}
		}
	}
	return out, nil
}

// pod returns the Pod that serves an account.
func (w *workerServers) pod(ctx context.Context, account string) corev1.Pod {
	GinkgoHelper()
	var found corev1.Pod
	Eventually(ctx, func(g Gomega) {
		var pods corev1.PodList
		g.Expect(plane.Client().List(ctx, &pods, client.InNamespace("workers"),
			client.MatchingLabels{"accounts": account, "app.kubernetes.io/name": "workers"})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		found = pods.Items[0]
	}, soon).Should(Succeed(), "one Pod serves the account")
	return found
}

// jobs returns the uids of all Jobs.
func (w *workerServers) jobs(ctx context.Context) (out []string) {
	GinkgoHelper()
	var all batchv1.JobList
	Expect(plane.Client().List(ctx, &all, client.InNamespace("workers"))).To(Succeed())
	for _, j := range all.Items {
		out = append(out, string(j.UID))
	}
	slices.Sort(out)
	return out
}

// releases returns the WorkerReleases of an account with their uids.
func (w *workerServers) releases(ctx context.Context, account string) map[string]string {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(workersKind("WorkerReleaseList"))
	Expect(plane.Client().List(ctx, list, client.InNamespace("workers"),
		client.MatchingLabels{"accounts": account})).To(Succeed())
	out := map[string]string{}
	for _, o := range list.Items {
		out[o.GetName()] = string(o.GetUID())
	}
	return out
}

// newAccount makes an account with the scripts hello and sum, which are removed at the end of the
// spec, and waits until it serves them.
func (w *workerServers) newAccount(ctx context.Context, account string) {
	GinkgoHelper()
	url := "/" + account + "/1/index.mjs"
	w.files.put(url, greeting(1))
	hello := workerDeployment(account, "hello", 8080, w.files.url+url)
	Expect(unstructured.SetNestedField(hello.Object, account, "spec", "template", "secretRef", "name")).To(Succeed())
	for _, o := range []client.Object{object(workersKind("WorkerAccount"), "workers", account), hello,
		&corev1.Secret{ObjectMeta: meta("workers", account), StringData: map[string]string{"GREETING": "Hello"}}} {
		Expect(plane.Client().Create(ctx, o)).To(Succeed())
	}
	w.newSum(ctx, account)
	DeferCleanup(func(ctx SpecContext) { w.removeAccount(ctx, account) })
	w.serves(ctx, account, 8080, "/?name=world", "200 Hello, WORLD 1")
	w.serves(ctx, account, 8081, "/?a=1&b=2", "200 sum 3")
	w.settles(ctx, account)
}

// newSum creates the script sum of an account, whose modules are in S3.
func (w *workerServers) newSum(ctx context.Context, account string) *unstructured.Unstructured {
	GinkgoHelper()
	w.putObject("sum/1/index.mjs", []byte(sumScript))
	w.putObject("sum/1/add.wasm", addModule)
	o := workerDeployment(account, "sum", 8081, "s3://scripts/sum/1/index.mjs", "s3://scripts/sum/1/add.wasm")
	Expect(plane.Client().Create(ctx, o)).To(Succeed())
	return o
}

// release releases a version of the script hello, and waits until the account has settled.
func (w *workerServers) release(ctx context.Context, account string, version int) {
	GinkgoHelper()
	url := fmt.Sprintf("/hello/%d/index.mjs", version)
	w.files.put(url, greeting(version))
	w.setScript(ctx, account+".hello", w.files.url+url)
	w.serves(ctx, account, 8080, "/?name=world", fmt.Sprintf("200 Hello, WORLD %d", version))
	becomes(ctx, w.deployment(account+".hello"), "Ready", "True ")
	w.settles(ctx, account)
}

// removeAccount removes an account with its scripts, and waits until nothing of it is left.
func (w *workerServers) removeAccount(ctx context.Context, account string) {
	GinkgoHelper()
	w.deleteAll(ctx, "WorkerDeployment", account)
	remove(ctx, object(workersKind("WorkerAccount"), "workers", account))
	Eventually(ctx, w.left, soon).WithArguments(account).Should(BeEmpty())
}

// deleteAll deletes the objects of a kind of an account, and waits until they are gone, or others
// are in their place.
func (w *workerServers) deleteAll(ctx context.Context, kind, account string) {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(workersKind(kind + "List"))
	Expect(plane.Client().List(ctx, list, client.InNamespace("workers"),
		client.MatchingLabels{"accounts": account})).To(Succeed())
	for i := range list.Items {
		remove(ctx, &list.Items[i])
	}
	for i := range list.Items {
		o, uid := &list.Items[i], list.Items[i].GetUID()
		Eventually(ctx, func() (bool, error) {
			err := get(ctx, o)
			return err != nil || o.GetUID() != uid, client.IgnoreNotFound(err)
		}, soon).Should(BeTrue(), "%s %s is gone", kind, o.GetName())
	}
}

// workerDeployment returns a WorkerDeployment.
func workerDeployment(account, script string, port int64, urls ...any) *unstructured.Unstructured {
	o := object(workersKind("WorkerDeployment"), "workers", account+"."+script)
	o.SetLabels(map[string]string{"accounts": account})
	o.Object["spec"] = map[string]any{"template": map[string]any{"scriptName": script, "workerNumber": port,
		"scriptUrls": urls}}
	return o
}

// settles waits until the bundle of an account is Ready with one Pod.
func (w *workerServers) settles(ctx context.Context, account string) {
	GinkgoHelper()
	becomes(ctx, object(workersKind("WorkerBundle"), "workers", account), "Ready", "True ")
	w.pod(ctx, account)
}

func objectsOf(list client.ObjectList) (out []metav1.Object) {
	switch l := list.(type) {
	case *k8sappsv1.DeploymentList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *corev1.ServiceList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *corev1.PodList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *batchv1.JobList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	}
	return out
}
