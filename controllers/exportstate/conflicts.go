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

// folderOf returns the folder of a target, relative to the root of the repository.
func folderOf(to *v1alpha1.ExportRepository) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+to.Path), "/"), ".")
}

// targetKey identifies the folder of a target within a namespace. It is the same for all URLs of a
// repository. It includes the namespace, because an export in another namespace proves nothing: it
// may have no access to the repository.
func targetKey(namespace string, target *v1alpha1.ExportRepository) string {
	repository := target.URL
	if u, err := url.Parse(target.URL); err == nil {
		repository = strings.ToLower(u.Host) + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".git") + "?" +
			u.RawQuery
	}
	return strings.Join([]string{namespace, repository, target.Branch, folderOf(target)}, " ")
}

// conflictingExports returns the files that an older export has written to the same folder, with
// the name of that export: both exports would overwrite each other.
func conflictingExports(obj *v1alpha1.ExportState, exports []v1alpha1.ExportState) map[string]types.NamespacedName {
	out, owners := map[string]types.NamespacedName{}, map[string]*v1alpha1.ExportState{}
	for i := range exports {
		other := &exports[i]
		if !sharesTarget(obj, other) || !isOlder(other, obj) {
			continue
		}
		for _, row := range slices.Concat(other.Status.Clusters, other.Status.Credentials) {
			if row.Written == "" || !row.Ready && !writes(row.Action) || row.Action == v1alpha1.ExportLeft ||
				owners[row.File] != nil && isOlder(owners[row.File], other) {
				continue
			}
			out[row.File], owners[row.File] = types.NamespacedName{Namespace: other.Namespace, Name: other.Name}, other
		}
	}
	return out
}

// sharesTarget reports whether other is another active export to the same folder as obj.
func sharesTarget(obj, other *v1alpha1.ExportState) bool {
	target, otherTarget := obj.Spec.To.Git, other.Spec.To.Git
	return target != nil && otherTarget != nil && other.UID != obj.UID && !other.Spec.Suspend &&
		other.DeletionTimestamp == nil &&
		targetKey(obj.Namespace, target) == targetKey(other.Namespace, otherTarget) &&
		other.Status.Target == describe(otherTarget)
}

// isOlder reports whether a is older than b. The older export keeps writing.
func isOlder(a, b *v1alpha1.ExportState) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// skipConflicting marks the documents that other exports write.
func (w *desired) skipConflicting(conflicting map[string]types.NamespacedName) {
	for i := range w.documents {
		d := &w.documents[i]
		if owner, ok := conflicting[d.file]; ok && d.action == "" {
			d.action = v1alpha1.ExportByAnother
			d.message = "older ExportState " + owner.String() +
				" writes this file to the same folder: set another spec.to.git.path, " +
				"select other clusters, or delete one of the two"
		}
	}
}
