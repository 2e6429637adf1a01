package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// Beginnings of the specs of KsctlAutoScalers: scaler has all required fields, poolless all but
// pools, and scaled all but pools and agent.
const (
	pools = "pools: [{name: small, nodeSize: t3.medium, minSize: 1, maxSize: 5}, " +
		"{name: large, nodeSize: t3.xlarge, minSize: 0, maxSize: 3}]\n"
	agentTLS = "agent: {address: 'agent.example.com:8443', secretRef: {name: agent}}\n"
	scaled   = "clusterRef: {name: prod}\n"
	scaler   = scaled + agentTLS + pools
	poolless = scaled + agentTLS
)

// pool returns a spec with one pool that has the required fields and the given ones.
func pool(fields string) string {
	return poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 2" + fields + "}]\n"
}

// manyPools returns a spec with n pools that have different node sizes.
func manyPools(n int) string {
	var out []string
	for i := range n {
		id := strings.Repeat("x", i+1)
		out = append(out, "{name: "+id+", nodeSize: "+id+", minSize: 0, maxSize: 1}")
	}
	return poolless + "pools: [" + strings.Join(out, ", ") + "]"
}

var rejectedAutoscalers = []manifest{
	{"KsctlAutoScaler", "an empty spec", "{}", "spec.clusterRef: Required value"},
	{"KsctlAutoScaler", "no agent", scaled + pools, "spec.agent: Required value"},
	{"KsctlAutoScaler", "no pools", poolless, "spec.pools: Required value"},
	{"KsctlAutoScaler", "empty pools", poolless + "pools: []", "spec.pools"},
	{"KsctlAutoScaler", "too many pools", manyPools(17), "must have at most 16 items"},
	{"KsctlAutoScaler", "a cluster without a name", agentTLS + pools + "clusterRef: {name: ''}",
		"spec.clusterRef.name"},
	{"KsctlAutoScaler", "a cluster with a long name", agentTLS + pools + "clusterRef: {name: " +
		strings.Repeat("x", 64) + "}", "spec.clusterRef.name"},
	{"KsctlAutoScaler", "an unknown mode", scaler + "mode: Manual", `supported values: "Auto", "ScaleUpOnly", "Off"`},
	{"KsctlAutoScaler", "a zero interval", scaler + "interval: 0s", "interval must be between 1s and 720h"},
	{"KsctlAutoScaler", "a misspelled field", scaler + "scaledown: {}", `unknown field "spec.scaledown"`},

	// Agent.
	{"KsctlAutoScaler", "an agent with neither TLS nor plaintext", scaled + pools + "agent: {address: 'a:1'}",
		"set either secretRef (TLS) or plaintext: true (required by ksctl's own agent)"},
	{"KsctlAutoScaler", "an agent with both TLS and plaintext", scaled + pools +
		"agent: {address: 'a:1', secretRef: {name: x}, plaintext: true}",
		"set either secretRef (TLS) or plaintext: true (required by ksctl's own agent)"},
	{"KsctlAutoScaler", "an agent with plaintext: false and no TLS", scaled + pools +
		"agent: {address: 'a:1', plaintext: false}",
		"set either secretRef (TLS) or plaintext: true (required by ksctl's own agent)"},
	{"KsctlAutoScaler", "an agent without a port", scaled + pools + "agent: {address: agent, plaintext: true}",
		"spec.agent.address"},
	{"KsctlAutoScaler", "an agent address that is a URL",
		scaled + pools + "agent: {address: 'https://agent:8443', plaintext: true}", "spec.agent.address"},

	// Pools.
	{"KsctlAutoScaler", "a minSize above the maxSize",
		poolless + "pools: [{name: a, nodeSize: x, minSize: 3, maxSize: 2}]", "minSize must not be more than maxSize"},
	{"KsctlAutoScaler", "two pools with the same nodeSize", poolless + "pools: [{name: a, nodeSize: x, minSize: 0, " +
		"maxSize: 1}, {name: b, nodeSize: x, minSize: 0, maxSize: 1}]",
		"nodeSize must be unique: it distinguishes the workers of different pools"},
	{"KsctlAutoScaler", "two pools with the same name",
		poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 1}, " +
			"{name: a, nodeSize: z, minSize: 0, maxSize: 1}]", "spec.pools[1]: Duplicate value"},
	{"KsctlAutoScaler", "a pool without a size", poolless + "pools: [{name: a, minSize: 0, maxSize: 1}]",
		"spec.pools[0].nodeSize: Required value"},
	{"KsctlAutoScaler", "a pool without bounds", poolless + "pools: [{name: a, nodeSize: x}]",
		"spec.pools[0].maxSize: Required value"},
	{"KsctlAutoScaler", "a maxSize of 0", poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 0}]",
		"spec.pools[0].maxSize"},
	{"KsctlAutoScaler", "a negative minSize", poolless + "pools: [{name: a, nodeSize: x, minSize: -1, maxSize: 1}]",
		"spec.pools[0].minSize"},
	{"KsctlAutoScaler", "a pool in capitals", poolless + "pools: [{name: A, nodeSize: x, minSize: 0, maxSize: 1}]",
		"spec.pools[0].name"},
	{"KsctlAutoScaler", "a pool with a long name", poolless + "pools: [{name: " + strings.Repeat("x", 41) +
		", nodeSize: x, minSize: 0, maxSize: 1}]", "spec.pools[0].name"},
	{"KsctlAutoScaler", "a pool priority that is too high", pool(", priority: 1001"), "spec.pools[0].priority"},
	{"KsctlAutoScaler", "a capacity without memory", pool(", capacity: {cpu: 2}"),
		"spec.pools[0].capacity.memory: Required value"},
	{"KsctlAutoScaler", "a capacity of 0 pods", pool(", capacity: {cpu: 2, memory: 4Gi, pods: 0}"),
		"spec.pools[0].capacity.pods"},

	// Limits.
	{"KsctlAutoScaler", "minSizes above maxNodesTotal", poolless + "limits: {maxNodesTotal: 5}\npools: [{name: a, " +
		"nodeSize: x, minSize: 3, maxSize: 4}, {name: b, nodeSize: z, minSize: 3, maxSize: 4}]",
		"the sum of the pools' minSize must not be more than limits.maxNodesTotal"},
	{"KsctlAutoScaler", "a negative maxNodesTotal", scaler + "limits: {maxNodesTotal: -1}",
		"spec.limits.maxNodesTotal"},
	{"KsctlAutoScaler", "minimum cores above the maximum", scaler + "limits: {cores: {min: 5, max: 4}}",
		"min must not be more than max"},
	{"KsctlAutoScaler", "minimum memory above the maximum", scaler + "limits: {memoryGiB: {min: 5, max: 4}}",
		"min must not be more than max"},
	{"KsctlAutoScaler", "maximum cores of 0", scaler + "limits: {cores: {max: 0}}", "spec.limits.cores.max"},

	// Scale-down and scale-up.
	{"KsctlAutoScaler", "an unknown scale-down order", scaler + "scaleDown: {order: Head}",
		`supported values: "Tail", "Any"`},
	{"KsctlAutoScaler", "a scale-down order that no agent supports", scaler + "scaleDown: {order: Any}",
		"Any is not supported"},
	{"KsctlAutoScaler", "a utilization threshold above 100 percent",
		scaler + "scaleDown: {utilizationThresholdPercent: 101}", "spec.scaleDown.utilizationThresholdPercent"},
	{"KsctlAutoScaler", "an invalid duration", scaler + "scaleDown: {unneededTime: soon}",
		"spec.scaleDown.unneededTime"},
	{"KsctlAutoScaler", "a negative duration", scaler + "scaleDown: {delayAfterAdd: -1m}",
		"spec.scaleDown.delayAfterAdd"},
	{"KsctlAutoScaler", "a duration that is a number", scaler + "scaleUp: {newPodDelay: 10}", "must be of type string"},
	{"KsctlAutoScaler", "a scan interval that overflows", scaler + "scaleUp: {scanInterval: 99999999999999999999h}",
		"spec.scaleUp.scanInterval in body should match"},
	{"KsctlAutoScaler", "a provision time that overflows", scaler + "scaleUp: {maxNodeProvisionTime: 999999999999m}",
		"spec.scaleUp.maxNodeProvisionTime in body should match"},
	{"KsctlAutoScaler", "a delay that overflows", scaler + "scaleDown: {delayAfterAdd: 999999h}",
		"spec.scaleDown.delayAfterAdd in body should match"},
	{"KsctlAutoScaler", "a scan interval that is too short", scaler + "scaleUp: {scanInterval: 4900ms}",
		"scanInterval must be at least 5s"},
	{"KsctlAutoScaler", "a provision time of 0", scaler + "scaleUp: {maxNodeProvisionTime: 0s}",
		"maxNodeProvisionTime must be at least 1s"},
	{"KsctlAutoScaler", "a provision time below 1s", scaler + "scaleUp: {maxNodeProvisionTime: 999ms}",
		"maxNodeProvisionTime must be at least 1s"},
	{"KsctlAutoScaler", "the Price expander", scaler + "scaleUp: {expanders: [Price]}", "spec.scaleUp.expanders[0]"},
	{"KsctlAutoScaler", "empty expanders", scaler + "scaleUp: {expanders: []}", "spec.scaleUp.expanders"},
	{"KsctlAutoScaler", "four expanders", scaler + "scaleUp: {expanders: [LeastWaste, Priority, LeastNodes, MostPods]}",
		"must have at most 3 items"},
	{"KsctlAutoScaler", "a duplicate expander", scaler + "scaleUp: {expanders: [LeastWaste, LeastWaste]}",
		"expanders must be unique"},
	{"KsctlAutoScaler", "another expander after Random", scaler + "scaleUp: {expanders: [Random, LeastWaste]}",
		"Random selects one pool, so it must be the last expander"},

	// Cluster Autoscaler.
	{"KsctlAutoScaler", "a version that is too old", scaler + "autoscaler: {version: 1.33.2}",
		"spec.autoscaler.version"},
	{"KsctlAutoScaler", "a version with a v", scaler + "autoscaler: {version: v1.36.1}", "spec.autoscaler.version"},
	{"KsctlAutoScaler", "a version without a patch", scaler + "autoscaler: {version: '1.36'}",
		"spec.autoscaler.version"},
	{"KsctlAutoScaler", "an invalid image", scaler + "autoscaler: {image: 'x y'}", "spec.autoscaler.image"},
	{"KsctlAutoScaler", "a log verbosity that is too high", scaler + "autoscaler: {logVerbosity: 11}",
		"spec.autoscaler.logVerbosity"},
}

