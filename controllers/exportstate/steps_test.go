package exportstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

const team = "team"

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// exportTest tests an export with a fake cluster and a real Git repository.
type exportTest struct {
	*testing.T
	steps  *Steps
	obj    *v1alpha1.ExportState
	api    *dynamicfake.FakeDynamicClient
	server *gitserver.Server
	repo   *gitserver.Repo
	reader *age.X25519Identity
	events []string
	// persisted are the statuses that were written before the target was written.
	persisted []v1alpha1.ExportStateStatus
	onPersist func()
}

func newExportTest(t *testing.T, options ...gitserver.Option) *exportTest {
	t.Helper()
	r := &exportTest{T: t, api: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)}
	r.server, r.repo = gitserver.ForTest(t, "fleet", options...)
	var err error
	if r.reader, err = age.GenerateX25519Identity(); err != nil {
		t.Fatal(err)
	}
	r.obj = &v1alpha1.ExportState{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "backup",
		UID: "1"}, Spec: v1alpha1.ExportStateSpec{
		Recipients: []string{r.reader.Recipient().String()}, ServiceAccountName: "exporter",
		To: v1alpha1.ExportTarget{Git: &v1alpha1.ExportRepository{URL: r.repo.URL(), Branch: "main", Path: "./states/",
			Author: v1alpha1.CommitAuthor{Name: "R", Email: "r@x"}}}}}
	r.restart()
	return r
}

// restart replaces the Steps: as after a restart, only the status and the other exports are left.
func (r *exportTest) restart(others ...client.Object) {
	work := r.TempDir()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		r.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "exporter"}}).
		WithObjects(others...).
		WithIndex(&v1alpha1.ExportState{}, byTarget, func(o client.Object) []string {
			return indexers[byTarget](o.(*v1alpha1.ExportState))
		}).Build()
	r.steps = &Steps{Client: cache, Git: git.NewClient(git.Options{TempDir: work}), Encrypt: codec.Encrypt,
		SecretKey: []byte("key"), Clock: clock.RealClock{},
		Target: &engine.Target{ClientFor: func(*types.NamespacedName) (*engine.Client, error) {
			return &engine.Client{Interface: r.api}, nil
		}}}
	r.Cleanup(func() {
		if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
			r.Errorf("left behind: %v %v", left, err)
		}
	})
}

// put creates an object, or replaces an existing one.
func (r *exportTest) put(kind schema.GroupVersionResource, o runtime.Object) {
	r.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		r.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	c := r.api.Resource(kind).Namespace(u.GetNamespace())
	_ = c.Delete(r.Context(), u.GetName(), metav1.DeleteOptions{})
	if _, err := c.Create(r.Context(), u, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// store replaces the ksctl store by one with these clusters and their content.
func (r *exportTest) store(contents map[string]string) {
	r.Helper()
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: state.StoreNamespace, Name: state.StoreConfigMap},
		BinaryData: map[string][]byte{}}
	for name, w := range contents {
		cm.BinaryData["civo.ha."+name+".LON1"] = stateDoc(name, w)
	}
	r.put(configMaps, cm)
}

func (r *exportTest) secret(namespace, name string, data map[string]string) {
	r.Helper()
	s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	r.put(secretGVR, s)
}

func (r *exportTest) reconcile() reconcile.Outcome {
	r.Helper()
	req := &reconcile.Request[*v1alpha1.ExportState]{Object: r.obj,
		Event: func(_, reason, message string) { r.events = append(r.events, reason+": "+message) },
		Persist: func(context.Context, string) error {
			r.persisted = append(r.persisted, *r.obj.Status.DeepCopy())
			if r.onPersist != nil {
				r.onPersist()
			}
			return nil
		}}
	out := r.steps.Reconcile(r.Context(), req)
	if result := fmt.Sprintf("%+v %+v %+v", out, r.obj.Status, r.events); strings.Contains(result, "hunter2") {
		r.Errorf("the result contains a secret: %s", result)
	}
	return out
}

// done reconciles and expects success.
func (r *exportTest) done(want string) {
	r.Helper()
	out := r.reconcile()
	if d, ok := out.(reconcile.Done); !ok || !strings.Contains(d.Message, want) {
		r.Fatalf("got %T %+v, want %s", out, out, want)
	}
}

// failed reconciles and expects a failure: Stalled if terminal, Retry otherwise.
func (r *exportTest) failed(reason string, terminal bool, want string) {
	r.Helper()
	var err error
	var got string
	var stalled bool
	switch out := r.reconcile().(type) {
	case reconcile.Stalled:
		err, got, stalled = out.Err, out.Reason, true
	case reconcile.Retry:
		err, got = out.Err, out.Reason
	}
	if err == nil || got != reason || stalled != terminal || !strings.Contains(err.Error(), want) {
		r.Fatalf("got %s, %v, %v, want %s: %s", got, stalled, err, reason, want)
	}
}

