// Package statestore reads and writes ksctl's own store in a namespace, for those kinds that
// have to do with states: always with the rights of an account, and its own keys alone.
package statestore

import (
	"cmp"
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

// Held is what a store holds.
type Held struct {
	States, Credentials map[string][]byte
	// HasStates and HasCredentials are true when there is something to hold them.
	HasStates, HasCredentials bool
	// External is true when ksctl keeps its states in a MongoDB instead.
	External bool
}

// Store is ksctl's, in a namespace, as it was read.
type Store struct {
	Held
	// Namespace that it is in.
	Namespace string

	client dynamic.Interface
	// resourceVersions; empty: the object is not there.
	configMap, secret string
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// Read reads what ksctl keeps in a namespace, with the rights of a client.
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

// Reread reads what somebody else wrote meanwhile, and nothing more: the longer it takes, the
// likelier it is that there is somebody again. It returns the error itself if it is another.
func (s *Store) Reread(ctx context.Context, err error) error {
	var write *WriteError
	switch {
	case !errors.As(err, &write) || !write.taken():
		return err
	case write.resource == secrets:
		return s.readCredentials(ctx)
	}
	return s.readStates(ctx)
}

// get reads an object; false if it is not there.
func (s *Store) get(ctx context.Context, kind schema.GroupVersionResource, name string, into any) (bool, error) {
	found, err := engine.Read(ctx, s.client, kind, s.Namespace, name, into)
	if err != nil {
		return false, fmt.Errorf("reading ksctl's store: %w", err)
	}
	return found, nil
}

// Write puts values into the store: its own keys alone, and only if nobody has written
// since it was read; else the error is a conflict.
func (s *Store) Write(ctx context.Context, states, credentials map[string][]byte) error {
	if err := s.put(ctx, configMaps, state.StoreConfigMap, "ConfigMap", "binaryData", s.configMap, patchOf(states)); err != nil {
		return err
	}
	return s.put(ctx, secrets, state.StoreSecret, "Secret", "data", s.secret, patchOf(credentials))
}

// Remove takes keys out of the store, as Write puts them in.
func (s *Store) Remove(ctx context.Context, states, credentials []string) error {
	if err := s.put(ctx, configMaps, state.StoreConfigMap, "ConfigMap", "binaryData", s.configMap, without(states)); err != nil {
		return err
	}
	return s.put(ctx, secrets, state.StoreSecret, "Secret", "data", s.secret, without(credentials))
}

// NamespaceOf a store, where a spec may say nothing of it.
func NamespaceOf(s *v1alpha1.StateStore) string {
	if s == nil {
		return state.StoreNamespace
	}
	return cmp.Or(s.Namespace, state.StoreNamespace)
}

// FilterOf a selector, where a spec may have none.
func FilterOf(s *v1alpha1.StateSelector) state.Filter {
	if s == nil {
		return state.Filter{}
	}
	return state.Filter{Cloud: s.Cloud, ClusterType: s.ClusterType, ClusterName: s.ClusterName, Region: s.Region}
}

// Hash tells documents apart by what they say, and tells nothing of them to who has not the key.
func Hash(key, data []byte) string {
	canonical, err := state.Canonical(data)
	if err != nil {
		canonical = data // of somebody else, and not JSON
	}
	return Sum(key, canonical)
}

// Sum tells bytes apart, likewise.
func Sum(key, data []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// patchOf sets values; json writes bytes as the API server reads them.
func patchOf(values map[string][]byte) map[string]any {
	out := map[string]any{}
	for key, v := range values {
		out[key] = v
	}
	return out
}

func without(keys []string) map[string]any {
	out := map[string]any{}
	for _, key := range keys {
		out[key] = nil
	}
	return out
}

// put changes keys of one object, or makes it.
func (s *Store) put(ctx context.Context, resource schema.GroupVersionResource, name, kind, field, version string, values map[string]any) error {
	if len(values) == 0 {
		return nil
	}
	object := map[string]any{"apiVersion": "v1", "kind": kind, field: values,
		"metadata": map[string]any{"name": name, "namespace": s.Namespace, "resourceVersion": version}}
	if version == "" {
		delete(object["metadata"].(map[string]any), "resourceVersion")
	}
	body, err := json.Marshal(object)
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
		return &WriteError{resource: resource, existed: version != "", what: kind + " " + s.Namespace + "/" + name, namespace: s.Namespace, err: err}
	}
	return nil
}

// WriteError is a write to the store that failed.
type WriteError struct {
	resource        schema.GroupVersionResource
	what, namespace string
	existed         bool // when it was read
	err             error
}

// taken is true when somebody else wrote meanwhile.
func (e *WriteError) taken() bool {
	return apierrors.IsConflict(e.err) || apierrors.IsAlreadyExists(e.err) || e.existed && apierrors.IsNotFound(e.err)
}

// Error implements error.
func (e *WriteError) Error() string {
	if apierrors.IsNotFound(e.err) && !e.existed {
		return fmt.Sprintf("writing %s: there is no namespace %s: create it, or set spec.store.namespace to the one that ksctl uses", e.what, e.namespace)
	}
	return "writing " + e.what + ": " + e.err.Error()
}

// Unwrap gives the cause.
func (e *WriteError) Unwrap() error { return e.err }
