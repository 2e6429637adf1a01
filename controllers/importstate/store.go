package importstate

import (
	"context"
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

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks/state"
)

// store is ksctl's, in a namespace, as it was read.
type store struct {
	held
	namespace string
	client    dynamic.Interface
	// resourceVersions; empty: the object is not there.
	configMap, secret string
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// readStore reads what ksctl keeps in a namespace, with the rights of a client.
func readStore(ctx context.Context, client dynamic.Interface, namespace string, credentials bool) (*store, error) {
	s := &store{namespace: namespace, client: client}
	if err := s.readStates(ctx); err != nil {
		return nil, err
	}
	if credentials {
		if err := s.readCredentials(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	s.external, err = s.get(ctx, secrets, state.ExternalStoreSecret, &corev1.Secret{})
	return s, err
}

func (s *store) readStates(ctx context.Context) (err error) {
	var states corev1.ConfigMap
	s.hasStates, err = s.get(ctx, configMaps, state.StoreConfigMap, &states)
	s.states, s.configMap = states.BinaryData, states.ResourceVersion
	return err
}

func (s *store) readCredentials(ctx context.Context) (err error) {
	var credentials corev1.Secret
	s.hasCredentials, err = s.get(ctx, secrets, state.StoreSecret, &credentials)
	s.credentials, s.secret = credentials.Data, credentials.ResourceVersion
	return err
}

// reread reads what somebody else wrote meanwhile, and nothing more: the longer it takes, the
// likelier it is that there is somebody again. It returns the error itself if it is another.
func (s *store) reread(ctx context.Context, err error) error {
	var write *writeError
	switch {
	case !errors.As(err, &write) || !write.taken():
		return err
	case write.resource == secrets:
		return s.readCredentials(ctx)
	}
	return s.readStates(ctx)
}

// get reads an object; false if it is not there.
func (s *store) get(ctx context.Context, kind schema.GroupVersionResource, name string, into any) (bool, error) {
	found, err := engine.Read(ctx, s.client, kind, s.namespace, name, into)
	if err != nil {
		return false, fmt.Errorf("reading ksctl's store: %w", err)
	}
	return found, nil
}

// write puts values into the store: its own keys alone, and only if nobody has written
// since it was read; else the error is a conflict.
func (s *store) write(ctx context.Context, states, credentials map[string][]byte) error {
	if err := s.put(ctx, configMaps, state.StoreConfigMap, "ConfigMap", "binaryData", s.configMap, patchOf(states)); err != nil {
		return err
	}
	return s.put(ctx, secrets, state.StoreSecret, "Secret", "data", s.secret, patchOf(credentials))
}

// remove takes keys out of the store, as write puts them in.
func (s *store) remove(ctx context.Context, states, credentials []string) error {
	if err := s.put(ctx, configMaps, state.StoreConfigMap, "ConfigMap", "binaryData", s.configMap, without(states)); err != nil {
		return err
	}
	return s.put(ctx, secrets, state.StoreSecret, "Secret", "data", s.secret, without(credentials))
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
func (s *store) put(ctx context.Context, resource schema.GroupVersionResource, name, kind, field, version string, values map[string]any) error {
	if len(values) == 0 {
		return nil
	}
	object := map[string]any{"apiVersion": "v1", "kind": kind, field: values,
		"metadata": map[string]any{"name": name, "namespace": s.namespace, "resourceVersion": version}}
	if version == "" {
		delete(object["metadata"].(map[string]any), "resourceVersion")
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	c := s.client.Resource(resource).Namespace(s.namespace)
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
		return &writeError{resource: resource, existed: version != "", what: kind + " " + s.namespace + "/" + name, namespace: s.namespace, err: err}
	}
	return nil
}

// writeError is a write to the store that failed.
type writeError struct {
	resource        schema.GroupVersionResource
	what, namespace string
	existed         bool // when it was read
	err             error
}

// taken is true when somebody else wrote meanwhile.
func (e *writeError) taken() bool {
	return apierrors.IsConflict(e.err) || apierrors.IsAlreadyExists(e.err) || e.existed && apierrors.IsNotFound(e.err)
}

// Error implements error.
func (e *writeError) Error() string {
	if apierrors.IsNotFound(e.err) && !e.existed {
		return fmt.Sprintf("writing %s: there is no namespace %s: create it, or set spec.store.namespace to the one that ksctl uses", e.what, e.namespace)
	}
	return "writing " + e.what + ": " + e.err.Error()
}

// Unwrap gives the cause.
func (e *writeError) Unwrap() error { return e.err }
