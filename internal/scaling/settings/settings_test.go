package settings_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// minimal returns a KsctlAutoScaler with only the required fields.
func minimal() *clusterv1.KsctlAutoScaler {
	return &clusterv1.KsctlAutoScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod-eu", UID: "8a3c"},
		Spec: clusterv1.KsctlAutoScalerSpec{
			ClusterRef: clusterv1.AutoScaledCluster{Name: "prod-eu"},
			Agent:      appsv1.AgentEndpoint{Address: "agent.example.com:8080", Plaintext: true},
			Pools: []clusterv1.WorkerPool{{Name: "small", NodeSize: "t3.medium", MaxSize: 5},
				{Name: "large", NodeSize: "t3.2xlarge", MaxSize: 3, Priority: 10}},
		},
	}
}

// customized returns a KsctlAutoScaler whose fields all differ from their defaults.
func customized() *clusterv1.KsctlAutoScaler {
	as := minimal()
	as.Spec.Schedule = appsv1.Schedule{Interval: duration(time.Hour), RetryInterval: duration(time.Minute),
		Timeout: duration(5 * time.Minute), Suspend: true}
	as.Spec.ServiceAccountName = "deployer"
	as.Spec.Autoscaler = &clusterv1.AutoscalerDeployment{Version: "1.36.1",
		Image: "registry.example.com:5000/mirror/cluster-autoscaler", LogVerbosity: ptr.To[int32](4),
		Resources: &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"),
				corev1.ResourceMemory: resource.MustParse("2Gi")}}}
	as.Spec.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 20,
		Cores:     &clusterv1.Bounds{Min: ptr.To[int32](4), Max: ptr.To[int32](64)},
		MemoryGiB: &clusterv1.Bounds{Max: ptr.To[int32](256)}}
	as.Spec.ScaleDown = &clusterv1.ScaleDown{Order: clusterv1.TailOrder, UtilizationThresholdPercent: ptr.To[int32](65),
		UnneededTime: duration(5 * time.Minute), UnreadyTime: duration(time.Hour),
		DelayAfterAdd: duration(90 * time.Second), DelayAfterDelete: duration(time.Minute),
		DelayAfterFailure: duration(10 * time.Second), MaxGracefulTermination: duration(1500 * time.Millisecond)}
	as.Spec.ScaleUp = &clusterv1.ScaleUp{Expanders: []clusterv1.Expander{"Priority", "LeastNodes", "Random"},
		BalanceSimilarPools: true, NewPodDelay: duration(30 * time.Second),
		MaxNodeProvisionTime: duration(30 * time.Minute), MaxNodeStartupTime: duration(5 * time.Minute),
		EnforceMinSize: ptr.To(false), ScanInterval: duration(20 * time.Second)}
	as.Spec.Pods = &clusterv1.PodRules{SkipNodesWithLocalStorage: ptr.To(false), SkipNodesWithSystemPods: ptr.To(false),
		SkipNodesWithCustomControllerPods: ptr.To(false),
		IgnoreDaemonSetsUtilization:       true, PriorityCutoff: ptr.To[int32](-100)}
	return as
}

