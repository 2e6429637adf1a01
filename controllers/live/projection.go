package live

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// maxFinalizers bounds what a projection keeps of an object's finalizers.
const maxFinalizers = 32

// errNoName says that what was given is no object of a cluster.
var errNoName = errors.New("an object has apiVersion, kind and metadata.name")

// Project reduces an object, as the API server returned it, to what decisions
// need. It is a pure function of the object and keeps nothing of it alive but
// strings. Annotations that can't be read count as absent: they are ours, so
// that whoever broke them caused drift, which is corrected.
//
// Of the data of a Secret, Object.Owned tells here who holds it, but not what
// it is; an Index with a key tells more.
//
// It fails on an object without apiVersion, kind or name.
func Project(u *unstructured.Unstructured) (Object, error) {
	o, _, err := project(u, nil)
	return o, err
}

// project also returns the API version that our managed fields are written in.
// The key is for hashes of the data of Secrets.
func project(u *unstructured.Unstructured, key []byte) (Object, string, error) {
	meta, _ := u.Object["metadata"].(map[string]any)
	gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
	if err != nil {
		return Object{}, "", fmt.Errorf("projecting an object: %w", err)
	}
	o := Object{
		Ref:             stacks.Ref{Group: gv.Group, Kind: u.GetKind(), Namespace: text(meta, "namespace"), Name: text(meta, "name")},
		Version:         gv.Version,
		UID:             types.UID(text(meta, "uid")),
		ResourceVersion: text(meta, "resourceVersion"),
		Finalizers:      finalizers(meta),
	}
	if gv.Version == "" || o.Ref.Kind == "" || o.Ref.Name == "" {
		return Object{}, "", errNoName
	}
	if at := text(meta, "deletionTimestamp"); at != "" {
		o.Deleting = true
		// An unreadable time leaves the zero time, the object is deleted all the same.
		o.DeletionTimestamp, _ = time.Parse(time.RFC3339, at)
		o.HeldBy = finalizedBy(meta)
		o.Remains = bounded(Remains(u), maxMessage)
	}
	annotations, _ := meta["annotations"].(map[string]any)
	if mark, err := ParseMark(text(annotations, MarkAnnotation)); err == nil {
		o.Mark = mark
	}
	o.Adopted = text(annotations, AdoptedAnnotation) != ""
	o.Protected = text(annotations, PreventDeletionAnnotation) == "true"
	version := o.projectOwned(u.Object, meta, text(annotations, IgnoreAnnotation), key)
	o.Ready, o.Message, o.Done = judge(u, o.Ref, text(annotations, ReadyExprAnnotation))
	o.Succeeded = succeeded(u.Object, o.Ref)
	o.Suspended = suspended(u.Object, o.Ref)
	return o, version, nil
}

// projectOwned fills what follows from managedFields.
func (o *Object) projectOwned(object, meta map[string]any, ignore string, key []byte) string {
	m := readManaged(meta)
	o.OtherManager = m.other
	ignored, err := ParseIgnored(ignore)
	if err != nil {
		ignored = nil
	}
	o.Claimed = m.claimed(object, ignored)
	// The value of replicas never counts, only who holds it.
	skip := &pointers{}
	skip.add([]string{"spec", "replicas"})
	ignoresReplicas := false
	for _, p := range ignored {
		tokens, err := parsePointer(p)
		if err != nil {
			continue
		}
		skip.add(tokens)
		ignoresReplicas = ignoresReplicas || p == replicasPointer || p == "/spec"
	}
	scaled := m.scaledToZero(object)
	for _, s := range m.scale {
		scaled = scaled || owns(s, object, []string{"spec", "replicas"})
	}
	o.Owned = hashOwned(object, &m, ignored, skip, newSecretData(o.Ref, object, key))
	if !ignoresReplicas && (scaled || owns(m.ours, object, []string{"spec", "replicas"})) {
		o.Owned += holdsReplicas
	}
	o.Kept = keptFields(object, &m, ignored, scaled, isSecret(o.Ref))
	return m.oursVersion
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func finalizers(meta map[string]any) []string {
	list, _ := meta["finalizers"].([]any)
	var out []string
	for _, f := range list {
		if s, ok := f.(string); ok && len(out) < maxFinalizers {
			out = append(out, s)
		}
	}
	return out
}

// bounded cuts a message to at most n bytes.
func bounded(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const more = "…"
	return strings.ToValidUTF8(s[:n-len(more)], "") + more
}
