package exportstate

import (
	"cmp"
	"net/url"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
)

// folderOf a repository's branch, from the root.
func folderOf(to *v1alpha1.ExportRepository) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+to.Path), "/"), ".")
}

// meeting is where exports of a namespace meet: a folder of a branch, however the address of the
// repository is written. What one of another namespace says of itself proves nothing: it may never
// have been let into the repository.
func meeting(namespace string, to *v1alpha1.ExportRepository) string {
	at := to.URL
	if u, err := url.Parse(to.URL); err == nil {
		at = strings.ToLower(u.Host) + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".git") + "?" + u.RawQuery
	}
	return strings.Join([]string{namespace, at, to.Branch, folderOf(to)}, " ")
}

// rivals are the files that an older export has written to the same folder, and which that is: they
// would undo each other.
func rivals(obj *v1alpha1.ExportState, all []v1alpha1.ExportState) map[string]types.NamespacedName {
	out, by := map[string]types.NamespacedName{}, map[string]*v1alpha1.ExportState{}
	for i := range all {
		x := &all[i]
		if !meets(obj, x) || !before(x, obj) {
			continue
		}
		for _, row := range slices.Concat(x.Status.Clusters, x.Status.Credentials) {
			if row.Written == "" || !row.Ready && !writes(row.Action) || row.Action == v1alpha1.ExportLeft || by[row.File] != nil && before(by[row.File], x) {
				continue
			}
			out[row.File], by[row.File] = types.NamespacedName{Namespace: x.Namespace, Name: x.Name}, x
		}
	}
	return out
}

// meets is true for two exports to one folder, the other of which is at work there.
func meets(obj, x *v1alpha1.ExportState) bool {
	here, there := obj.Spec.To.Git, x.Spec.To.Git
	return here != nil && there != nil && x.UID != obj.UID && !x.Spec.Suspend && x.DeletionTimestamp == nil &&
		meeting(obj.Namespace, here) == meeting(x.Namespace, there) && x.Status.Target == describe(there)
}

// before is true for the older of two exports, which goes on.
func before(a, b *v1alpha1.ExportState) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// without takes out of what is wished for what others write.
func (w *wishes) without(rivals map[string]types.NamespacedName) {
	w.documents = slices.DeleteFunc(w.documents, func(d document) bool {
		by, ok := rivals[d.file]
		if !ok {
			return false
		}
		row := v1alpha1.ExportedFile{Key: d.key, File: d.file, Action: v1alpha1.ExportByAnother,
			Message: "ExportState " + by.String() + ", which is older, writes it to the same folder: export to another spec.to.git.path, select other clusters, or delete one of the two"}
		if d.credentials {
			w.refusedCredentials = append(w.refusedCredentials, row)
		} else {
			w.refused = append(w.refused, row)
		}
		return true
	})
}
