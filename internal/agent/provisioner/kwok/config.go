package kwok

import (
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

// ProviderID is what the nodes have as their spec.providerID.
type ProviderID string

// Provider IDs.
const (
	// K3s is k3s://<name of the node>, as k3s sets it. It is the default.
	K3s ProviderID = "k3s"
	// None is none, as kubeadm leaves it.
	None ProviderID = "none"
)

// Knobs are what a file may say. It is read at each call, so that it can be changed while the
// agent runs; one that is not there says nothing.
type Knobs struct {
	// Sizes that there are besides the defaults, or instead of those of the same name.
	Sizes map[string]Size `json:"sizes,omitempty"`
	// ProviderID of nodes that are made from now on.
	ProviderID ProviderID `json:"providerID,omitempty"`
	// NoNode has machines that are made from now on join no cluster: they are listed, and there is
	// no node of theirs. They join when this is no more so, and machines are listed next.
	NoNode bool `json:"noNode,omitempty"`
	// List, Create and Delete go wrong so.
	List   Knob `json:"list,omitzero"`
	Create Knob `json:"create,omitzero"`
	Delete Knob `json:"delete,omitzero"`
}

// Knob is how an operation goes wrong. What is set of it counts in the order of the fields.
type Knob struct {
	// After is how many machines are made or deleted before it goes wrong. A number above 0
	// is of no use with Pretend.
	After int `json:"after,omitempty"`
	// Delay before it begins or, with After, before it goes on.
	Delay metav1.Duration `json:"delay,omitzero"`
	// Panic has the program crash.
	Panic bool `json:"panic,omitempty"`
	// Fail is answered.
	Fail *provisioner.Error `json:"fail,omitempty"`
	// Pretend answers success and does nothing.
	Pretend bool `json:"pretend,omitempty"`
}

// Size is what a machine has.
type Size struct {
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
	// EphemeralStorage and Pods have defaults.
	EphemeralStorage resource.Quantity `json:"ephemeralStorage,omitzero"`
	Pods             resource.Quantity `json:"pods,omitzero"`
}

// sizes that there are unless a file says others.
var sizes = map[string]Size{
	"small":          size("1", "2Gi"),
	"medium":         size("2", "4Gi"),
	"large":          size("4", "8Gi"),
	"t3.micro":       size("2", "1Gi"),
	"t3.small":       size("2", "2Gi"),
	"t3.medium":      size("2", "4Gi"),
	"t3.large":       size("2", "8Gi"),
	"t3.xlarge":      size("4", "16Gi"),
	"m5.large":       size("2", "8Gi"),
	"m5.xlarge":      size("4", "16Gi"),
	"Standard_F2s":   size("2", "4Gi"),
	"Standard_F4s":   size("4", "8Gi"),
	"g4s.kube.small": size("1", "2Gi"),
}

func size(cpu, memory string) Size {
	return Size{CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory)}
}

// capacity of a machine of the size.
func (s Size) capacity() corev1.ResourceList {
	or := func(q resource.Quantity, other string) resource.Quantity {
		if q.IsZero() {
			return resource.MustParse(other)
		}
		return q
	}
	return corev1.ResourceList{
		corev1.ResourceCPU: s.CPU, corev1.ResourceMemory: s.Memory,
		corev1.ResourceEphemeralStorage: or(s.EphemeralStorage, "20Gi"), corev1.ResourcePods: or(s.Pods, "110"),
	}
}

// reserved of a machine's memory and processors is what a kubelet keeps for itself, about: it has
// its allocatable differ from its capacity.
var reserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}

func allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(capacity)
	for name, q := range reserved {
		left := out[name].DeepCopy()
		if left.Sub(q); left.Sign() > 0 {
			out[name] = left
		}
	}
	return out
}

// Read reads a file of knobs; "" is none.
func Read(path string) (Knobs, error) {
	var k Knobs
	if path == "" {
		return k, nil
	}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return k, fmt.Errorf("%s: %w", path, err)
	}
	if p := k.ProviderID; p != "" && p != K3s && p != None {
		return k, fmt.Errorf("%s: providerID is %q; want %s or %s", path, p, K3s, None)
	}
	return k, nil
}

// size finds what there is of a name.
func (k Knobs) size(name string) (Size, error) {
	if s, ok := k.Sizes[name]; ok {
		return s, nil
	}
	if s, ok := sizes[name]; ok {
		return s, nil
	}
	known := slices.Concat(slices.Collect(maps.Keys(sizes)), slices.Collect(maps.Keys(k.Sizes)))
	slices.Sort(known)
	return Size{}, &provisioner.Error{Code: "UnknownSize", Class: provisioner.Other,
		Message: fmt.Sprintf("there are no machines of size %s; there are %s", name, strings.Join(slices.Compact(known), ", "))}
}

// turned is true for a knob that does something.
func (k Knob) turned() bool { return k.Delay.Duration > 0 || k.Panic || k.Fail != nil || k.Pretend }

// goWrong does what the knob says; true: nothing more is to be done.
func (k Knob) goWrong(wait func(time.Duration) error) (bool, error) {
	if k.Delay.Duration > 0 {
		if err := wait(k.Delay.Duration); err != nil {
			return true, err
		}
	}
	switch {
	case k.Panic:
		panic("the knob says so")
	case k.Fail != nil:
		return true, k.Fail
	}
	return k.Pretend, nil
}
