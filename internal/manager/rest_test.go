package manager

import (
	"errors"
	"os"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

const repositoryURL = "https://git.example.com/fleet.git"

func inPlatform(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "platform", Name: name}
}

func login(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: inPlatform(name),
		Data: map[string][]byte{"username": []byte(name), "password": []byte("p")}}
}

func TestRESTTargetIsThatOfSource(t *testing.T) {
	ref := &fluxmeta.LocalObjectReference{Name: "read"}
	ours := func(g *appsv1.GitSource) client.Object {
		return &appsv1.KsctlSource{ObjectMeta: inPlatform("fleet"), Spec: appsv1.KsctlSourceSpec{Git: g}}
	}
	flux := func(r *sourcev1.GitRepositoryRef) client.Object {
		return &sourcev1.GitRepository{ObjectMeta: inPlatform("fleet"),
			Spec: sourcev1.GitRepositorySpec{URL: repositoryURL, SecretRef: ref, Reference: r}}
	}
	for name, c := range map[string]struct {
		source client.Object
		flags  string
		// want is the user and the branch, or a part of the error.
		want string
	}{
		"KsctlSource": {ours(&appsv1.GitSource{URL: repositoryURL}),
			"--rest-git-source=KsctlSource/platform/fleet", " main"},
		"branch of a KsctlSource": {ours(&appsv1.GitSource{URL: repositoryURL, SecretRef: ref,
			Ref: &appsv1.GitRef{Branch: "prod"}}), "--rest-git-source=KsctlSource/platform/fleet", "read prod"},
		"tag": {ours(&appsv1.GitSource{URL: repositoryURL, Ref: &appsv1.GitRef{Tag: "v1"}}),
			"--rest-git-source=KsctlSource/platform/fleet", "tracks no branch: set the controller's --rest-git-branch"},
		"registry": {ours(nil), "--rest-git-source=KsctlSource/platform/fleet", "has no spec.git"},
		"GitRepository": {flux(nil), "--rest-git-source=GitRepository/platform/fleet",
			"read master"},
		"other branch and Secret": {flux(&sourcev1.GitRepositoryRef{Branch: "main"}),
			"--rest-git-source=GitRepository/platform/fleet --rest-git-branch=prod --rest-git-secret=platform/push",
			"push prod"},
		"missing Secret": {flux(nil), "--rest-git-source=GitRepository/platform/fleet --rest-git-secret=platform/no",
			"Secret platform/no does not exist: create it or correct --rest-git-secret"},
		"missing source": {flux(nil), "--rest-git-source=KsctlSource/platform/fleet",
			"KsctlSource platform/fleet does not exist"},
	} {
		scheme, err := NewScheme()
		if err != nil {
			t.Fatal(err)
		}
		objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.source, login("read"), login("push"))
		target := &restTarget{opts: parseFlags(t, strings.Fields(c.flags)...).REST, reader: objects.Build()}
		repo, branch, err := target.resolve(t.Context())
		if err != nil {
			if _, ok := errors.AsType[*gitsecret.Error](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := repo.Access.Username + " " + branch; got != c.want || repo.URL != repositoryURL {
			t.Errorf("%s: %q at %s", name, got, repo.URL)
		}
	}
}

func TestRESTRepositoryRemovesCheckoutOfFormerBranch(t *testing.T) {
	_, remote := gitserver.ForTest(t, "fleet")
	id, err := remote.Commit(t.Context(), map[string]string{"a.yaml": "# empty\n"}, "one")
	if err == nil {
		err = remote.SetBranch(t.Context(), "prod", id)
	}
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	source := &appsv1.KsctlSource{ObjectMeta: inPlatform("fleet"),
		Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: remote.URL()}}}
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(source).Build()
	work := t.TempDir()
	r := &restRepository{client: git.NewClient(git.Options{TempDir: work}), target: &restTarget{reader: objects,
		opts: parseFlags(t, "--rest-git-source=KsctlSource/platform/fleet", "--rest-git-path=.").REST}}
	get := func(checkouts int) {
		t.Helper()
		_, err := r.Get(t.Context(), manifests.Key{Kind: "ConfigMap", Name: "x"})
		if e, ok := errors.AsType[*manifests.ConflictError](err); !ok || !e.NotFound {
			t.Fatal(err)
		}
		r.closing.Wait()
		if entries, err := os.ReadDir(work); err != nil || len(entries) != checkouts {
			t.Fatalf("%v %v, want %d", entries, err, checkouts)
		}
	}
	get(1)
	used, err := r.open(t.Context()) // by a request that is in progress
	if err != nil {
		t.Fatal(err)
	}
	source.Spec.Git.Ref = &appsv1.GitRef{Branch: "prod"}
	if err := objects.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if current, err := r.open(t.Context()); err != nil || current == used {
		t.Fatal(err)
	} else if current.users.Done(); len(mustReadDir(t, work)) != 1 {
		t.Error("the checkout is removed while it is used")
	}
	used.users.Done()
	get(1)
	if err := r.Close(); err != nil || len(mustReadDir(t, work)) > 0 {
		t.Error(err, "or temporary files stay")
	}
}

func mustReadDir(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
