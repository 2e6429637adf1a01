package exportstate

import (
	"fmt"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// maskMessages returns a status with a placeholder for each message, which may be reworded.
func maskMessages(status *v1alpha1.ExportStateStatus) *v1alpha1.ExportStateStatus {
	out := status.DeepCopy()
	for _, rows := range [][]v1alpha1.ExportedFile{out.Clusters, out.Credentials} {
		for i := range rows {
			if rows[i].Message != "" {
				rows[i].Message = "a message for people"
			}
		}
	}
	return out
}

// goldenPlan returns the desired content, and the plan for an empty target.
func goldenPlan(t *testing.T, s *Steps) (desired, exportPlan) {
	t.Helper()
	spec := &v1alpha1.ExportStateSpec{Recipients: []string{"age1b", "age1a"}, Credentials: v1alpha1.ExportCredentials}
	want, err := s.readDesired(spec, statestore.Contents{HasStates: true, HasCredentials: true,
		States: map[string][]byte{demo: stateDoc("demo", "a"), "civo.ha.next.LON1": stateDoc("next", "b"),
			"civo.ha.bad.LON1": []byte("not JSON")},
		Credentials: map[string][]byte{"civo": []byte(`{"cloud_provider":"civo","civo":{"token":"not-a-secret"}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return want, newPlan(want, nil, v1alpha1.ExportStateStatus{}, false)
}

// TestGoldenStatus pins the hashes in statuses. With other hashes, every file would be encrypted
// and committed again after an upgrade.
func TestGoldenStatus(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	want, p := goldenPlan(t, s)
	obj := &v1alpha1.ExportState{}
	sums, there := map[string]record{}, map[string]targetFile{}
	for _, d := range want.documents {
		if d.action != "" {
			continue
		}
		sums[d.file] = record{d.hash, statestore.HashBytes(s.SecretKey, []byte("encrypted "+d.file))}
		there[d.file] = targetFile{hash: sums[d.file].fileHash, isExport: true}
	}
	p.announce(sums)
	s.report(obj, &p)
	golden.JSON(t, "status-announced.json", maskMessages(&obj.Status))
	announced := obj.Status.DeepCopy()

	p.markWritten()
	s.report(obj, &p)
	golden.JSON(t, "status-written.json", maskMessages(&obj.Status))

	// Neither status leads to another write.
	for name, before := range map[string]*v1alpha1.ExportStateStatus{"announced": announced, "written": &obj.Status} {
		if again := newPlan(want, there, *before, false); len(again.write) > 0 {
			t.Errorf("%s: %d files are written again", name, len(again.write))
		}
	}
	left := newPlan(desired{hasClusters: true, hasCredentials: true}, there, obj.Status, true)
	s.report(obj, &left)
	golden.JSON(t, "status-left.json", maskMessages(&obj.Status))
}

// fullRepository returns a target with all fields set.
func fullRepository() *v1alpha1.ExportRepository {
	return &v1alpha1.ExportRepository{URL: "https://user:password@git.example.com/team/fleet.git", Branch: "main",
		Path:           "./states//eu/",
		SecretRef:      &fluxmeta.LocalObjectReference{Name: "login"},
		ProxySecretRef: &fluxmeta.LocalObjectReference{Name: "proxy"},
		Author:         v1alpha1.CommitAuthor{Name: "ksctl", Email: "ksctl@example.com"},
		Message:        "  Keep the states  "}
}

// TestGoldenTargets pins the values of status.target. If they changed, the controller would no
// longer manage the files that it has written.
func TestGoldenTargets(t *testing.T) {
	full := fullRepository()
	golden.Complete(t, full)
	least := &v1alpha1.ExportRepository{URL: "ssh://git@git.example.com/team/fleet.git", Branch: "main"}
	secret := &secretTarget{name: types.NamespacedName{Namespace: "team", Name: "states"}}
	secret.current.ResourceVersion = "7"
	repository := &gitTarget{spec: full, branch: &git.Branch{Base: strings.Repeat("1", 40)}}
	golden.Equal(t, "targets.txt", []byte(strings.Join([]string{
		"repository, least: " + describe(least),
		"repository, every field: " + describe(full),
		"repository: " + repository.String(),
		"repository, revision: " + repository.revision(),
		"Secret: " + secret.String(),
		"Secret, revision: " + secret.revision(),
		"folders: " + fmt.Sprintf("%q %q", folderOf(least), folderOf(full)),
		"annotation of the Secret: " + ExportAnnotation,
	}, "\n")+"\n"))
}

// TestGoldenCommitMessages pins messages in repositories, which scripts may search for.
func TestGoldenCommitMessages(t *testing.T) {
	_, p := goldenPlan(t, &Steps{SecretKey: []byte("key")})
	obj := &v1alpha1.ExportState{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "states"}}
	obj.Spec.To.Git = &v1alpha1.ExportRepository{}
	golden.Equal(t, "commit-least.txt", []byte(commitMessage(obj, &p)))
	obj.Spec.To.Git = fullRepository()
	p.remove = []string{"aws.ha.gone.eu-north-1.json"}
	golden.Equal(t, "commit.txt", []byte(commitMessage(obj, &p)))
}

// TestGoldenSecret pins the annotation: the controller overwrites and deletes only Secrets with it.
func TestGoldenSecret(t *testing.T) {
	c := dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)
	s := &secretTarget{client: c, name: types.NamespacedName{Namespace: "team", Name: "states"}, owner: "export",
		key: []byte("key")}
	u, err := s.create(t.Context(), changeSet{files: map[string][]byte{
		demo + fileSuffix: []byte("encrypted"), credentialsPrefix + "civo" + fileSuffix: []byte("encrypted, too")}})
	if err != nil {
		t.Fatal(err)
	}
	golden.JSON(t, "secret.json", &u.Object)
}
