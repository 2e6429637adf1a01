package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// What the specs of KsctlAutoScalers begin with: all that is required, and all of that but pools
// and agent.
const (
	pools    = "pools: [{name: small, nodeSize: t3.medium, minSize: 1, maxSize: 5}, {name: large, nodeSize: t3.xlarge, minSize: 0, maxSize: 3}]\n"
	agentTLS = "agent: {address: 'agent.example.com:8443', secretRef: {name: agent}}\n"
	scaled   = "clusterRef: {name: prod}\n"
	scaler   = scaled + agentTLS + pools
	poolless = scaled + agentTLS
)

// pool is a spec with a pool of these fields alone.
func pool(fields string) string {
	return poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 2" + fields + "}]\n"
}

// manyPools are so many pools of different sizes.
func manyPools(n int) string {
	var out []string
	for i := range n {
		id := strings.Repeat("x", i+1)
		out = append(out, "{name: "+id+", nodeSize: "+id+", minSize: 0, maxSize: 1}")
	}
	return poolless + "pools: [" + strings.Join(out, ", ") + "]"
}

var refusedAutoscalers = []manifest{
	{"KsctlAutoScaler", "an empty spec", "{}", "spec.clusterRef: Required value"},
	{"KsctlAutoScaler", "no agent", scaled + pools, "spec.agent: Required value"},
	{"KsctlAutoScaler", "no pools", poolless, "spec.pools: Required value"},
	{"KsctlAutoScaler", "no pool", poolless + "pools: []", "spec.pools"},
	{"KsctlAutoScaler", "too many pools", manyPools(17), "must have at most 16 items"},
	{"KsctlAutoScaler", "a cluster without a name", agentTLS + pools + "clusterRef: {name: ''}", "spec.clusterRef.name"},
	{"KsctlAutoScaler", "a cluster with a long name", agentTLS + pools + "clusterRef: {name: " + strings.Repeat("x", 64) + "}", "spec.clusterRef.name"},
	{"KsctlAutoScaler", "another mode", scaler + "mode: Manual", `supported values: "Auto", "ScaleUpOnly", "Off"`},
	{"KsctlAutoScaler", "a zero interval", scaler + "interval: 0s", "interval must be between 1s and 720h"},
	{"KsctlAutoScaler", "a misspelt field", scaler + "scaledown: {}", `unknown field "spec.scaledown"`},

	// Of the agent.
	{"KsctlAutoScaler", "an agent without TLS and without saying so", scaled + pools + "agent: {address: 'a:1'}", "set secretRef, for TLS, or plaintext: true"},
	{"KsctlAutoScaler", "an agent with TLS and without", scaled + pools + "agent: {address: 'a:1', secretRef: {name: x}, plaintext: true}", "set secretRef, for TLS, or plaintext: true"},
	{"KsctlAutoScaler", "an agent that is not plaintext, nor anything else", scaled + pools + "agent: {address: 'a:1', plaintext: false}", "set secretRef, for TLS, or plaintext: true"},
	{"KsctlAutoScaler", "an agent without a port", scaled + pools + "agent: {address: agent, plaintext: true}", "spec.agent.address"},
	{"KsctlAutoScaler", "an agent at a URL", scaled + pools + "agent: {address: 'https://agent:8443', plaintext: true}", "spec.agent.address"},

	// Of pools.
	{"KsctlAutoScaler", "more at least than at most", poolless + "pools: [{name: a, nodeSize: x, minSize: 3, maxSize: 2}]", "minSize must not be more than maxSize"},
	{"KsctlAutoScaler", "two pools of a size", poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 1}, {name: b, nodeSize: x, minSize: 0, maxSize: 1}]", "each nodeSize may be that of one pool"},
	{"KsctlAutoScaler", "two pools of a name", poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 1}, {name: a, nodeSize: z, minSize: 0, maxSize: 1}]", "spec.pools[1]: Duplicate value"},
	{"KsctlAutoScaler", "a pool without a size", poolless + "pools: [{name: a, minSize: 0, maxSize: 1}]", "spec.pools[0].nodeSize: Required value"},
	{"KsctlAutoScaler", "a pool without bounds", poolless + "pools: [{name: a, nodeSize: x}]", "spec.pools[0].maxSize: Required value"},
	{"KsctlAutoScaler", "a pool for no machine", poolless + "pools: [{name: a, nodeSize: x, minSize: 0, maxSize: 0}]", "spec.pools[0].maxSize"},
	{"KsctlAutoScaler", "a pool of less than none", poolless + "pools: [{name: a, nodeSize: x, minSize: -1, maxSize: 1}]", "spec.pools[0].minSize"},
	{"KsctlAutoScaler", "a pool in capitals", poolless + "pools: [{name: A, nodeSize: x, minSize: 0, maxSize: 1}]", "spec.pools[0].name"},
	{"KsctlAutoScaler", "a pool with a long name", poolless + "pools: [{name: " + strings.Repeat("x", 41) + ", nodeSize: x, minSize: 0, maxSize: 1}]", "spec.pools[0].name"},
	{"KsctlAutoScaler", "a pool with too high a priority", pool(", priority: 1001"), "spec.pools[0].priority"},
	{"KsctlAutoScaler", "a machine without memory", pool(", capacity: {cpu: 2}"), "spec.pools[0].capacity.memory: Required value"},
	{"KsctlAutoScaler", "a machine for no Pod", pool(", capacity: {cpu: 2, memory: 4Gi, pods: 0}"), "spec.pools[0].capacity.pods"},

	// Limits.
	{"KsctlAutoScaler", "pools that need more than may be", poolless + "limits: {maxNodesTotal: 5}\npools: [{name: a, nodeSize: x, minSize: 3, maxSize: 4}, {name: b, nodeSize: z, minSize: 3, maxSize: 4}]", "the pools' minSize together are more than limits.maxNodesTotal"},
	{"KsctlAutoScaler", "fewer than no nodes", scaler + "limits: {maxNodesTotal: -1}", "spec.limits.maxNodesTotal"},
	{"KsctlAutoScaler", "more cores at least than at most", scaler + "limits: {cores: {min: 5, max: 4}}", "min must not be more than max"},
	{"KsctlAutoScaler", "more memory at least than at most", scaler + "limits: {memoryGiB: {min: 5, max: 4}}", "min must not be more than max"},
	{"KsctlAutoScaler", "no core at all", scaler + "limits: {cores: {max: 0}}", "spec.limits.cores.max"},

	// When machines come and go.
	{"KsctlAutoScaler", "another order", scaler + "scaleDown: {order: Head}", `supported values: "Tail", "Any"`},
	{"KsctlAutoScaler", "more than all of a node", scaler + "scaleDown: {utilizationThresholdPercent: 101}", "spec.scaleDown.utilizationThresholdPercent"},
	{"KsctlAutoScaler", "a word as duration", scaler + "scaleDown: {unneededTime: soon}", "spec.scaleDown.unneededTime"},
	{"KsctlAutoScaler", "a negative duration", scaler + "scaleDown: {delayAfterAdd: -1m}", "spec.scaleDown.delayAfterAdd"},
	{"KsctlAutoScaler", "a duration that is a number", scaler + "scaleUp: {newPodDelay: 10}", "must be of type string"},
	{"KsctlAutoScaler", "a loop without end", scaler + "scaleUp: {scanInterval: 4900ms}", "scanInterval must be at least 5s"},
	{"KsctlAutoScaler", "no time to join", scaler + "scaleUp: {maxNodeProvisionTime: 0s}", "maxNodeProvisionTime must be at least 1s"},
	{"KsctlAutoScaler", "hardly any time to join", scaler + "scaleUp: {maxNodeProvisionTime: 999ms}", "maxNodeProvisionTime must be at least 1s"},
	{"KsctlAutoScaler", "an expander that goes by price", scaler + "scaleUp: {expanders: [Price]}", "spec.scaleUp.expanders[0]"},
	{"KsctlAutoScaler", "no expander", scaler + "scaleUp: {expanders: []}", "spec.scaleUp.expanders"},
	{"KsctlAutoScaler", "four expanders", scaler + "scaleUp: {expanders: [LeastWaste, Priority, LeastNodes, MostPods]}", "must have at most 3 items"},
	{"KsctlAutoScaler", "an expander twice", scaler + "scaleUp: {expanders: [LeastWaste, LeastWaste]}", "each expander may be named once"},
	{"KsctlAutoScaler", "Random and another", scaler + "scaleUp: {expanders: [Random, LeastWaste]}", "Random chooses one pool, so it can only be the last expander"},

	// Of Cluster Autoscaler.
	{"KsctlAutoScaler", "a version that is too old", scaler + "autoscaler: {version: 1.33.2}", "spec.autoscaler.version"},
	{"KsctlAutoScaler", "a version with a v", scaler + "autoscaler: {version: v1.36.1}", "spec.autoscaler.version"},
	{"KsctlAutoScaler", "a version without a patch", scaler + "autoscaler: {version: '1.36'}", "spec.autoscaler.version"},
	{"KsctlAutoScaler", "an image that is none", scaler + "autoscaler: {image: 'x y'}", "spec.autoscaler.image"},
	{"KsctlAutoScaler", "much to say", scaler + "autoscaler: {logVerbosity: 11}", "spec.autoscaler.logVerbosity"},
}

