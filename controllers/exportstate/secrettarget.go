package exportstate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// ExportAnnotation is set on each Secret that an ExportState creates. Its value is the name of the
// ExportState.
const ExportAnnotation = "storage.ksctl.com/export"

var secretGVR = corev1.SchemeGroupVersion.WithResource("secrets")

// secretTarget is a Secret, with a key for each file.
type secretTarget struct {
	client dynamic.Interface
	name   types.NamespacedName
	owner  string
	// key is the key of the hashes.
	key []byte

	current corev1.Secret
	exists  bool
}

var _ exportTarget = (*secretTarget)(nil)

// String implements exportTarget.
func (s *secretTarget) String() string { return "Secret " + s.name.Name }

func (s *secretTarget) secretName() string { return s.name.Name }

func (s *secretTarget) close() {}

func (s *secretTarget) revision() string { return s.name.Name + "@" + s.current.ResourceVersion }

func (s *secretTarget) size() int { return state.TotalSize(s.current.Data) }

// readFiles implements exportTarget.
func (s *secretTarget) readFiles(ctx context.Context, keys map[string]string) (_ map[string]targetFile, err error) {
	s.current = corev1.Secret{}
	if s.exists, err = engine.GetInto(ctx, s.client, secretGVR, s.name.Namespace, s.name.Name, &s.current); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", s.name, err)
	}
	if s.exists && s.current.Annotations[ExportAnnotation] != s.owner {
		return nil, reconcile.NewTerminalError(v1alpha1.SecretConflictReason,
			"Secret %s exists and belongs to another owner: delete it, or set another name in spec.to.secret", s.name)
	}
	out := map[string]targetFile{}
	for file, key := range keys {
		if data, ok := s.current.Data[file]; ok {
			out[file] = targetFile{hash: statestore.HashBytes(s.key, data), isExport: isExport(data, key)}
		}
	}
	return out, nil
}

// dataAfter returns the data of the Secret after a change of files.
func (s *secretTarget) dataAfter(files map[string][]byte, remove []string) map[string][]byte {
	out := map[string][]byte{}
	maps.Copy(out, s.current.Data)
	maps.Copy(out, files)
	for _, file := range remove {
		delete(out, file)
	}
	return out
}

// checkSize implements exportTarget.
func (s *secretTarget) checkSize(files map[string][]byte, remove []string) error {
	after := s.dataAfter(files, remove)
	if n := state.TotalSize(after); n > state.MaxStoreBytes {
		return reconcile.NewTerminalError(v1alpha1.SecretFullReason,
			"Secret %s would have %d bytes in %d files, but a Secret holds at most %d: select fewer clusters, use "+
				"several ExportStates, or export to Git", s.name, n, len(after), state.MaxStoreBytes)
	}
	return nil
}

// write implements exportTarget.
func (s *secretTarget) write(ctx context.Context, c changeSet) (string, error) {
	var u *unstructured.Unstructured
	var err error
	if s.exists {
		u, err = s.patch(ctx, c)
	} else {
		u, err = s.create(ctx, c)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || s.exists && apierrors.IsNotFound(err) {
		return "", errConflict
	}
	if err != nil {
		return "", fmt.Errorf("writing Secret %s: %w", s.name, err)
	}
	s.current.Data = s.dataAfter(c.files, c.remove)
	return s.name.Name + "@" + u.GetResourceVersion(), nil
}

func (s *secretTarget) create(ctx context.Context, c changeSet) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.name.Name, Namespace: s.name.Namespace,
			Annotations: map[string]string{ExportAnnotation: s.owner}},
		Type: corev1.SecretTypeOpaque, Data: c.files,
	})
	if err != nil {
		return nil, err
	}
	return s.client.Resource(secretGVR).Namespace(s.name.Namespace).
		Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: live.FieldManager})
}

// patch changes only the files. It fails with a conflict if the Secret has changed since it was
// read.
func (s *secretTarget) patch(ctx context.Context, c changeSet) (*unstructured.Unstructured, error) {
	data := map[string]any{}
	for file, content := range c.files {
		data[file] = content // encoded as base64, as the API server expects
	}
	for _, file := range c.remove {
		data[file] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": s.current.ResourceVersion},
		"data": data})
	if err != nil {
		return nil, err
	}
	return s.client.Resource(secretGVR).Namespace(s.name.Namespace).Patch(ctx, s.name.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: live.FieldManager})
}
