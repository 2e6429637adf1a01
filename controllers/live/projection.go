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

// maxFinalizers is the maximum number of finalizers in a projection.
const maxFinalizers = 32

// errInvalidObject reports a value that is no Kubernetes object.
var errInvalidObject = errors.New("invalid object: apiVersion, kind and metadata.name are required")

// Project reduces an object, as the API server returned it, to its projection. It is a pure
// function of the object; the projection shares no memory with the object except strings. Invalid
// annotations count as absent: FieldManager owns the annotations, so that a change of them is
// drift, which gets corrected.
//
// Object.OwnedHash of a Secret covers which manager owns its data, but not the values. An Index
// with Options.SecretKey covers the values, too.
//
// Project fails on an object without apiVersion, kind or name.
func Project(u *unstructured.Unstructured) (Object, error) {
	o, _, err := project(u, nil)
	return o, err
}

// project is Project with a key for the hashes of Secret data. It also returns the API version of
// the managedFields entry of FieldManager.
func project(u *unstructured.Unstructured, key []byte) (Object, string, error) {
	meta, _ := u.Object["metadata"].(map[string]any)
	gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
	if err != nil {
		return Object{}, "", fmt.Errorf("projecting an object: %w", err)
	}
	o := Object{
		Ref: stacks.Ref{Group: gv.Group, Kind: u.GetKind(), Namespace: stringField(meta, "namespace"),
			Name: stringField(meta, "name")},
		Version:         gv.Version,
		UID:             types.UID(stringField(meta, "uid")),
		ResourceVersion: stringField(meta, "resourceVersion"),
		Finalizers:      finalizers(meta),
	}
	if gv.Version == "" || o.Ref.Kind == "" || o.Ref.Name == "" {
		return Object{}, "", errInvalidObject
	}
	if at := stringField(meta, "deletionTimestamp"); at != "" {
		o.Deleting = true
		// An invalid time leaves the zero time; the object counts as being deleted.
		o.DeletionTimestamp, _ = time.Parse(time.RFC3339, at)
		o.DeletionMessage = truncate(NamespaceDeletionMessage(u), maxMessageBytes)
	}
	annotations, _ := meta["annotations"].(map[string]any)
	if mark, err := ParseMark(stringField(annotations, MarkAnnotation)); err == nil {
		o.Mark = mark
	}
	o.Adopted = stringField(annotations, AdoptedAnnotation) != ""
	o.Protected = stringField(annotations, PreventDeletionAnnotation) == "true"
	o.KeptByHelm = IsKeptByHelm(stringField(annotations, HelmPolicyAnnotation))
	policy := stacks.ObjectPolicyOf(u.Object)
	o.KeptWhenPruned, o.KeptWhenDeleted = policy.KeptWhenPruned, policy.KeptWhenDeleted
	version := o.projectOwned(u.Object, meta, annotations, key)
	gk := o.Ref.GroupKind()
	o.Readiness, o.Message = assess(u, gk, stringField(annotations, ReadyExprAnnotation))
	o.Finished, o.Succeeded = outcome(u.Object, gk)
	o.projectResult(annotations)
	o.Serves = stacks.ServedKindOf(gk, u.Object)
	o.Reported = reportedFields(u.Object, gk, stringField(annotations, ReportAnnotation))
	if gk == jobKind {
		suspend, _ := lookup(u.Object, []string{"spec", "suspend"})
		o.Suspended, _ = suspend.(bool)
	}
	return o, version, nil
}

// projectOwned sets the fields that are derived from managedFields. It returns the API version of
// the managedFields entry of FieldManager.
func (o *Object) projectOwned(object, meta, annotations map[string]any, key []byte) string {
	m := parseManagedFields(meta)
	o.OtherManager = m.otherManager
	if o.Deleting {
		o.FinalizerManager = m.finalizerManager
	}
	// The value of replicas never counts, only its owner.
	skip := &pointers{}
	skip.add(replicasPath.tokens)
	ignoresReplicas := false
	ignored := m.expandIgnored(object, parseIgnored(stringField(annotations, IgnoreAnnotation)))
	for _, p := range ignored {
		skip.add(p.tokens)
		ignoresReplicas = ignoresReplicas || p.pointer == replicasPath.pointer || p.pointer == "/spec"
	}
	o.TrackedByTool = m.trackedByTool(object, ignored)
	scaled := m.scaledToZero(object)
	for _, s := range m.scale {
		scaled = scaled || owns(s, object, replicasPath)
	}
	secret := newSecretData(o.Ref, object, key)
	if stringField(annotations, SensitiveAnnotation) != "true" {
		key = nil
	}
	o.OwnedHash = hashOwned(object, &m, ignored, skip, secret, key)
	if !ignoresReplicas && (scaled || owns(m.ours, object, replicasPath)) {
		o.OwnedHash += replicasSuffix
	}
	o.KeptFields = keptFields(object, &m, ignored, scaled, o.Ref.GroupKind() == secretKind)
	return m.oursVersion
}

func stringField(m map[string]any, key string) string {
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

// truncate cuts a message to at most n bytes.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const more = "…"
	return strings.ToValidUTF8(s[:n-len(more)], "") + more
}
