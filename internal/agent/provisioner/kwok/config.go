package kwok

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// ProviderID selects the spec.providerID of fake nodes.
type ProviderID string

// Provider IDs.
const (
	// K3sProviderID is k3s://<node name>, as k3s sets it. It is the default.
	K3sProviderID ProviderID = "k3s"
	// NoProviderID leaves spec.providerID empty, as kubeadm does.
	NoProviderID ProviderID = "none"
)

// Config is the content of the configuration file. The file is read at each request, so it can be
// changed while the agent runs. A missing file is an empty Config.
type Config struct {
	// Sizes add to the default sizes, or replace those of the same name.
	Sizes map[string]Size `json:"sizes,omitempty"`
	// ProviderID selects the provider ID of new nodes.
	ProviderID ProviderID `json:"providerID,omitempty"`
	// NoNode simulates new machines that do not join the cluster: they are listed but have no node.
	// They join at the first List after NoNode is unset.
	NoNode bool `json:"noNode,omitempty"`
	// List, Create and Delete are the faults to inject into these operations.
	List   Fault `json:"list,omitzero"`
	Create Fault `json:"create,omitzero"`
	Delete Fault `json:"delete,omitzero"`
}

// Fault is a fault to inject into an operation. Its fields take effect in their order.
type Fault struct {
	// After is the number of machines that are created or deleted before the fault occurs. It must
	// be 0 with Pretend to change nothing.
	After int `json:"after,omitempty"`
	// Delay is a pause at that point.
	Delay metav1.Duration `json:"delay,omitzero"`
	// Panic crashes the program.
	Panic bool `json:"panic,omitempty"`
	// Fail is the error of the response.
	Fail *provisioner.Error `json:"fail,omitempty"`
	// Pretend returns success without doing anything more.
	Pretend bool `json:"pretend,omitempty"`
}

// Size is the capacity of a machine.
type Size struct {
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
	// EphemeralStorage defaults to 20Gi, Pods to 110.
	EphemeralStorage resource.Quantity `json:"ephemeralStorage,omitzero"`
	Pods             resource.Quantity `json:"pods,omitzero"`
}

// defaultSizes are the sizes that need no configuration file.
var defaultSizes = map[string]Size{
	"small":          newSize("1", "2Gi"),
	"medium":         newSize("2", "4Gi"),
	"large":          newSize("4", "8Gi"),
	"t3.micro":       newSize("2", "1Gi"),
	"t3.small":       newSize("2", "2Gi"),
	"t3.medium":      newSize("2", "4Gi"),
	"t3.large":       newSize("2", "8Gi"),
	"t3.xlarge":      newSize("4", "16Gi"),
	"m5.large":       newSize("2", "8Gi"),
	"m5.xlarge":      newSize("4", "16Gi"),
	"Standard_F2s":   newSize("2", "4Gi"),
	"Standard_F4s":   newSize("4", "8Gi"),
	"g4s.kube.small": newSize("1", "2Gi"),
}

func newSize(cpu, memory string) Size {
	return Size{CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory)}
}

// capacity returns the capacity of a node of the size.
func (s Size) capacity() corev1.ResourceList {
	withDefault := func(q resource.Quantity, fallback string) resource.Quantity {
		if q.IsZero() {
			return resource.MustParse(fallback)
		}
		return q
	}
	return corev1.ResourceList{
		corev1.ResourceCPU: s.CPU, corev1.ResourceMemory: s.Memory,
		corev1.ResourceEphemeralStorage: withDefault(s.EphemeralStorage, "20Gi"),
		corev1.ResourcePods:             withDefault(s.Pods, "110"),
	}
}

// kubeletReserved is roughly what a kubelet reserves for itself. It makes the allocatable resources
// of a node differ from its capacity, as on a real one.
var kubeletReserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("256Mi")}

func allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(capacity)
	for name, q := range kubeletReserved {
		left := out[name].DeepCopy()
		if left.Sub(q); left.Sign() > 0 {
			out[name] = left
		}
	}
	return out
}

// ReadConfig reads a configuration file. An empty path and a missing file return an empty Config.
func ReadConfig(path string) (Config, error) {
	var k Config
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return k, fmt.Errorf("%s: %w", path, err)
	}
	if p := k.ProviderID; p != "" && p != K3sProviderID && p != NoProviderID {
		return k, fmt.Errorf("%s: providerID is %q; want %s or %s", path, p, K3sProviderID, NoProviderID)
	}
	return k, nil
}

// findSize returns the size of a name.
func (k Config) findSize(name string) (Size, error) {
	sizes := maps.Clone(defaultSizes)
	maps.Copy(sizes, k.Sizes)
	if s, ok := sizes[name]; ok {
		return s, nil
	}
	return Size{}, &provisioner.Error{Code: "UnknownSize", Class: provisioner.Other,
		Message: fmt.Sprintf("unknown size %s; known sizes are %s", name,
			strings.Join(slices.Sorted(maps.Keys(sizes)), ", "))}
}

// inject applies the fault. It returns true if the operation must stop and return the error, which
// may be nil.
func (k Fault) inject(ctx context.Context) (bool, error) {
	if k.Delay.Duration > 0 {
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case <-time.After(k.Delay.Duration):
		}
	}
	switch {
	case k.Panic:
		panic("injected panic")
	case k.Fail != nil:
		return true, k.Fail
	}
	return k.Pretend, nil
}
