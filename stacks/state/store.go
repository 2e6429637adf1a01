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

// Names of the Kubernetes store of ksctl (its driver "store-kubernetes").
const (
	// StoreNamespace is the namespace that ksctl uses.
	StoreNamespace = "ksctl"
	// StoreConfigMap has the document of each cluster, in binaryData, under its [ID.Key].
	StoreConfigMap = "ksctl-state"
	// StoreSecret has the credentials of each cloud, in data, under the name of the cloud.
	StoreSecret = "ksctl-credentials"
	// ExternalStoreSecret exists if the states are in a MongoDB, and has its address.
	ExternalStoreSecret = "ksctl-ext-store"
)

// MaxStoreBytes is the maximum total size of the values of a ConfigMap (MaxSecretSize of the API
// server); all clusters share one ConfigMap. Above [WarnStoreBytes] users are warned.
const (
	MaxStoreBytes  = 1 << 20
	WarnStoreBytes = MaxStoreBytes * 8 / 10
)

// ReadCluster reads the document of a cluster from the store. key is used for errors only. The
// error is a *stacks.Error.
func ReadCluster(key string, data []byte) (*Cluster, error) {
	f, err := parseForm(DocumentForm, key, data, "the file is not the state of one cluster")
	if err != nil {
		return nil, err
	}
	return f.Clusters[0], nil
}

// ReadCredentials reads the credentials of a cloud from the store. key is used for errors only. The
// error is a *stacks.Error.
func ReadCredentials(key string, data []byte) (*Credentials, error) {
	f, err := parseForm(CredentialsForm, key, data, "the file is not the credentials of a cloud")
	if err != nil {
		return nil, err
	}
	return f.Credentials[0], nil
}

// parseForm is like Parse, but returns an error with the message other for a file of another form.
func parseForm(form Form, key string, data []byte, other string) (*File, error) {
	f, err := Parse(key, data)
	if err == nil && f.Form != form {
		err = &problem.Error{File: key, Message: other}
	}
	return f, err
}

// Equal is true for documents with the same canonical form.
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

// TotalSize returns the total size of the values of a ConfigMap or a Secret, in bytes, as the API
// server counts.
func TotalSize(values map[string][]byte) int {
	n := 0
	for _, v := range values {
		n += len(v)
	}
	return n
}

// CheckStoreSize returns an error with the largest documents if the values exceed MaxStoreBytes.
func CheckStoreSize(values map[string][]byte) error {
	total := TotalSize(values)
	if total <= MaxStoreBytes {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(values[b]), len(values[a])), cmp.Compare(a, b))
	})
	var largest []string
	for _, key := range keys[:min(3, len(keys))] {
		largest = append(largest, fmt.Sprintf("%s (%d bytes)", key, len(values[key])))
	}
	return fmt.Errorf("the ksctl store would have %d bytes for %d clusters, but a ConfigMap holds at most %d; the "+
		"largest are %s: remove clusters, or split them over several stores",
		total, len(values), MaxStoreBytes, strings.Join(largest, ", "))
}
