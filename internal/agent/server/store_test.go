package server

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestStoreLoadAndSave(t *testing.T) {
	for name, s := range map[string]Store{
		"files":     &FileStore{Dir: filepath.Join(t.TempDir(), "made", "here")},
		"ConfigMap": &ConfigMapStore{Client: fake.NewClientset(), Namespace: "ksctl", Name: "operations"},
		"memory":    &memoryStore{},
	} {
		t.Run(name, func(t *testing.T) {
			load := func(cluster, want string) {
				t.Helper()
				if got, err := s.Load(t.Context(), cluster); err != nil || string(got) != want {
					t.Errorf("document of %s: %q, %v; want %q", cluster, got, err, want)
				}
			}
			save := func(cluster, old, data string, want error) {
				t.Helper()
				if err := s.Save(t.Context(), cluster, []byte(old), []byte(data)); !errors.Is(err, want) {
					t.Errorf("%s from %q to %q: %v, want %v", cluster, old, data, err, want)
				}
			}
			load("demo", "")
			save("demo", "", "one", nil)
			save("other", "", "x", nil)
			load("demo", "one")
			save("demo", "one", "two", nil)
			save("demo", "one", "three", ErrConflict)
			save("demo", "", "three", ErrConflict)
			load("demo", "two")
			load("other", "x")
		})
	}
}

func TestConfigMapStoreRetriesConflicts(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl", Name: "operations"},
		Data: map[string]string{"other": "x"}})
	n := 0
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n++; n < 3 {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "operations", nil)
		}
		return false, nil, nil
	})
	s := &ConfigMapStore{Client: client, Namespace: "ksctl", Name: "operations"}
	if err := s.Save(t.Context(), "demo", nil, []byte("one")); err != nil {
		t.Error(err)
	}
	// Repeating a successful write succeeds, because its response may have been lost.
	if err := s.Save(t.Context(), "demo", nil, []byte("one")); err != nil {
		t.Error(err)
	}
	if got, err := s.Load(t.Context(), "other"); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFileStoreWriteError(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &FileStore{Dir: filepath.Join(folder, "file", "below")}
	if err := s.Save(t.Context(), "demo", nil, []byte("one")); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
	if _, err := parseOperationLog([]byte("{")); err == nil {
		t.Error("no error")
	}
}
