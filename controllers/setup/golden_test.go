package setup

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ksctl/gitops/internal/golden"
)

// The key is generated once. With another name or field there would be a new key, and all hashes in
// statuses would change.
func TestGoldenHashKey(t *testing.T) {
	const namespace = "ksctl-gitops-system"
	c := fake.NewClientBuilder().Build()
	key, err := hashKey(t.Context(), c, namespace)
	if err != nil {
		t.Fatal(err)
	}
	var made corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ksctl-gitops-hash-key"},
		&made); err != nil {
		t.Fatal(err)
	}
	if len(key) != 32 || !bytes.Equal(made.Data["key"], key) {
		t.Errorf("the Secret has %d bytes, and the key has %d", len(made.Data["key"]), len(key))
	}
	made.ResourceVersion = "" // of the fake API server
	for field := range made.Data {
		made.Data[field] = []byte("a random key of 32 bytes") // it differs each time
	}
	golden.JSON(t, "hash-key.json", &made)

	before := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ksctl-gitops-hash-key"},
		Data: map[string][]byte{"key": []byte("0123456789abcdef")}}
	got, err := hashKey(t.Context(), fake.NewClientBuilder().WithObjects(before).Build(), namespace)
	if err != nil || string(got) != "0123456789abcdef" {
		t.Errorf("an earlier key is read as %q, %v", got, err)
	}
}
