package exportstate

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/state"
)

// exportAt returns an export of some age to a folder of fleet.git.
func exportAt(namespace, name string, age time.Duration, rows ...v1alpha1.ExportedFile) v1alpha1.ExportState {
	to := &v1alpha1.ExportRepository{URL: "https://git.example.com/team/fleet.git", Branch: "main", Path: "states"}
	return v1alpha1.ExportState{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name),
			CreationTimestamp: metav1.Unix(1e9-int64(age.Seconds()), 0)},
		Spec:   v1alpha1.ExportStateSpec{To: v1alpha1.ExportTarget{Git: to}},
		Status: v1alpha1.ExportStateStatus{Target: describe(to), Clusters: rows},
	}
}

func TestTargetKey(t *testing.T) {
	one := v1alpha1.ExportRepository{URL: "https://git.example.com/team/fleet.git", Branch: "main", Path: "states"}
	for _, c := range []struct {
		url, branch, path string
		want              bool
	}{
		{"https://git.example.com/team/fleet.git", "main", "./states/", true},
		{"https://robot@GIT.example.com/team/fleet/", "main", "states", true},
		{"ssh://git@git.example.com/team/fleet.git", "main", "a/../states", true},
		{"https://git.example.com/team/fleet.git", "next", "states", false},
		{"https://git.example.com/team/fleet.git", "main", "", false},
		{"https://git.example.com/team/other.git", "main", "states", false},
		{"https://git.example.com/Team/fleet.git", "main", "states", false},
		{"https://git.example.org/team/fleet.git", "main", "states", false},
	} {
		if got := targetKey(team, &one) == targetKey(team,
			&v1alpha1.ExportRepository{URL: c.url, Branch: c.branch, Path: c.path}); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}

func TestConflictingExports(t *testing.T) {
	const file = demo + fileSuffix
	row := func(action v1alpha1.ExportAction) v1alpha1.ExportedFile {
		return v1alpha1.ExportedFile{Key: demo, File: file, Written: "a-f", Action: action,
			Ready: action == v1alpha1.ExportInSync}
	}
	older := func(change func(*v1alpha1.ExportState)) []v1alpha1.ExportState {
		x := exportAt(team, "ahead", time.Hour, row(v1alpha1.ExportInSync))
		x.Spec.To.Git = x.Spec.To.Git.DeepCopy()
		change(&x)
		return []v1alpha1.ExportState{x}
	}
	export, owned := exportAt(team, "backup", time.Minute),
		map[string]types.NamespacedName{file: {Namespace: team, Name: "ahead"}}
	for name, c := range map[string]struct {
		all  []v1alpha1.ExportState
		want map[string]types.NamespacedName
	}{
		"no other export": {[]v1alpha1.ExportState{export}, nil},
		"older export":    {older(func(*v1alpha1.ExportState) {}), owned},
		"younger export":  {older(func(x *v1alpha1.ExportState) { x.CreationTimestamp = metav1.Unix(1e9, 0) }), nil},
		"same age": {older(func(x *v1alpha1.ExportState) {
			x.CreationTimestamp = export.CreationTimestamp
		}), owned},
		"other namespace": {older(func(x *v1alpha1.ExportState) { x.Namespace = "other" }), nil},
		"other folder":    {older(func(x *v1alpha1.ExportState) { x.Spec.To.Git.Path = "b" }), nil},
		"target changing": {older(func(x *v1alpha1.ExportState) { x.Status.Target = "branch b" }), nil},
		"suspended":       {older(func(x *v1alpha1.ExportState) { x.Spec.Suspend = true }), nil},
		"being deleted": {older(func(x *v1alpha1.ExportState) {
			x.DeletionTimestamp = &export.CreationTimestamp
		}), nil},
		"to a Secret": {older(func(x *v1alpha1.ExportState) { x.Spec.To.Git = nil }), nil},
		"other cluster": {older(func(x *v1alpha1.ExportState) {
			x.Status.Clusters[0].File = "x"
		}), map[string]types.NamespacedName{"x": owned[file]}},
		"restoring it": {older(func(x *v1alpha1.ExportState) {
			x.Status.Clusters[0] = row(v1alpha1.ExportRestore)
		}), owned},
		"not exported now": {older(func(x *v1alpha1.ExportState) {
			x.Status.Clusters[0] = row(v1alpha1.ExportLeft)
		}), nil},
		"conflicting, too": {older(func(x *v1alpha1.ExportState) {
			x.Status.Clusters[0] = row(v1alpha1.ExportByAnother)
		}), nil},
		"never written": {older(func(x *v1alpha1.ExportState) { x.Status.Clusters[0].Written = "" }), nil},
		"oldest of many": {append(older(func(*v1alpha1.ExportState) {}),
			exportAt(team, "b", 3*time.Hour, row(v1alpha1.ExportInSync)),
			exportAt(team, "c", 2*time.Hour, row(v1alpha1.ExportInSync))),
			map[string]types.NamespacedName{file: {Namespace: team, Name: "b"}}},
	} {
		if got := conflictingExports(&export, c.all); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A file of an older export is not written, and the conflict is reported. When the older export is
// deleted, the file is written.
func TestConflictingFileIsSkippedUntilOlderExportEnds(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one", "mine": "one"})
	other := exportAt(team, "ahead", time.Hour,
		v1alpha1.ExportedFile{Key: demo, File: demo + fileSuffix, Written: "a-f", Ready: true,
			Action: v1alpha1.ExportInSync})
	other.Spec.To.Git = r.obj.Spec.To.Git
	other.Status.Target = describe(other.Spec.To.Git)
	r.obj.CreationTimestamp = metav1.Unix(1e9, 0)
	r.restart(&other)
	r.failed(v1alpha1.ExportedByAnotherReason, true, demo+": older ExportState "+team+"/ahead writes this file")
	r.files("states/civo.ha.mine.LON1.json")
	r.failed(v1alpha1.ExportedByAnotherReason, true, team+"/ahead")
	r.commits(1)
	r.restart()
	r.done("2 states")
	r.commits(2)
	if _, ok := r.reconcile().(reconcile.Done); !ok {
		t.Error("the second reconcile fails")
	}
}

// A state that SOPS rejects does not block the others.
func TestUnencryptableStateDoesNotBlockOthers(t *testing.T) {
	r := newExportTest(t)
	bad := strings.Replace(string(stateDoc("bad", "one")), "{", `{"n":1e400,`, 1)
	r.put(configMaps, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: state.StoreNamespace, Name: state.StoreConfigMap},
		BinaryData: map[string][]byte{demo: stateDoc("demo", "one"), "civo.ha.bad.LON1": []byte(bad)}})
	r.failed(v1alpha1.InvalidStateReason, true, "civo.ha.bad.LON1")
	r.files("states/" + demo + fileSuffix)
}
