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

// The key is generated once. Another name or field of the Secret would cause a new key, which would
// change all hashes in statuses.
func TestGoldenHashKey(t *testing.T) {
	const namespace = "ksctl-gitops-system"
	c := fake.NewClientBuilder().Build()
	key, err := hashKey(t.Context(), c, namespace)
	if err != nil {
		t.Fatal(err)
	}
	var created corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ksctl-gitops-hash-key"},
		&created); err != nil {
		t.Fatal(err)
	}
	if len(key) != 32 || !bytes.Equal(created.Data["key"], key) {
		t.Errorf("the Secret has %d bytes, the key has %d, want the same 32", len(created.Data["key"]), len(key))
	}
	created.ResourceVersion = "" // set by the fake API server
	for field := range created.Data {
		created.Data[field] = []byte("a random key of 32 bytes") // it differs each time
	}
	golden.JSON(t, "hash-key.json", &created)

	existing := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ksctl-gitops-hash-key"},
		Data: map[string][]byte{"key": []byte("0123456789abcdef")}}
	got, err := hashKey(t.Context(), fake.NewClientBuilder().WithObjects(existing).Build(), namespace)
	if err != nil || string(got) != "0123456789abcdef" {
		t.Errorf("existing key: got %q, %v", got, err)
	}
}