var acceptedAutoscalers = []manifest{
	{kind: "KsctlAutoScaler", name: "only required fields", spec: scaler},
	{kind: "KsctlAutoScaler", name: "an agent without TLS at an IPv6 address", spec: scaled + pools +
		"agent: {address: '[fd00::7]:8080', plaintext: true}"},
	{kind: "KsctlAutoScaler", name: "the maximum number of pools", spec: manyPools(16)},
	{kind: "KsctlAutoScaler", name: "minSizes equal to maxNodesTotal", spec: poolless +
		"limits: {maxNodesTotal: 6}\n" +
		"pools: [{name: a, nodeSize: x, minSize: 3, maxSize: 4}, {name: b, nodeSize: z, minSize: 3, maxSize: 3}]"},
	{kind: "KsctlAutoScaler", name: "the shortest provision time",
		spec: scaler + "scaleUp: {maxNodeProvisionTime: 1s}"},
	{kind: "KsctlAutoScaler", name: "no limit", spec: scaler + "limits: {maxNodesTotal: 0}"},
	{kind: "KsctlAutoScaler", name: "empty objects",
		spec: scaler + "autoscaler: {}\nlimits: {cores: {}}\nscaleDown: {}\nscaleUp: {}\npods: {}"},
	{kind: "KsctlAutoScaler", name: "all fields", spec: scaled + "interval: 10m\nmode: ScaleUpOnly\n" +
		"agent: {address: 'agent.example.com:8443', secretRef: {name: agent}, serverName: agent}\n" +
		"autoscaler: {install: false, version: 1.36.1, image: 'registry.example.com:5000/x/cluster-autoscaler', " +
		"logVerbosity: 4, resources: {requests: {cpu: 100m}}}\n" +
		"limits: {maxNodesTotal: 9, cores: {min: 1, max: 64}, memoryGiB: {max: 256}}\n" +
		"scaleDown: {order: Tail, utilizationThresholdPercent: 0, unneededTime: 1h30m, unreadyTime: 20m, " +
		"delayAfterAdd: 0s, delayAfterDelete: 1.5m, delayAfterFailure: 3m, maxGracefulTermination: 10m}\n" +
		"scaleUp: {expanders: [Priority, LeastWaste, Random], balanceSimilarPools: true, newPodDelay: 10s, " +
		"maxNodeProvisionTime: 20m, maxNodeStartupTime: 15m, enforceMinSize: false, scanInterval: 5s}\n" +
		"pods: {skipNodesWithLocalStorage: false, skipNodesWithSystemPods: false, skipNodesWithCustomControllerPods: " +
		"false, ignoreDaemonSetsUtilization: true, priorityCutoff: -5}\n" +
		"pools: [{name: a, nodeSize: t3.medium, minSize: 1, maxSize: 5, priority: 1000, labels: {a: b}, taints: " +
		"[{key: a, value: b, effect: NoSchedule}], capacity: {cpu: 2, memory: 4Gi, ephemeralStorage: 20Gi, pods: " +
		"110}}]\n" +
		"serviceAccountName: deployer"},
}

