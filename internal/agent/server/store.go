package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ksctl/gitops/internal/atomicfile"
)

// Store stores one document per cluster. Documents contain no secrets. Calls for the same cluster
// are never concurrent.
type Store interface {
	// Load returns the document of a cluster; nil if there is none.
	Load(ctx context.Context, cluster string) ([]byte, error)
	// Save replaces the document old with data. old is the document that was last loaded or saved.
	// The error is ErrConflict if the stored document is another one.
	Save(ctx context.Context, cluster string, old, data []byte) error
}

// ErrConflict means that another agent has changed the document.
var ErrConflict = errors.New("another agent changed the recorded operations: only one agent may scale a cluster")

// FileStore stores documents in a directory, for an agent that runs outside of a cluster.
type FileStore struct {
	// Dir is the directory of the documents. Save creates it if it does not exist.
	Dir string
}

func (s *FileStore) path(cluster string) string { return filepath.Join(s.Dir, cluster+".json") }

// Load implements Store.
func (s *FileStore) Load(_ context.Context, cluster string) ([]byte, error) {
	data, err := os.ReadFile(s.path(cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save implements Store.
func (s *FileStore) Save(ctx context.Context, cluster string, old, data []byte) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	have, err := s.Load(ctx, cluster)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, old) {
		return ErrConflict
	}
	return atomicfile.Write(s.path(cluster), data, 0o600)
}

// ConfigMapStore stores documents in a ConfigMap, with the cluster's name as the key.
type ConfigMapStore struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

// Load implements Store.
func (s *ConfigMapStore) Load(ctx context.Context, cluster string) ([]byte, error) {
	cm, err := s.get(ctx)
	if err != nil || cm.Data[cluster] == "" {
		return nil, err
	}
	return []byte(cm.Data[cluster]), nil
}

// get returns the ConfigMap; one without a name if it does not exist.
func (s *ConfigMapStore) get(ctx context.Context) (*corev1.ConfigMap, error) {
	cm, err := s.Client.CoreV1().ConfigMaps(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return &corev1.ConfigMap{}, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", s.Namespace, s.Name, err)
	}
	return cm, nil
}

// Save implements Store. It retries after conflicts, which writes of other clusters' documents
// cause.
func (s *ConfigMapStore) Save(ctx context.Context, cluster string, old, data []byte) error {
	const tries = 5
	var err error
	for range tries {
		var cm *corev1.ConfigMap
		if cm, err = s.get(ctx); err != nil {
			return err
		}
		have := cm.Data[cluster]
		if have == string(data) {
			return nil // an earlier attempt succeeded, but its response was lost
		}
		if have != string(old) {
			return ErrConflict
		}
		err = s.write(ctx, cm, cluster, string(data))
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

func (s *ConfigMapStore) write(ctx context.Context, cm *corev1.ConfigMap, cluster, data string) error {
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[cluster] = data
	maps := s.Client.CoreV1().ConfigMaps(s.Namespace)
	if cm.Name != "" {
		_, err := maps.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	}
	cm.Namespace, cm.Name = s.Namespace, s.Name
	_, err := maps.Create(ctx, cm, metav1.CreateOptions{})
	return err
}
