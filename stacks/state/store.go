package state

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/problem"
)

// Names of ksctl's Kubernetes store (its driver "store-kubernetes").
const (
	// StoreNamespace is where ksctl looks.
	StoreNamespace = "ksctl"
	// StoreConfigMap has a document for each cluster, in binaryData, under its [ID.Key].
	StoreConfigMap = "ksctl-state"
	// StoreSecret has the credentials of each cloud, in data, under the cloud's name.
	StoreSecret = "ksctl-credentials"
	// ExternalStoreSecret is there when states are in a MongoDB, and has its address.
	ExternalStoreSecret = "ksctl-ext-store"
)

// MaxStoreBytes is what the values of a ConfigMap may have together (the API server's
// MaxSecretSize); all clusters share one. [WarnStoreBytes] is from when on it is said.
const (
	MaxStoreBytes  = 1 << 20
	WarnStoreBytes = MaxStoreBytes * 8 / 10
)

// ReadCluster reads a document of the store.
func ReadCluster(key string, data []byte) (*Cluster, error) {
	f, err := Parse(key, data)
	if err != nil {
		return nil, err
	}
	if f.Form != DocumentForm {
		return nil, &problem.Error{File: key, Message: "it is not the state of one cluster"}
	}
	return f.Clusters[0], nil
}

// ReadCredentials reads credentials of the store.
func ReadCredentials(key string, data []byte) (*Credentials, error) {
	f, err := Parse(key, data)
	if err != nil {
		return nil, err
	}
	if f.Form != CredentialsForm {
		return nil, &problem.Error{File: key, Message: "it is not the credentials of a cloud"}
	}
	return f.Credentials[0], nil
}

// Equal is true for documents that say the same.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := Canonical(a)
	if err != nil {
		return false
	}
	y, err := Canonical(b)
	return err == nil && bytes.Equal(x, y)
}

// Size of what a store's ConfigMap holds, in bytes as the API server counts them.
func Size(values map[string][]byte) int {
	n := 0
	for _, v := range values {
		n += len(v)
	}
	return n
}

// FullError says that the store can't hold what it would have to.
type FullError struct {
	// Bytes that the store would have, of so many clusters.
	Bytes, Clusters int
	// Largest are keys with their sizes.
	Largest []string
}

func (e *FullError) Error() string {
	return fmt.Sprintf("ksctl's store would have %d bytes for %d clusters, and a ConfigMap holds %d; the largest are %s: take clusters out of it, or split them over several stores",
		e.Bytes, e.Clusters, MaxStoreBytes, strings.Join(e.Largest, ", "))
}

// CheckSize returns a *FullError when a store is too large.
func CheckSize(values map[string][]byte) error {
	total := Size(values)
	if total <= MaxStoreBytes {
		return nil
	}
	e := &FullError{Bytes: total, Clusters: len(values)}
	keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(values[b]), len(values[a])), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(3, len(keys))] {
		e.Largest = append(e.Largest, fmt.Sprintf("%s (%d bytes)", key, len(values[key])))
	}
	return e
}
