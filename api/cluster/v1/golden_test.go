package v1

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
)

var goldenTime = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))

// TestGoldenStored only compares JSON: it also sets fields that exclude each other in the API.
func TestGoldenStored(t *testing.T) {
	cluster, autoscaler := goldenCluster(), goldenAutoScaler()
	golden.JSON(t, "ksctlcluster.json", cluster)
	golden.JSON(t, "ksctlautoscaler.json", autoscaler)
	for _, part := range []any{&cluster.Spec, &cluster.Status, &autoscaler.Spec, &autoscaler.Status} {
		golden.Complete(t, part)
	}
}

// TestGoldenUnset checks that unset fields are omitted, unless the API requires them.
func TestGoldenUnset(t *testing.T) {
	golden.JSON(t, "ksctlcluster-unset.json", &KsctlCluster{})
	golden.JSON(t, "ksctlautoscaler-unset.json", &KsctlAutoScaler{})
	golden.JSON(t, "elements-unset.json", &struct {
		Import     ClusterImport
		KubeConfig KubeConfigRef
		ArgoCD     ArgoCDCluster
		Facts      ClusterFacts
		Nodes      NodePool
		Pool       WorkerPool
		PoolStatus WorkerPoolStatus
		Backoff    PoolBackoff
		Scale      PoolScale
		Capacity   MachineCapacity
		Operation  ScaleOperation
		Size       WorkerSize
		Deployment AutoscalerDeployment
		Autoscaler AutoscalerStatus
		Limits     ScalingLimits
		Bounds     Bounds
		Down       ScaleDown
		Up         ScaleUp
		Pods       PodRules
	}{})
}

func TestGoldenKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	types := scheme.KnownTypes(GroupVersion)
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		if strings.HasPrefix(types[kind].PkgPath(), reflect.TypeFor[KsctlCluster]().PkgPath()) {
			fmt.Fprintf(&out, "%s, %s\n", GroupVersion, kind)
		}
	}
	golden.Equal(t, "kinds.txt", out.Bytes())
}

func goldenMeta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: "3b5a3a5e-8f0e-4d0a-9d0c-0a4f1f6f3c11", Generation: 7,
		CreationTimestamp: goldenTime, Labels: labels, Finalizers: []string{appsv1.Finalizer}}
}

func goldenSchedule() appsv1.Schedule {
	return appsv1.Schedule{Interval: duration(15 * time.Minute), RetryInterval: duration(90 * time.Second),
		Timeout: duration(time.Hour), Suspend: true}
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func goldenStatus(kind string) appsv1.CommonStatus {
	return appsv1.CommonStatus{ObservedGeneration: 7, LastHandledReconcileAt: "2026-05-01T11:00:00Z",
		ServiceAccount: &appsv1.AccountReference{Name: "deployer", UID: "5e8f"},
		WaitsFor: []appsv1.WaitReference{{Type: appsv1.WaitPruning, Kind: "KsctlInstall", Namespace: "team",
			Name: "web", Object: "ConfigMap team/a"}},
		Conditions: []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: 7,
			LastTransitionTime: goldenTime,
			Reason:             "Probed", Message: "the API server answers"}}}
}

func goldenCluster() *KsctlCluster {
	return &KsctlCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "KsctlCluster"},
		ObjectMeta: goldenMeta("prod", map[string]string{CloudLabel: "aws", RegionLabel: "eu-north-1", TypeLabel: "ha",
			DistributionLabel: "k3s",
			ClusterLabel:      "prod"}),
		Spec: KsctlClusterSpec{
			Schedule: goldenSchedule(), ImportRef: &ClusterImport{Name: "states", Key: "aws.ha.prod.eu-north-1"},
			KubeConfigRef:      &KubeConfigRef{Name: "prod", Key: "config", Context: "admin"},
			ArgoCD:             &ArgoCDCluster{Namespace: "argocd", Name: "prod", Project: "web"},
			ServiceAccountName: "reader",
		},
		Status: KsctlClusterStatus{
			CommonStatus: goldenStatus(ReachableCondition), Import: "states", Store: "ksctl",
			Key: "aws.ha.prod.eu-north-1",
			Facts: &ClusterFacts{Name: "prod", Cloud: "aws", Region: "eu-north-1", Type: "ha", Distribution: "k3s",
				Versions: map[string]string{"kubernetes": "1.36.3", "etcd": "3.6.1"}, Pools: []NodePool{{Role: "Worker",
					Size: "t3.large", Count: 3}}},
			Server: "https://198.51.100.7:6443", KubernetesVersion: "v1.36.3", Nodes: ptr.To[int32](0),
			KubeConfigSecret: "prod-kubeconfig",
			KubeConfigKey:    "value", KubeConfigExpires: &goldenTime, ArgoCDSecret: "argocd/cluster-prod",
		},
	}
}

