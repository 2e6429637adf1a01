package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Store keeps a document for each cluster. It has no secrets.
type Store interface {
	// Load returns the document of a cluster; nil if there is none.
	Load(ctx context.Context, cluster string) ([]byte, error)
	// Save replaces the document that was loaded or saved last. The error is ErrTaken if there
	// is another one by now.
	Save(ctx context.Context, cluster string, old, data []byte) error
}

// ErrTaken is that of a document which somebody else has written meanwhile: another agent.
var ErrTaken = errors.New("somebody else has written down operations of the cluster: there may be only one agent for it")

// FileStore keeps documents in a folder, for an agent that runs outside of a cluster.
type FileStore struct {
	// Folder that they are in. It is made when it is not there.
	Folder string

	mu sync.Mutex
}

var _ Store = (*FileStore)(nil)

func (s *FileStore) path(cluster string) string { return filepath.Join(s.Folder, cluster+".json") }

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
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.Folder, 0o700); err != nil {
		return err
	}
	have, err := s.Load(ctx, cluster)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, old) {
		return ErrTaken
	}
	return replace(s.path(cluster), data)
}

// replace has a file hold data from one moment to the next, also if the machine stops in between.
func replace(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ConfigMapStore keeps documents in a ConfigMap, each under the cluster's name.
type ConfigMapStore struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

var _ Store = (*ConfigMapStore)(nil)

// Load implements Store.
func (s *ConfigMapStore) Load(ctx context.Context, cluster string) ([]byte, error) {
	cm, err := s.get(ctx)
	if cm == nil || err != nil || cm.Data[cluster] == "" {
		return nil, err
	}
	return []byte(cm.Data[cluster]), nil
}

// get reads the ConfigMap; nil if it is not there.
func (s *ConfigMapStore) get(ctx context.Context) (*corev1.ConfigMap, error) {
	cm, err := s.Client.CoreV1().ConfigMaps(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", s.Namespace, s.Name, err)
	}
	return cm, nil
}

// Save implements Store. A write of another cluster's document in between does no harm.
func (s *ConfigMapStore) Save(ctx context.Context, cluster string, old, data []byte) error {
	const tries = 5
	var err error
	for range tries {
		var cm *corev1.ConfigMap
		if cm, err = s.get(ctx); err != nil {
			return err
		}
		var have string
		if cm != nil {
			have = cm.Data[cluster]
		}
		if have == string(data) {
			return nil // it was written, and the answer got lost
		}
		if have != string(old) {
			return ErrTaken
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
	maps := s.Client.CoreV1().ConfigMaps(s.Namespace)
	if cm == nil {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}, Data: map[string]string{cluster: data}}
		_, err := maps.Create(ctx, cm, metav1.CreateOptions{})
		return err
	}
	cm = cm.DeepCopy()
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[cluster] = data
	_, err := maps.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}