// testClusterRefIsImmutable checks that spec.clusterRef of a KsctlAutoScaler is immutable.
func testClusterRefIsImmutable(t *testing.T, c client.Client) {
	u := manifest{kind: "KsctlAutoScaler", spec: scaler}.object(t)
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Delete(t.Context(), u); err != nil {
			t.Error(err)
		}
	}()
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok {
		t.Fatalf("got %v", u.Object)
	}
	spec["mode"] = "Off"
	if err := c.Update(t.Context(), u); err != nil {
		t.Errorf("changing spec.mode: %v", err)
	}
	spec, _ = u.Object["spec"].(map[string]any)
	spec["clusterRef"] = map[string]any{"name": "other"}
	if err := c.Update(t.Context(), u); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "clusterRef is immutable: create another KsctlAutoScaler") {
		t.Errorf("changing spec.clusterRef: got %v, want an error", err)
	}
}

// testAutoscaler checks that the API server accepts the objects that install Cluster Autoscaler,
// without warnings even in a namespace with the restricted Pod Security standard.
func testAutoscaler(t *testing.T, c *cluster.Cluster) {
	kubectl(t, c, "label", "namespace", "team", "pod-security.kubernetes.io/warn=restricted")
	files, err := filepath.Glob("../internal/scaling/settings/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		kubectl(t, c, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors",
			"-f", f)
	}
}