func inputs() settings.Inputs {
	return settings.Inputs{Version: "1.36.1", Address: "ksctl-gitops.ksctl-gitops-system.svc:9443",
		KubeConfigSecret: "prod-eu-kubeconfig", KubeConfigKey: "value", KubeConfigRevision: "4711",
		ClientSecret: "prod-eu-autoscaler-tls", Certificates: [2][]byte{[]byte("authority"), []byte("certificate")}}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct{ spec, cluster, want, says string }{
		{"", "v1.36.3+k3s1", "1.36.1", ""},
		{"", "v1.36.0", "1.36.1", ""},
		{"", "1.35.2", "1.35.0", ""},
		{"", "v1.34.9", "1.34.5", ""},
		{"", "v1.30.1-eks-123", "1.34.5", ""},
		{"", "v1.41.0", "1.36.1", ""},
		{"1.35.4", "v1.36.3", "1.35.4", ""},
		{"1.34.2", "", "1.34.2", ""},
		{"1.34.1", "v1.34.1", "", "set spec.autoscaler.version to 1.34.2 or later"},
		{"latest", "v1.34.1", "", "is not a version: set a release of Cluster Autoscaler, such as 1.36.1"},
		{"", "", "", "version of Kubernetes is unknown"},
		{"", "unknown", "", `Kubernetes version "unknown" of the cluster: set spec.autoscaler.version`},
		{"", "v2.0.0", "", "set spec.autoscaler.version"},
	} {
		got, err := settings.Version(
			&clusterv1.KsctlAutoScalerSpec{Autoscaler: &clusterv1.AutoscalerDeployment{Version: c.spec}}, c.cluster)
		if got != c.want || c.says == "" && err != nil || c.says != "" &&
			(err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q for %q: got %q, %v", c.spec, c.cluster, got, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	startup := customized().Spec
	for _, c := range []struct {
		spec             clusterv1.KsctlAutoScalerSpec
		version, cluster string
		want             []string
	}{
		{minimal().Spec, "1.36.1", "v1.36.3+k3s1", nil},
		{minimal().Spec, "1.34.5", "v1.30.0", []string{"Cluster Autoscaler 1.34.5 does not match Kubernetes 1.30"}},
		{startup, "1.36.1", "v1.36.3", nil},
		{startup, "1.34.5", "v1.34.3",
			[]string{"spec.scaleUp.maxNodeStartupTime is ignored: Cluster Autoscaler 1.34.5 always uses 15m"}},
		{minimal().Spec, "1.36.1", "", nil},
	} {
		if got := settings.Warnings(&c.spec, c.version, c.cluster); !slices.Equal(got, c.want) {
			t.Errorf("%s for %s: got %q", c.version, c.cluster, got)
		}
	}
}

var defaultFlags = []string{
	"--cloud-config=/etc/cluster-autoscaler/config/cloud-config.yaml", "--cloud-provider=externalgrpc",
	"--enforce-node-group-min-size=true", "--expander=least-waste",
	"--kubeconfig=/etc/cluster-autoscaler/kubeconfig/kubeconfig",
	"--leader-elect-resource-name=ksctl-cluster-autoscaler", "--leader-elect=true",
	"--max-node-provision-time=20m0s", "--max-scale-down-parallelism=1", "--namespace=kube-system", "--v=1",
}

func TestFlagsOmitDefaults(t *testing.T) {
	as := minimal()
	if got := settings.Flags(&as.Spec, inputs()); !slices.Equal(got, defaultFlags) {
		t.Errorf("got %q", got)
	}
	// Fields that are set to Cluster Autoscaler's defaults add no flags.
	as.Spec.Mode = clusterv1.ScalingAuto
	as.Spec.Autoscaler = &clusterv1.AutoscalerDeployment{LogVerbosity: ptr.To[int32](1)}
	as.Spec.Limits = &clusterv1.ScalingLimits{Cores: &clusterv1.Bounds{}}
	as.Spec.ScaleDown = &clusterv1.ScaleDown{Order: clusterv1.TailOrder, UtilizationThresholdPercent: ptr.To[int32](50),
		UnneededTime: duration(10 * time.Minute), UnreadyTime: duration(20 * time.Minute),
		DelayAfterAdd: duration(10 * time.Minute), DelayAfterDelete: duration(0),
		DelayAfterFailure: duration(3 * time.Minute), MaxGracefulTermination: duration(10 * time.Minute)}
	as.Spec.ScaleUp = &clusterv1.ScaleUp{Expanders: []clusterv1.Expander{"LeastWaste"}, NewPodDelay: duration(0),
		MaxNodeProvisionTime: duration(20 * time.Minute),
		MaxNodeStartupTime:   duration(15 * time.Minute), EnforceMinSize: ptr.To(true),
		ScanInterval: duration(10 * time.Second)}
	as.Spec.Pods = &clusterv1.PodRules{SkipNodesWithLocalStorage: ptr.To(true), SkipNodesWithSystemPods: ptr.To(true),
		SkipNodesWithCustomControllerPods: ptr.To(true), PriorityCutoff: ptr.To[int32](-10)}
	if got := settings.Flags(&as.Spec, inputs()); !slices.Equal(got, defaultFlags) {
		t.Errorf("got %q", got)
	}
}

func TestFlagsPerField(t *testing.T) {
	for want, edit := range map[string]func(*clusterv1.KsctlAutoScalerSpec){
		"--scale-down-enabled=false": func(s *clusterv1.KsctlAutoScalerSpec) { s.Mode = clusterv1.ScalingUpOnly },
		"--max-nodes-total=7": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 7}
		},
		"--cores-total=3:320000": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.Limits = &clusterv1.ScalingLimits{Cores: &clusterv1.Bounds{Min: ptr.To[int32](3)}}
		},
		"--memory-total=0:9": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.Limits = &clusterv1.ScalingLimits{MemoryGiB: &clusterv1.Bounds{Max: ptr.To[int32](9)}}
		},
		"--memory-total=7000000:7000000": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.Limits = &clusterv1.ScalingLimits{MemoryGiB: &clusterv1.Bounds{Min: ptr.To[int32](7000000)}}
		},
		"--scale-down-utilization-threshold=0": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.ScaleDown = &clusterv1.ScaleDown{UtilizationThresholdPercent: ptr.To[int32](0)}
		},
		"--expander=most-pods,random": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.ScaleUp = &clusterv1.ScaleUp{Expanders: []clusterv1.Expander{"MostPods", "Random"}}
		},
		"--max-graceful-termination-sec=0": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.ScaleDown = &clusterv1.ScaleDown{MaxGracefulTermination: duration(0)}
		},
		"--v=0": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.Autoscaler = &clusterv1.AutoscalerDeployment{LogVerbosity: ptr.To[int32](0)}
		},
		"--expendable-pods-priority-cutoff=0": func(s *clusterv1.KsctlAutoScalerSpec) {
			s.Pods = &clusterv1.PodRules{PriorityCutoff: ptr.To[int32](0)}
		},
	} {
		spec := minimal().Spec
		edit(&spec)
		if got := settings.Flags(&spec, inputs()); !slices.Contains(got, want) || !slices.IsSorted(got) {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	off := minimal().Spec
	off.Mode = clusterv1.ScalingOff
	if got := settings.Flags(&off, inputs()); !slices.Contains(got, "--scale-down-enabled=false") {
		t.Errorf("got %q", got)
	}
	spec, old := customized().Spec, inputs()
	old.Version = "1.34.5"
	if got := strings.Join(settings.Flags(&spec, old), " "); strings.Contains(got, "startup-time") {
		t.Errorf("1.34.5 does not support a flag of %s", got)
	}
}

func TestPriorities(t *testing.T) {
	as := minimal()
	as.Namespace, as.Name = "team", "prod.eu"
	as.Spec.Pools = append(as.Spec.Pools, clusterv1.WorkerPool{Name: "another", Priority: 10})
	as.Spec.ScaleUp = &clusterv1.ScaleUp{Expanders: []clusterv1.Expander{"Priority"}}
	installs, err := settings.DesiredInstalls(as, inputs())
	if err != nil || len(installs) != 2 {
		t.Fatal(len(installs), err)
	}
	var override struct{ Priorities string }
	if err := json.Unmarshal(installs[1].Spec.Components[0].Override.Raw, &override); err != nil {
		t.Fatal(err)
	}
	text := override.Priorities
	if want := "10:\n- '^team/prod\\.eu/another$'\n" +
		"- '^team/prod\\.eu/large$'\n0:\n- '^team/prod\\.eu/small$'\n"; text != want {
		t.Errorf("got %s", text)
	}
	var read map[int][]string
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	for _, p := range as.Spec.Pools {
		id := "team/prod.eu/" + p.Name
		if !slices.ContainsFunc(read[int(p.Priority)], func(expr string) bool {
			return regexp.MustCompile(expr).MatchString(id)
		}) {
			t.Errorf("%s matches no entry of %v", id, read)
		}
	}
	if regexp.MustCompile(read[0][0]).MatchString("team/prodXeu/small") {
		t.Error("an entry matches another group")
	}
}

func TestCloudConfig(t *testing.T) {
	for _, address := range []string{"groups.svc:9443", "[fd00::7]:9443"} {
		var read map[string]string
		if err := yaml.UnmarshalStrict([]byte(settings.CloudConfig(address)), &read); err != nil {
			t.Fatal(err)
		}
		if read["address"] != address || read["cert"] != settings.TLSDir+"/tls.crt" || read["key"] != settings.TLSDir+
			"/tls.key" || read["cacert"] != settings.TLSDir+"/ca.crt" || read["grpc_timeout"] != "10s" ||
			len(read) != 5 {
			t.Errorf("got %v", read)
		}
	}
}

func TestConfigHash(t *testing.T) {
	spec := minimal().Spec
	base := settings.ConfigHash(&spec, inputs())
	if again := settings.ConfigHash(&spec, inputs()); again != base || len(base) != 32 {
		t.Errorf("got %s, and %s", base, again)
	}
	seen := map[string]string{base: "the base"}
	for name, edit := range map[string]func(*clusterv1.KsctlAutoScalerSpec, *settings.Inputs){
		"flag": func(s *clusterv1.KsctlAutoScalerSpec, _ *settings.Inputs) { s.Mode = clusterv1.ScalingUpOnly },
		"image": func(s *clusterv1.KsctlAutoScalerSpec, _ *settings.Inputs) {
			s.Autoscaler = &clusterv1.AutoscalerDeployment{Image: "x"}
		},
		"version": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) { in.Version = "1.36.2" },
		"address": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) { in.Address = "x:1" },
		"certificate": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) {
			in.Certificates[1] = []byte("another")
		},
		"bundle": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) {
			in.Certificates[0] = []byte("another")
		},
		"bytes moved from one certificate to the other": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) {
			in.Certificates = [2][]byte{[]byte("authorityc"), []byte("ertificate")}
		},
		"kubeconfig revision": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) {
			in.KubeConfigRevision = "4712"
		},
		"kubeconfig Secret": func(_ *clusterv1.KsctlAutoScalerSpec, in *settings.Inputs) {
			in.KubeConfigSecret = "x"
		},
	} {
		spec, in := minimal().Spec, inputs()
		edit(&spec, &in)
		got := settings.ConfigHash(&spec, in)
		if other, ok := seen[got]; ok {
			t.Errorf("%s: same hash as %s", name, other)
		}
		seen[got] = name
	}
	spec = minimal().Spec
	spec.Pools = spec.Pools[:1]
	if settings.ConfigHash(&spec, inputs()) != base {
		t.Error("a change of pools changes the hash: Cluster Autoscaler would restart although it rereads pools")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "prod-eu", "prod.eu", strings.Repeat("x", 63), strings.Repeat("x", 64),
		strings.Repeat("x", 252) + "y", strings.Repeat("a-", 30) + ".b"} {
		for _, got := range []string{settings.DeploymentName(name), settings.PrioritiesName(name),
			settings.ClientSecretName(name)} {
			if len(validation.IsDNS1123Label(got)) > 0 || len(validation.IsValidLabelValue(got)) > 0 {
				t.Errorf("%q is not a valid name", got)
			}
			if other, ok := seen[got]; ok {
				t.Errorf("%s has the name of %s: %s", name, other, got)
			}
			seen[got] = name
		}
	}
	if got := settings.DeploymentName("prod-eu"); got != "prod-eu-autoscaler" {
		t.Errorf("got %s", got)
	}
}