func (r *exportTest) git(args ...string) string {
	r.Helper()
	out, err := r.server.Git(r.Context(), r.repo.Dir(), args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

func (r *exportTest) commits(want int) {
	r.Helper()
	if got := r.git("rev-list", "--count", "main"); got != fmt.Sprint(want) {
		r.Fatalf("%s commits, want %d:\n%s", got, want, r.git("log", "--stat", "main"))
	}
}

func (r *exportTest) files(want ...string) {
	r.Helper()
	got := strings.Fields(r.git("ls-tree", "-r", "--name-only", "main"))
	if !slices.Equal(got, want) {
		r.Errorf("got files %v, want %v", got, want)
	}
}

// decrypted decrypts a file with the private key.
func (r *exportTest) decrypted(data []byte) string {
	r.Helper()
	plain, err := codec.Decrypt(r.Context(),
		sops.Request{Data: data, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(r.reader.String())}})
	if err != nil {
		r.Fatal(err)
	}
	return string(plain)
}

func (r *exportTest) commit(files map[string]string, o ...gitserver.CommitOption) {
	r.Helper()
	if _, err := r.repo.Commit(r.Context(), files, "theirs", o...); err != nil {
		r.Fatal(err)
	}
}

func TestExportToGit(t *testing.T) {
	r := newExportTest(t)
	if out, ok := r.reconcile().(reconcile.Waiting); !ok || out.Reason != v1alpha1.StoreNotFoundReason {
		t.Fatalf("got %+v", out)
	}
	r.store(map[string]string{"demo": "one", "other": "one"})
	r.done("2 states in branch main of " + r.repo.URL() + ", folder states")
	r.commits(1)
	r.files("states/civo.ha.demo.LON1.json", "states/civo.ha.other.LON1.json")
	if want := "main@sha1:" + r.git("rev-parse", "main"); r.obj.Status.LastExportedRevision != want {
		t.Errorf("got revision %s, want %s", r.obj.Status.LastExportedRevision, want)
	}

	before, status := r.server.Requests(), r.obj.Status.DeepCopy()
	r.done("2 states")
	r.commits(1)
	if n := r.server.Requests() - before; n != 1 {
		t.Errorf("%d requests without a change, want 1", n)
	}
	r.restart()
	r.done("2 states")
	r.commits(1)
	if !reflect.DeepEqual(r.obj.Status, *status) {
		t.Errorf("the status changes without a reason:\n%v\n%v", r.obj.Status, *status)
	}

	r.store(map[string]string{"demo": "two", "other": "one"})
	r.done("2 states")
	r.commits(2)
	if got := r.git("diff", "--name-only", "main~1", "main"); got != "states/civo.ha.demo.LON1.json" {
		t.Errorf("the commit changes %s", got)
	}
	if got := r.decrypted([]byte(r.git("cat-file", "blob", "main:states/civo.ha.demo.LON1.json"))); !strings.Contains(
		got, `"two"`) {
		t.Errorf("got %s", got)
	}

	// A lost status leads to one commit, because the files cannot be compared with the states.
	r.obj.Status = v1alpha1.ExportStateStatus{}
	r.restart()
	r.done("2 states")
	r.commits(3)
	r.done("2 states")
	r.commits(3)
}

func TestExportAfterCrash(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one"})
	r.done("1 state")
	// A crash after the push and before the status update.
	r.obj.Status = r.persisted[0]
	r.restart()
	r.done("1 state")
	r.commits(1)
	if want := "main@sha1:" + r.git("rev-parse", "main"); r.obj.Status.LastExportedRevision != want {
		t.Errorf("got revision %s, want %s", r.obj.Status.LastExportedRevision, want)
	}
	// A crash before the push.
	r.store(map[string]string{"demo": "two"})
	r.onPersist = func() { panic("killed") }
	func() {
		defer func() { _ = recover() }()
		r.reconcile()
	}()
	r.commits(1)
	r.obj.Status, r.onPersist = r.persisted[len(r.persisted)-1], nil
	r.restart()
	r.done("1 state")
	r.commits(2)
}

func TestConcurrentPushes(t *testing.T) {
	r := newExportTest(t)
	r.commit(map[string]string{"README": "theirs"})
	r.store(map[string]string{"demo": "one"})
	n := 0
	r.onPersist = func() {
		if n++; n <= 2 {
			r.commit(map[string]string{"README": fmt.Sprint("theirs ", n)})
		}
	}
	r.done("1 state")
	r.commits(4)
	r.files("README", "states/civo.ha.demo.LON1.json")
	if got := r.git("cat-file", "blob", "main:README"); got != "theirs 2" {
		t.Errorf("got %s", got)
	}
	r.store(map[string]string{"demo": "two"})
	r.onPersist = func() { n++; r.commit(map[string]string{"README": fmt.Sprint("theirs ", n)}) }
	r.failed(v1alpha1.TargetContendedReason, false, "retrying")
	r.onPersist = nil
	r.done("1 state")
}

func TestChangedFilesAreRestored(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one", "other": "one"})
	r.done("2 states")
	r.commit(map[string]string{"states/civo.ha.demo.LON1.json": "broken", "states/theirs.json": "x"},
		gitserver.Delete("states/civo.ha.other.LON1.json"))
	r.done("2 states")
	r.commits(3)
	r.files("states/civo.ha.demo.LON1.json", "states/civo.ha.other.LON1.json", "states/theirs.json")
	if !slices.ContainsFunc(r.events, func(e string) bool {
		return e == "ExportRestored: files that another client changed or removed are written again: "+
			"civo.ha.demo.LON1.json; civo.ha.other.LON1.json"
	}) {
		t.Errorf("got events %q", r.events)
	}
	r.commit(map[string]string{"states/civo.ha.third.LON1.json": "theirs"})
	r.store(map[string]string{"demo": "two", "other": "one", "third": "one"})
	r.failed(v1alpha1.FileTakenReason, true, "civo.ha.third.LON1")
	if got := r.git("cat-file", "blob", "main:states/civo.ha.third.LON1.json"); got != "theirs" {
		t.Errorf("the file of another client is %s", got)
	}
	r.commits(5)
}

func TestPruneRemovesFilesOfRemovedStates(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one", "other": "one"})
	r.done("2 states")
	r.store(map[string]string{"demo": "one"})
	r.done("1 state in branch main of " + r.repo.URL() +
		", folder states; no longer in the store or not selected, and kept: 1 state")
	r.commits(1)
	r.obj.Spec.Prune = true
	r.done("1 state in")
	r.files("states/civo.ha.demo.LON1.json")
	if len(r.obj.Status.Clusters) != 1 {
		t.Errorf("got %+v", r.obj.Status.Clusters)
	}
	// A deleted store does not count as the removal of its entries.
	if err := r.api.Resource(configMaps).Namespace(state.StoreNamespace).
		Delete(t.Context(), state.StoreConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, ok := r.reconcile().(reconcile.Waiting); !ok || out.Reason != v1alpha1.StoreNotFoundReason {
		t.Errorf("got %+v", out)
	}
	r.files("states/civo.ha.demo.LON1.json")
}

func TestExportToASecret(t *testing.T) {
	r := newExportTest(t)
	r.obj.Spec.To = v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: "states"}}
	r.store(map[string]string{"demo": "one"})
	r.secret(team, "states", map[string]string{"a": "b"})
	r.failed(v1alpha1.SecretConflictReason, true, "Secret team/states exists")
	if err := r.api.Resource(secretGVR).Namespace(team).
		Delete(t.Context(), "states", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	read := func() map[string][]byte {
		t.Helper()
		var s corev1.Secret
		if _, err := engine.GetInto(t.Context(), r.api, secretGVR, team, "states", &s); err != nil {
			t.Fatal(err)
		}
		return s.Data
	}
	r.done("1 state in Secret states")
	first := read()["civo.ha.demo.LON1.json"]
	if got := r.decrypted(first); !strings.Contains(got, `"one"`) {
		t.Errorf("got %s", got)
	}
	r.restart()
	r.done("1 state in Secret states")
	if got := read()["civo.ha.demo.LON1.json"]; !bytes.Equal(got, first) {
		t.Error("the Secret is written without a change")
	}
	r.store(map[string]string{"demo": "two"})
	r.done("1 state in Secret states")
	if got := r.decrypted(read()["civo.ha.demo.LON1.json"]); !strings.Contains(got, `"two"`) {
		t.Errorf("got %s", got)
	}
	r.store(map[string]string{"demo": "two", "large": strings.Repeat("x", state.MaxStoreBytes)})
	r.failed(v1alpha1.SecretFullReason, true, "a Secret holds at most 1048576")

	// The Secret is deleted only with the deletion policy Delete.
	req := &reconcile.Request[*v1alpha1.ExportState]{Object: r.obj}
	if _, ok := r.steps.Finalize(t.Context(), req).(reconcile.Done); !ok || read() == nil {
		t.Error("the Secret is deleted")
	}
	r.obj.Spec.DeletionPolicy = v1alpha1.DeleteState
	if _, ok := r.steps.Finalize(t.Context(), req).(reconcile.Done); !ok || read() != nil {
		t.Error("the Secret is not deleted")
	}
}

func TestTargetChangeKeepsOldFiles(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one"})
	r.done("1 state")
	r.obj.Spec.To.Git.Branch = "backup"
	r.done("1 state in branch backup")
	if got := r.git("ls-tree", "-r", "--name-only", "backup"); got != "states/civo.ha.demo.LON1.json" {
		t.Errorf("got %s", got)
	}
	if got := r.git("rev-parse", "backup^"); got != r.git("rev-parse", "main") {
		t.Error("the new branch does not start at the default branch")
	}
	if !slices.ContainsFunc(r.events, func(e string) bool {
		return strings.HasPrefix(e, "ExportKept: files that were exported to branch main")
	}) {
		t.Errorf("got events %q", r.events)
	}
}

func TestExportErrors(t *testing.T) {
	r := newExportTest(t, gitserver.WithBasicAuth("robot", "hunter2-hunter2"))
	r.store(map[string]string{"demo": "one"})
	r.failed(string(git.AuthenticationRequired), false, "requires credentials")
	r.obj.Spec.To.Git.SecretRef = &fluxmeta.LocalObjectReference{Name: "login"}
	r.failed("SecretNotFound", true, "spec.to.git.secretRef")
	r.secret(team, "login", map[string]string{"username": "robot", "password": "hunter2-hunter3"})
	r.failed(string(git.AuthenticationFailed), false, "rejects the credentials")
	r.secret(team, "login", map[string]string{"username": "robot", "password": "hunter2-hunter2"})
	if err := os.MkdirAll(filepath.Join(r.repo.Dir(), "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.repo.Dir(), "hooks", "pre-receive"),
		[]byte("#!/bin/sh\necho 'this branch is protected: hunter2-hunter2' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.failed(string(git.PushRefused), false, "this branch is protected")
	if err := os.Remove(filepath.Join(r.repo.Dir(), "hooks", "pre-receive")); err != nil {
		t.Fatal(err)
	}
	r.done("1 state")

	r.store(map[string]string{"demo": "two"})
	encrypt := r.steps.Encrypt
	r.steps.Encrypt = func(_ context.Context, q sops.EncryptRequest) ([]byte, error) { return q.Data, nil }
	r.store(map[string]string{"demo": "-----BEGIN PRIVATE KEY-----"})
	r.failed(v1alpha1.PlaintextSecretsReason, true, "secret: /words")
	r.steps.Encrypt = func(context.Context, sops.EncryptRequest) ([]byte, error) {
		return nil, &sops.Error{Reason: sops.Unavailable, Message: "no program"}
	}
	r.failed(string(sops.Unavailable), false, "no program")
	r.commits(1)
	r.steps.Encrypt = encrypt
	r.done("1 state")
	if readable, err := state.SecretPointers([]byte(r.git("cat-file", "blob",
		"main:states/civo.ha.demo.LON1.json"))); err != nil || len(readable) > 0 {
		t.Errorf("plaintext secrets: %v, %v", readable, err)
	}

	r.secret(state.StoreNamespace, state.ExternalStoreSecret, map[string]string{"MONGODB_URI": "hunter2"})
	r.failed(v1alpha1.ExternalStorageReason, true, "MongoDB")
	r.obj.Spec.ServiceAccountName = "nobody"
	r.failed(appsv1.ServiceAccountNotFoundReason, false, "ServiceAccount team/nobody does not exist")
}

func TestCredentialsAreExportedOnlyIfEnabled(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one"})
	r.secret(state.StoreNamespace, state.StoreSecret,
		map[string]string{"civo": `{"cloud_provider":"civo","civo":{"token":"hunter2-hunter2"}}`})
	r.done("1 state in")
	r.files("states/civo.ha.demo.LON1.json")
	r.obj.Spec.Credentials = v1alpha1.ExportCredentials
	r.done("1 state and the credentials of 1 cloud in")
	r.files("states/civo.ha.demo.LON1.json", "states/credentials.civo.json")
	data := r.git("cat-file", "blob", "main:states/credentials.civo.json")
	if strings.Contains(data, "hunter2") || !strings.Contains(r.decrypted([]byte(data)), "hunter2-hunter2") {
		t.Errorf("got %s", data)
	}
	if _, err := state.ReadCredentials("civo", []byte(r.decrypted([]byte(data)))); err != nil {
		t.Error(err)
	}
}
