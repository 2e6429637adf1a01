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

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// ExportAnnotation is on each Secret that an export has made: the export's name.
const ExportAnnotation = "storage.ksctl.com/export"

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// secretPlace is a Secret, with a key for each file.
type secretPlace struct {
	client dynamic.Interface
	name   types.NamespacedName
	owner  string
	// key of hashes.
	key []byte

	have  corev1.Secret
	there bool
}

var _ place = (*secretPlace)(nil)

// String implements place.
func (s *secretPlace) String() string { return "Secret " + s.name.Name }

func (s *secretPlace) secret() string { return s.name.Name }

func (s *secretPlace) close() {}

func (s *secretPlace) revision() string { return s.name.Name + "@" + s.have.ResourceVersion }

func (s *secretPlace) bytes() int { return state.Size(s.have.Data) }

// look implements place.
func (s *secretPlace) look(ctx context.Context, keys map[string]string) (_ map[string]found, err error) {
	s.have = corev1.Secret{}
	if s.there, err = engine.Read(ctx, s.client, secrets, s.name.Namespace, s.name.Name, &s.have); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", s.name, err)
	}
	if s.there && s.have.Annotations[ExportAnnotation] != s.owner {
		return nil, fail(SecretTakenReason, "Secret %s exists, and is not this export's: delete it, or name another in spec.to.secret", s.name)
	}
	out := map[string]found{}
	for file, key := range keys {
		if data, ok := s.have.Data[file]; ok {
			out[file] = found{sum: statestore.Sum(s.key, data), export: isExport(data, key)}
		}
	}
	return out, nil
}

// after is what the Secret has when files were changed.
func (s *secretPlace) after(files map[string][]byte, remove []string) map[string][]byte {
	out := map[string][]byte{}
	maps.Copy(out, s.have.Data)
	maps.Copy(out, files)
	for _, file := range remove {
		delete(out, file)
	}
	return out
}

// fits implements place.
func (s *secretPlace) fits(files map[string][]byte, remove []string) error {
	after := s.after(files, remove)
	if n := state.Size(after); n > state.MaxStoreBytes {
		return fail(SecretFullReason, "Secret %s would have %d bytes in %d files, and a Secret holds %d: select fewer clusters, split them over several exports, or export to Git", s.name, n, len(after), state.MaxStoreBytes)
	}
	return nil
}

// write implements place.
func (s *secretPlace) write(ctx context.Context, c change) (string, error) {
	var u *unstructured.Unstructured
	var err error
	if s.there {
		u, err = s.patch(ctx, c)
	} else {
		u, err = s.create(ctx, c)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || s.there && apierrors.IsNotFound(err) {
		return "", &contendedError{err}
	}
	if err != nil {
		return "", fmt.Errorf("writing Secret %s: %w", s.name, err)
	}
	s.have.Data = s.after(c.files, c.remove)
	return s.name.Name + "@" + u.GetResourceVersion(), nil
}

func (s *secretPlace) create(ctx context.Context, c change) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.name.Name, Namespace: s.name.Namespace, Annotations: map[string]string{ExportAnnotation: s.owner}},
		Type:       corev1.SecretTypeOpaque, Data: c.files,
	})
	if err != nil {
		return nil, err
	}
	return s.client.Resource(secrets).Namespace(s.name.Namespace).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: live.FieldManager})
}

// patch changes the files alone, if nobody has changed the Secret meanwhile.
func (s *secretPlace) patch(ctx context.Context, c change) (*unstructured.Unstructured, error) {
	data := map[string]any{}
	for file, content := range c.files {
		data[file] = content // json writes bytes as the API server reads them
	}
	for _, file := range c.remove {
		data[file] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": s.have.ResourceVersion}, "data": data})
	if err != nil {
		return nil, err
	}
	return s.client.Resource(secrets).Namespace(s.name.Namespace).Patch(ctx, s.name.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: live.FieldManager})
}
