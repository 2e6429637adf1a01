// Package statestore reads and writes the ksctl store in a namespace, for the kinds that import and
// export states. Clients always have the permissions of an account, and only the keys that the
// caller passes are changed.
package statestore

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks/state"
)

// Contents are the contents of a store.
type Contents struct {
	States, Credentials map[string][]byte
	// HasStates and HasCredentials are true if the ConfigMap and the Secret exist.
	HasStates, HasCredentials bool
	// External is true if ksctl stores its states in a MongoDB instead.
	External bool
}

// Store is the ksctl store of a namespace, as it was read.
type Store struct {
	Contents
	// Namespace is the namespace of the store.
	Namespace string

	client dynamic.Interface
	// configMap and secret are the resourceVersions; empty if the object does not exist.
	configMap, secret string
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// Read reads the store of a namespace with a client. It reads the credentials only if credentials
// is true.
func Read(ctx context.Context, client dynamic.Interface, namespace string, credentials bool) (*Store, error) {
	s := &Store{Namespace: namespace, client: client}
	if err := s.readStates(ctx); err != nil {
		return nil, err
	}
	if credentials {
		if err := s.readCredentials(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	s.External, err = s.get(ctx, secrets, state.ExternalStoreSecret, &corev1.Secret{})
	return s, err
}

func (s *Store) readStates(ctx context.Context) (err error) {
	var states corev1.ConfigMap
	s.HasStates, err = s.get(ctx, configMaps, state.StoreConfigMap, &states)
	s.States, s.configMap = states.BinaryData, states.ResourceVersion
	return err
}

func (s *Store) readCredentials(ctx context.Context) (err error) {
	var credentials corev1.Secret
	s.HasCredentials, err = s.get(ctx, secrets, state.StoreSecret, &credentials)
	s.Credentials, s.secret = credentials.Data, credentials.ResourceVersion
	return err
}

// ReloadAfterConflict reloads the object of the store that another client changed, if err is a
// conflict. It reloads only that object, because the longer a reload takes, the likelier is another
// conflict. It returns any other err unchanged.
func (s *Store) ReloadAfterConflict(ctx context.Context, err error) error {
	var write *WriteError
	switch {
	case !errors.As(err, &write) || !write.isConflict():
		return err
	case write.resource == secrets:
		return s.readCredentials(ctx)
	}
	return s.readStates(ctx)
}

// get reads an object. It returns false if the object does not exist.
func (s *Store) get(ctx context.Context, kind schema.GroupVersionResource, name string, into any) (bool, error) {
	found, err := engine.GetInto(ctx, s.client, kind, s.Namespace, name, into)
	if err != nil {
		return false, fmt.Errorf("reading the ksctl store: %w", err)
	}
	return found, nil
}

// Write sets keys of the store, and keeps all others. If the object was changed since it was read,
// the error is a conflict.
func (s *Store) Write(ctx context.Context, states, credentials map[string][]byte) error {
	return s.write(ctx, setKeys(states), setKeys(credentials))
}

// Remove deletes keys of the store, with the same conflict as Write.
func (s *Store) Remove(ctx context.Context, states, credentials []string) error {
	return s.write(ctx, deleteKeys(states), deleteKeys(credentials))
}

// write changes keys of both objects: those with the value nil are deleted.
func (s *Store) write(ctx context.Context, states, credentials map[string]any) error {
	if err := s.patchOrCreate(ctx, configMaps, state.StoreConfigMap, "ConfigMap", "binaryData", s.configMap,
		states); err != nil {
		return err
	}
	return s.patchOrCreate(ctx, secrets, state.StoreSecret, "Secret", "data", s.secret, credentials)
}

// NamespaceOf returns the namespace of a store, with the default for a spec without store or
// namespace.
func NamespaceOf(s *v1alpha1.StateStore) string {
	if s == nil || s.Namespace == "" {
		return state.StoreNamespace
	}
	return s.Namespace
}

// FilterOf returns the filter of a selector; nil selects all clusters.
func FilterOf(s *v1alpha1.StateSelector) state.Filter {
	if s == nil {
		return state.Filter{}
	}
	return state.Filter(*s)
}

// HashDocument returns a keyed hash of the canonical form of a document. Without the key, the hash
// reveals nothing about the document.
func HashDocument(key, data []byte) string {
	canonical, err := state.Canonical(data)
	if err != nil {
		canonical = data // not JSON: another program wrote it
	}
	return HashBytes(key, canonical)
}

// HashBytes returns a keyed hash of bytes.
func HashBytes(key, data []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// setKeys returns the patch that sets values. JSON encodes bytes in base64, as the API server
// expects.
func setKeys(values map[string][]byte) map[string]any {
	out := map[string]any{}
	for key, v := range values {
		out[key] = v
	}
	return out
}

func deleteKeys(keys []string) map[string]any {
	out := map[string]any{}
	for _, key := range keys {
		out[key] = nil
	}
	return out
}

// patchOrCreate changes keys of one object, or creates the object.
func (s *Store) patchOrCreate(ctx context.Context, resource schema.GroupVersionResource,
	name, kind, field, version string, values map[string]any) error {
	if len(values) == 0 {
		return nil
	}
	metadata := map[string]any{"name": name, "namespace": s.Namespace}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": kind, field: values, "metadata": metadata})
	if err != nil {
		return err
	}
	c := s.client.Resource(resource).Namespace(s.Namespace)
	if version != "" {
		_, err = c.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: live.FieldManager})
	} else {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(body); err != nil {
			return err
		}
		_, err = c.Create(ctx, u, metav1.CreateOptions{FieldManager: live.FieldManager})
	}
	if err != nil {
		return &WriteError{resource: resource, existed: version != "", object: kind + " " + s.Namespace + "/" + name,
			namespace: s.Namespace, err: err}
	}
	return nil
}

// WriteError is the error of a write to the store.
type WriteError struct {
	resource          schema.GroupVersionResource
	object, namespace string
	existed           bool // whether the object existed when it was read
	err               error
}

// isConflict is true if another client changed, created or deleted the object since it was read.
func (e *WriteError) isConflict() bool {
	return apierrors.IsConflict(e.err) || apierrors.IsAlreadyExists(e.err) || e.existed && apierrors.IsNotFound(e.err)
}

// Error implements error.
func (e *WriteError) Error() string {
	if apierrors.IsNotFound(e.err) && !e.existed {
		return fmt.Sprintf("writing %s: namespace %s does not exist: create the namespace, or set "+
			"spec.store.namespace to that of ksctl", e.object, e.namespace)
	}
	return "writing " + e.object + ": " + e.err.Error()
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.err }
