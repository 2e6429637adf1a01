package nodegroup

import (
	"bytes"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

func poolOfSize(size string) clusterv1.WorkerPool {
	return clusterv1.WorkerPool{Name: "small", NodeSize: size, Labels: map[string]string{"team": "web"},
		Taints: []corev1.Taint{{Key: "spot", Value: "true", Effect: corev1.TaintEffectNoSchedule}}}
}

// nodeOfPool returns a node of the pool with all kinds of properties that are specific to a node.
func nodeOfPool() *corev1.Node {
	at := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "prod-vm-wp-0-abcde", UID: "1", ResourceVersion: "7", CreationTimestamp: at,
			Annotations: map[string]string{"csi.volume.kubernetes.io/nodeid": "x"},
			Labels: map[string]string{corev1.LabelHostname: "prod-vm-wp-0-abcde",
				"topology.hostpath.csi/node": "prod-vm-wp-0-abcde", "k3s.io/internal-ip": "10.0.0.4",
				corev1.LabelOSStable: "linux", corev1.LabelArchStable: "arm64", "node-role.kubernetes.io/worker": "",
				"team": "db", "disk": "ssd"}},
		Spec: corev1.NodeSpec{ProviderID: "k3s://prod-vm-wp-0-abcde", PodCIDR: "10.42.0.0/24", Unschedulable: true,
			Taints: []corev1.Taint{
				{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
				{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
				{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule},
				{Key: "DeletionCandidateOfClusterAutoscaler", Effect: corev1.TaintEffectPreferNoSchedule},
				{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
				{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at},
				{Key: "spot", Value: "old", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.4"},
				{Type: corev1.NodeExternalIP}},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"),
				corev1.ResourceMemory: resource.MustParse("15Gi"), "nvidia.com/gpu": resource.MustParse("1")},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7800m"),
				corev1.ResourceMemory: resource.MustParse("13Gi"), "nvidia.com/gpu": resource.MustParse("1")},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}},
			NodeInfo:   corev1.NodeSystemInfo{MachineID: "m", OperatingSystem: "linux", Architecture: "arm64"},
			Images:     []corev1.ContainerImage{{Names: []string{"x"}}},
		},
	}
}

func TestTemplateOmitsPropertiesSpecificToANode(t *testing.T) {
	node := nodeOfPool()
	pool := poolOfSize("t3.medium")
	got, source := Template(&pool, node)
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "template-of-small",
			Labels: map[string]string{corev1.LabelHostname: "template-of-small", corev1.LabelOSStable: "linux",
				corev1.LabelArchStable: "arm64", "node-role.kubernetes.io/worker": "", "team": "web", "disk": "ssd",
				clusterv1.PoolLabel: "small"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule},
			{Key: "spot", Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable,
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "arm64"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse},
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse}}},
	}
	if source != clusterv1.TemplateNode || !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n%+v\n%+v", source, got, want)
	}
	if !reflect.DeepEqual(node.Labels, nodeOfPool().Labels) || len(node.Spec.Taints) != 8 {
		t.Error("Template modified the node")
	}
}

// An existing node takes precedence over the capacity in the spec, and that over the catalog.
func TestTemplateSources(t *testing.T) {
	storage, pods := resource.MustParse("50Gi"), int32(30)
	capacity := &clusterv1.MachineCapacity{CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi"),
		EphemeralStorage: &storage, Pods: &pods}
	bare := poolOfSize("t3.medium")
	bare.Capacity = capacity
	empty := nodeOfPool()
	empty.Status.Allocatable = nil
	for name, c := range map[string]struct {
		pool                       clusterv1.WorkerPool
		node                       *corev1.Node
		source                     clusterv1.TemplateSource
		cpu, memory, storage, pods string
		arch                       string
	}{
		"node": {bare, nodeOfPool(), clusterv1.TemplateNode, "7800m", "13Gi", "0", "0", "arm64"},
		"capacity": {bare, nil, clusterv1.TemplateOverride, "3820m", "6342626509", "50Gi", "30",
			"amd64"},
		"node without allocatable": {bare, empty, clusterv1.TemplateOverride, "3820m", "6342626509", "50Gi", "30",
			"amd64"},
		"catalog": {poolOfSize("t3.medium"), nil, clusterv1.TemplateCatalog, "1830m", "2772Mi",
			"20Gi", "110", "amd64"},
		"catalog, name in upper case": {poolOfSize("Standard_D2s_v5"), nil, clusterv1.TemplateCatalog, "1830m",
			"6342626509", "20Gi", "110", "amd64"},
		"catalog, arm64": {poolOfSize("t4g.small"), nil, clusterv1.TemplateCatalog, "1830m", "1236Mi",
			"20Gi", "110", "arm64"},
		"unknown size": {poolOfSize("sofa.large"), nil, clusterv1.TemplateUnknown, "840m", "468Mi",
			"20Gi", "110", "amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, source := Template(&c.pool, c.node)
			has := got.Status.Allocatable
			for resourceName, want := range map[corev1.ResourceName]string{corev1.ResourceCPU: c.cpu,
				corev1.ResourceMemory:           c.memory,
				corev1.ResourceEphemeralStorage: c.storage, corev1.ResourcePods: c.pods} {
				if q := has[resourceName]; q.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s: %s, want %s", resourceName, q.String(), want)
				}
			}
			if source != c.source || got.Labels[corev1.LabelArchStable] != c.arch ||
				got.Status.NodeInfo.Architecture != c.arch ||
				got.Labels["team"] != "web" || got.Labels[clusterv1.PoolLabel] != "small" {
				t.Errorf("%s: %+v", source, got)
			}
		})
	}
}

