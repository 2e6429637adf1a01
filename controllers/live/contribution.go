package live

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Contributions are fields that an owner sets in an object of another owner. Each contribution has
// a field manager of its own, so that managedFields, which are metadata, show whether it is intact:
// whoever changes the value of a field takes the field from its managers.

// ContributionManagerPrefix is the prefix of the field managers of contributions.
const ContributionManagerPrefix = FieldManager + "-"

// IsContributionManager reports whether a field manager is that of a contribution.
func IsContributionManager(manager string) bool {
	return strings.HasPrefix(manager, ContributionManagerPrefix)
}

// ContributedObject is what plans need of an object that owners contribute to.
type ContributedObject struct {
	// UID is empty if the object does not exist.
	UID      types.UID
	Deleting bool
	// ManagersHash is a hash of the fields of each manager, without those of subresources.
	ManagersHash string
	// fields has a line for each contribution: its manager and its fields.
	fields string
}

// Fields returns the fields that a contribution has in the object, see ContributedFields.
func (o *ContributedObject) Fields(manager string) string {
	for line := range strings.Lines(o.fields) {
		if name, fields, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); name == manager {
			return fields
		}
	}
	return ""
}

// ProjectContributions returns the ContributedObject of an object.
func ProjectContributions(o metav1.Object) ContributedObject {
	out := ContributedObject{UID: o.GetUID(), Deleting: o.GetDeletionTimestamp() != nil}
	var contributions strings.Builder
	h := sha256.New()
	for _, e := range o.GetManagedFields() {
		if e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		_, _ = h.Write([]byte(e.Manager + "\x00" + string(e.Operation) + "\x00"))
		_, _ = h.Write(append(e.FieldsV1.GetRawBytes(), 0))
		if fields := contributedFields(&e); fields != "" {
			contributions.WriteString(e.Manager + " " + fields + "\n")
		}
	}
	out.ManagersHash, out.fields = base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12]), contributions.String()
	return out
}

// ContributedFields returns the fields that a contribution has in an object: the sorted FieldHash
// of each path. It is empty if there are none.
func ContributedFields(o metav1.Object, manager string) string {
	p := ProjectContributions(o)
	return p.Fields(manager)
}

func contributedFields(e *metav1.ManagedFieldsEntry) string {
	if !IsContributionManager(e.Manager) || e.Operation != metav1.ManagedFieldsOperationApply {
		return ""
	}
	set := fieldpath.NewSet()
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return ""
	}
	var hashes []string
	set.Iterate(func(p fieldpath.Path) { hashes = append(hashes, FieldHash(p.String())) })
	slices.Sort(hashes)
	return strings.Join(hashes, "")
}

// fieldHashLen is the length of a FieldHash: 6 bytes in base64.
const fieldHashLen = 8

// FieldHash returns a hash of the path of a field, as the API server writes it in the causes of
// conflicts: .spec.ports[port=80,protocol="TCP"].name.
func FieldHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return base64.RawURLEncoding.EncodeToString(sum[:fieldHashLen*3/4])
}

// HasField reports whether fields of a contribution, see ContributedFields, have the field at a
// path.
func HasField(fields, path string) bool {
	want := FieldHash(path)
	for chunk := range slices.Chunk([]byte(fields), fieldHashLen) {
		if string(chunk) == want {
			return true
		}
	}
	return false
}

// SetContributed replaces the set of objects that an owner contributes to. The owner is notified
// when one of them is created, deleted, or has other fields of a manager.
func (ix *Index) SetContributed(ownerKey string, objects []ObjectName) {
	ix.contributed.SetObjects(ownerKey, objects)
}

// Contributed returns an object that an owner contributes to. known is false until the object was
// listed.
func (ix *Index) Contributed(name ObjectName) (o ContributedObject, known bool) {
	return ix.contributed.State(name)
}

// ObserveContributed adds an object that an owner contributes to from a response of the API server;
// nil for one that does not exist.
func (ix *Index) ObserveContributed(name ObjectName, o metav1.Object) {
	ix.contributed.Observe(name, o)
}
