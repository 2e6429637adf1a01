package autoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/golden"
)

// maskTexts returns a status with a placeholder for each message, because messages may be reworded.
func maskTexts(status *clusterv1.KsctlAutoScalerStatus) *clusterv1.KsctlAutoScalerStatus {
	out := status.DeepCopy()
	const placeholder = "a text for people"
	if op := out.Operation; op != nil && op.Message != "" {
		op.Message = placeholder
	}
	for i := range out.Pools {
		if b := out.Pools[i].Backoff; b != nil && b.Message != "" {
			b.Message = placeholder
		}
		if s := out.Pools[i].LastScale; s != nil && s.Reason != "" {
			s.Reason = placeholder
		}
	}
	return out
}

// A controller continues from the status that an earlier release wrote.
func TestGoldenStatus(t *testing.T) {
	for name, do := range map[string]func() *simulation{
		"status-up.json": func() *simulation {
			w := newSimulation(t, "s-1")
			w.step(increase("small", 2, w.now))
			return w
		},
		"status-running.json": func() *simulation {
			w := newSimulation(t, "s-1")
			p := w.step(increase("small", 2, w.now))
			w.runOperation(p.op, 1, session.Running)
			w.step()
			return w
		},
		"status-failed.json": func() *simulation {
			w := newSimulation(t, "s-1")
			p := w.step(increase("small", 3, w.now))
			w.runOperation(p.op, 1, session.Failed)
			w.now = w.now.Add(time.Minute)
			w.step()
			return w
		},
		"status-slow.json": func() *simulation {
			w := newSimulation(t, "s-1")
			w.step(increase("small", 3, w.now))
			w.now = w.now.Add(11 * time.Minute)
			w.step()
			return w
		},
		"status-down.json": func() *simulation {
			w := newSimulation(t, "s-1", "l-1", "s-1")
			w.step(w.removeLast())
			return w
		},
		"status-unmanaged.json": func() *simulation {
			w := newSimulation(t, "s-1", "x-9")
			w.step()
			return w
		},
		"status-plain.json": func() *simulation {
			w := newKsctlAgentSimulation(t, "s-1", "s-1")
			p := w.step(increase("small", 1, w.now))
			w.runOperation(p.op, 0, session.Failed)
			w.now = w.now.Add(time.Minute)
			w.step()
			return w
		},
	} {
		w := do()
		golden.JSON(t, name, maskTexts(&w.obj.Status))
	}
}

// Agents identify operations by these IDs. After a restart the controller sends the same one again.
func TestGoldenOperationIDs(t *testing.T) {
	now := time.Unix(1_800_000_000, 123_456_789)
	var lines strings.Builder
	for _, uid := range []string{"0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a", "short", ""} {
		op := (&scalingPlan{planInput: planInput{uid: uid, now: now}}).newOperation(clusterv1.OperationScaleUp, 1, 2)
		_, _ = fmt.Fprintf(&lines, "%q: %s\n", uid, op.ID)
	}
	golden.Equal(t, "operations.txt", []byte(lines.String()))
}

// Statuses hold these codes, and the handling of a failure depends on them. Objects carry the other
// names.
func TestGoldenNames(t *testing.T) {
	obj := &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod-eu"}}
	golden.Equal(t, "names.txt", []byte(strings.Join([]string{
		"codes: " + strings.Join([]string{clusterv1.CodeOutOfResources, clusterv1.CodeDrain, clusterv1.CodeFailed,
			clusterv1.CodeNotDone, clusterv1.CodeOtherSize,
			clusterv1.CodeSlow, clusterv1.CodeNoAnswer, clusterv1.CodeUnsettled, clusterv1.CodeJoinTimeout}, " "),
		"node group: " + groupID(obj, "small"),
		"annotation of the Secret: " + OwnerAnnotation + " = " + ownerName(obj),
		"Secret: " + tlsSecretName(obj).String(),
		"annotation of nodes: " + scaleDownDisabledAnnotation,
		"taint of nodes: " + toBeDeletedTaint,
		"label of nodes: " + clusterv1.PoolLabel,
	}, "\n")+"\n"))
}

// Nodes carry what these patches set. An earlier release may have set it.
func TestGoldenNodeChanges(t *testing.T) {
	pools := []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MaxSize: 4,
		Labels: map[string]string{"tier": "web", "zone": "eu"},
		Taints: []corev1.Taint{{Key: "dedicated", Value: "web", Effect: corev1.TaintEffectNoSchedule}}}}
	worker := func(i int, change func(*corev1.Node)) *corev1.Node {
		n := node(fmt.Sprintf("demo-vm-wp-%d", i), time.Hour, nil)
		n.UID, n.ResourceVersion = "0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a", "7"
		n.Spec.ProviderID = fmt.Sprintf("k3s://demo-vm-wp-%d", i)
		change(n)
		return n
	}
	pooled := func(n *corev1.Node) {
		n.Labels = map[string]string{clusterv1.PoolLabel: "small", "tier": "web", "zone": "eu"}
	}
	nodes := []*corev1.Node{
		worker(0, func(n *corev1.Node) { n.Spec.ProviderID = "" }),
		worker(1, pooled),
		worker(2, func(n *corev1.Node) {
			pooled(n)
			n.Annotations = map[string]string{scaleDownDisabledAnnotation: "true"}
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{
				{Key: toBeDeletedTaint, Value: "1800000000", Effect: corev1.TaintEffectNoSchedule},
				{Key: "other", Effect: corev1.TaintEffectNoExecute},
			}
		}),
	}
	f := newMachines(testWorkerNames, pools, nodes, completeList("s-1", "s-1", "s-1"))
	all := nodeChanges(&f, pools, func(*machine) bool { return true }, map[int32]bool{2: true})
	// the change of removeScaleDownDisabled
	all = append(all, nodeChange{node: nodes[1], annotations: map[string]any{scaleDownDisabledAnnotation: nil}})
	var lines strings.Builder
	for i := range all {
		patch, err := all[i].patch()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", all[i].node.Name, patch)
	}
	golden.Equal(t, "marks.txt", []byte(lines.String()))
}