// Allocatable resources exclude the reservations of the kubelet and the system.
func TestReservedResources(t *testing.T) {
	for cpu, want := range map[int64]int64{1000: 60, 2000: 70, 3000: 75, 4000: 80, 8000: 90, 64000: 230, 2500: 72,
		500: 30, 0: 0} {
		if got := reservedCPU(cpu) - systemCPU; got != want {
			t.Errorf("of %dm: %dm, want %dm", cpu, got, want)
		}
	}
	for memory, want := range map[int64]int64{ // in MiB
		0: 255, 512: 255, 1024: 256, 2048: 512, 4096: 1024, 8192: 1843, 16384: 2662, 131072: 9543, 262144: 12165} {
		got := (reservedMemory(memory*mib) - systemMemory - evictionMemory) / mib
		if got != want {
			t.Errorf("of %d MiB: %d MiB, want %d MiB", memory, got, want)
		}
	}
}

// A machine smaller than the reservations has zero allocatable resources, never negative ones.
func TestAllocatableIsNeverNegative(t *testing.T) {
	allocatable := machine{cpu: 100, memory: 300 * mib}.allocatable()
	if !allocatable.Cpu().IsZero() || !allocatable.Memory().IsZero() {
		t.Errorf("%v", allocatable)
	}
	allocatable = machine{cpu: 1 << 62, memory: 1 << 62}.allocatable()
	if allocatable.Cpu().Sign() < 0 || allocatable.Memory().Sign() < 0 {
		t.Errorf("%v", allocatable)
	}
}

func TestSizeCatalog(t *testing.T) {
	for name, want := range map[string]struct {
		cpus, memory int64
		arm          bool
	}{
		"m5.large": {2, 8192, false}, "c5.9xlarge": {36, 73728, false}, "c6g.medium": {1, 2048, true},
		"r6i.4xlarge":  {16, 131072, false},
		"standard_b2s": {2, 4096, false}, "standard_f72s_v2": {72, 147456, false}, "standard_d4ps_v5": {4, 16384, true},
		"standard_ds2_v2": {2, 7168, false},
		"g3.xlarge":       {6, 16384, false}, "g4s.kube.medium": {2, 4096, false}, "g4p.kube.small": {4, 16384, false},
	} {
		if got := sizeCatalog[name]; got.cpu != want.cpus*1000 || got.memory != want.memory*mib || got.arm != want.arm {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for name, s := range sizeCatalog {
		if s.cpu < 1000 || s.memory < 512*mib {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// An empty template crashes Cluster Autoscaler.
func TestMarshalNodeIsNeverEmpty(t *testing.T) {
	for _, in := range []struct {
		pool clusterv1.WorkerPool
		node *corev1.Node
	}{{}, {pool: poolOfSize("t3.medium")}, {poolOfSize("x"), nodeOfPool()}} {
		node, _ := Template(&in.pool, in.node)
		first, err := MarshalNode(node)
		if err != nil || len(first) == 0 {
			t.Fatalf("%d bytes, %v", len(first), err)
		}
		var back corev1.Node
		if err := back.Unmarshal(first); err != nil {
			t.Fatal(err)
		}
		if back.Name != node.Name || back.Status.Allocatable.Cpu().Cmp(*node.Status.Allocatable.Cpu()) != 0 ||
			!reflect.DeepEqual(back.Labels, node.Labels) {
			t.Errorf("%+v", back)
		}
		again, _ := Template(&in.pool, in.node)
		if second, _ := MarshalNode(again); !bytes.Equal(first, second) {
			t.Error("two templates of the same input differ")
		}
	}
}