func goldenAutoScaler() *KsctlAutoScaler {
	return &KsctlAutoScaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "KsctlAutoScaler"},
		ObjectMeta: goldenMeta("prod", map[string]string{PoolLabel: "general"}),
		Spec: KsctlAutoScalerSpec{
			Schedule: goldenSchedule(), ClusterRef: AutoScaledCluster{Name: "prod"}, Mode: ScalingUpOnly,
			Agent: appsv1.AgentEndpoint{Address: "agent.ksctl.svc:443",
				SecretRef:  &fluxmeta.LocalObjectReference{Name: "agent"},
				ServerName: "agent.example.com", Plaintext: true},
			Autoscaler: &AutoscalerDeployment{Install: ptr.To(false), Version: "1.36.0",
				Image: "registry.example.com/autoscaler", LogVerbosity: ptr.To[int32](0),
				Resources: &corev1.ResourceRequirements{
					Limits:   corev1.ResourceList{"memory": resource.MustParse("600Mi")},
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
					Claims:   []corev1.ResourceClaim{{Name: "claim", Request: "one"}}}},
			Limits: &ScalingLimits{MaxNodesTotal: 20, Cores: goldenBounds(), MemoryGiB: goldenBounds()},
			ScaleDown: &ScaleDown{Order: AnyOrder, UtilizationThresholdPercent: ptr.To[int32](0),
				UnneededTime: duration(time.Minute),
				UnreadyTime:  duration(2 * time.Minute), DelayAfterAdd: duration(3 * time.Minute),
				DelayAfterDelete:  duration(4 * time.Second),
				DelayAfterFailure: duration(5 * time.Minute), MaxGracefulTermination: duration(6 * time.Minute)},
			ScaleUp: &ScaleUp{Expanders: []Expander{"Priority", "Random"}, BalanceSimilarPools: true,
				NewPodDelay:          duration(7 * time.Second),
				MaxNodeProvisionTime: duration(8 * time.Minute), MaxNodeStartupTime: duration(9 * time.Minute),
				EnforceMinSize: ptr.To(false),
				ScanInterval:   duration(10 * time.Second)},
			Pods: &PodRules{SkipNodesWithLocalStorage: ptr.To(false), SkipNodesWithSystemPods: ptr.To(false),
				SkipNodesWithCustomControllerPods: ptr.To(false), IgnoreDaemonSetsUtilization: true,
				PriorityCutoff: ptr.To[int32](-5)},
			Pools: []WorkerPool{{Name: "general", NodeSize: "t3.large", MinSize: 1, MaxSize: 5, Priority: 10,
				Labels: map[string]string{"tier": "web"},
				Taints: []corev1.Taint{{Key: "tier", Value: "web", Effect: corev1.TaintEffectNoSchedule,
					TimeAdded: &goldenTime}},
				Capacity: &MachineCapacity{CPU: resource.MustParse("2"), Memory: resource.MustParse("8Gi"),
					EphemeralStorage: ptr.To(resource.MustParse("20Gi")), Pods: ptr.To[int32](110)}}},
			ServiceAccountName: "reader",
		},
		Status: KsctlAutoScalerStatus{
			CommonStatus: goldenStatus(ProviderServingCondition),
			Autoscaler: &AutoscalerStatus{Version: "1.36.0", Deployment: "prod-autoscaler",
				ConfigHash: "0123456789abcdef", LastProbeTime: &goldenTime,
				Flags: []string{"--scan-interval=10s"}},
			Operation: &ScaleOperation{ID: "op-1", Kind: OperationRecount, Pool: "general", From: 3, DesiredWorkers: 5,
				GivenUp: 1, NodeSize: "t3.large",
				RequestedAt: &goldenTime, StartedAt: goldenTime, EndedAt: &goldenTime, State: OperationFailed,
				Code: "QuotaExceeded", Unsettled: true,
				Message: "no more machines of this size"},
			Pools: []WorkerPoolStatus{{Name: "general", NodeGroupID: "team.prod.general", Target: 5, Change: 2,
				Registered: 4, Ready: 3, Creating: 1,
				Deleting: 1, TemplateSource: TemplateOverride,
				Backoff: &PoolBackoff{Operation: OperationScaleUp, Until: goldenTime, Code: "QuotaExceeded",
					Message: "no more machines", Failures: 2,
					Missing: 1, From: 3},
				LastScale: &PoolScale{Time: goldenTime, From: 3, To: 5, Reason: "pods are pending"}}},
			Workers: 4, ImportedWorkers: ptr.To[int32](0), WorkerSizes: []WorkerSize{{Index: 1, NodeSize: "t3.large"}},
			UnmanagedWorkers: 1,
		},
	}
}

func goldenBounds() *Bounds { return &Bounds{Min: ptr.To[int32](0), Max: ptr.To[int32](64)} }