var acceptedAutoscalers = []manifest{
	{kind: "KsctlAutoScaler", name: "the least", spec: scaler},
	{kind: "KsctlAutoScaler", name: "an agent of ksctl", spec: scaled + pools + "agent: {address: '[fd00::7]:8080', plaintext: true}"},
	{kind: "KsctlAutoScaler", name: "as many pools as may be", spec: manyPools(16)},
	{kind: "KsctlAutoScaler", name: "exactly as many nodes as may be", spec: poolless + "limits: {maxNodesTotal: 6}\npools: [{name: a, nodeSize: x, minSize: 3, maxSize: 4}, {name: b, nodeSize: z, minSize: 3, maxSize: 3}]"},
	{kind: "KsctlAutoScaler", name: "the least time to join", spec: scaler + "scaleUp: {maxNodeProvisionTime: 1s}"},
	{kind: "KsctlAutoScaler", name: "no limit", spec: scaler + "limits: {maxNodesTotal: 0}"},
	{kind: "KsctlAutoScaler", name: "things that are empty", spec: scaler + "autoscaler: {}\nlimits: {cores: {}}\nscaleDown: {}\nscaleUp: {}\npods: {}"},
	{kind: "KsctlAutoScaler", name: "everything", spec: scaled + "interval: 10m\nmode: ScaleUpOnly\n" +
		"agent: {address: 'agent.example.com:8443', secretRef: {name: agent}, serverName: agent}\n" +
		"autoscaler: {install: false, version: 1.36.1, image: 'registry.example.com:5000/x/cluster-autoscaler', logVerbosity: 4, resources: {requests: {cpu: 100m}}}\n" +
		"limits: {maxNodesTotal: 9, cores: {min: 1, max: 64}, memoryGiB: {max: 256}}\n" +
		"scaleDown: {order: Tail, utilizationThresholdPercent: 0, unneededTime: 1h30m, unreadyTime: 20m, delayAfterAdd: 0s, delayAfterDelete: 1.5m, delayAfterFailure: 3m, maxGracefulTermination: 10m}\n" +
		"scaleUp: {expanders: [Priority, LeastWaste, Random], balanceSimilarPools: true, newPodDelay: 10s, maxNodeProvisionTime: 20m, maxNodeStartupTime: 15m, enforceMinSize: false, scanInterval: 5s}\n" +
		"pods: {skipNodesWithLocalStorage: false, skipNodesWithSystemPods: false, skipNodesWithCustomControllerPods: false, ignoreDaemonSetsUtilization: true, priorityCutoff: -5}\n" +
		"pools: [{name: a, nodeSize: t3.medium, minSize: 1, maxSize: 5, priority: 1000, labels: {a: b}, taints: [{key: a, value: b, effect: NoSchedule}], capacity: {cpu: 2, memory: 4Gi, ephemeralStorage: 20Gi, pods: 110}}]\n" +
		"serviceAccountName: deployer"},
}

// The cluster of a KsctlAutoScaler is never another one.
func testClusterStays(t *testing.T, c client.Client) {
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
		t.Errorf("another mode: %v", err)
	}
	spec, _ = u.Object["spec"].(map[string]any)
	spec["clusterRef"] = map[string]any{"name": "other"}
	if err := c.Update(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "clusterRef can't be changed: make another KsctlAutoScaler") {
		t.Errorf("another cluster: %v", err)
	}
}

// What brings Cluster Autoscaler, and what the catalogue makes of that, are as the API server wants them,
// also where Pods are restricted.
func testAutoscaler(t *testing.T, c *cluster.Cluster) {
	kubectl(t, c, "label", "namespace", "team", "pod-security.kubernetes.io/warn=restricted")
	files, err := filepath.Glob("../internal/scaling/settings/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		kubectl(t, c, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", f)
	}
}
