package rollout

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/internal/golden"
)

// goldenInstall returns the golden KsctlInstall of the API, which has every field set.
func goldenInstall(t *testing.T) *appsv1.KsctlInstall {
	t.Helper()
	data, err := os.ReadFile("../../../api/apps/v1/testdata/golden/ksctlinstall.json")
	if err != nil {
		t.Fatal(err)
	}
	in := &appsv1.KsctlInstall{}
	if err := yaml.UnmarshalStrict(data, in); err != nil {
		t.Fatal(err)
	}
	golden.Complete(t, &in.Spec)
	return in
}

// A member install that was created by an earlier version is recognized and up to date.
func TestGoldenMemberInstall(t *testing.T) {
	least := &appsv1.KsctlInstall{}
	least.Namespace, least.Name, least.UID = "team", "web", "u"
	whole := goldenInstall(t)
	whole.Labels["app.kubernetes.io/managed-by"] = "Helm"
	for name, in := range map[string]*appsv1.KsctlInstall{"member-least.json": least, "member.json": whole} {
		want := desiredMember(in, "prod", "sha256:x")
		golden.JSON(t, name, want)
		have := &appsv1.KsctlInstall{}
		goldenRead(t, name, have)
		found := metav1.IsControlledBy(have, in) && handover.FleetName(have) == in.Name &&
			memberCluster(in, have) == "prod"
		if !found || !memberUpToDate(have, want) {
			t.Errorf("%s is not current", name)
		}
	}
	whole.Status.Clusters = nil
	if got := memberCluster(whole, desiredMember(whole, "eu.prod", "sha256:x")); got != "eu.prod" {
		t.Errorf("the install is of cluster %q", got)
	}
}

func TestGoldenNames(t *testing.T) {
	var out bytes.Buffer
	a, b := strings.Repeat("a", 150), strings.Repeat("b", 150)
	for _, c := range []struct{ name, cluster string }{
		{"web", "prod"}, {"web", "prod.eu"}, {a, b[:102]}, {a, b[:103]}, {a, b},
		{a, b[:78] + "." + b}, {a, b[:77] + ".-" + b},
	} {
		fmt.Fprintf(&out, "install of %s for %s: %s\n", c.name, c.cluster, memberName(c.name, c.cluster))
	}
	for _, name := range []string{"web", a[:63], a[:64], a[:45] + "." + b, a[:44] + "--" + b} {
		fmt.Fprintf(&out, "fleet %s: %s\n", name, fleetLabelValue(name))
	}
	for _, text := range []string{"", "web-prod"} {
		fmt.Fprintf(&out, "hash of %q: %s\n", text, shortHash(text))
	}
	for _, names := range [][]string{nil, {"prod u-1"}, {"prod u-1", "stage u-2"}, {"stage u-2", "prod u-1"}} {
		fmt.Fprintf(&out, "digest of %q: %s\n", names, shortDigest(names))
	}
	// The digest that approves a removal from clusters.
	members := []memberInstall{memberAt("prod", "dropped"), memberAt("stage", "dropped"), memberAt("test", "ready")}
	for i := range members {
		members[i].install.UID = types.UID(fmt.Sprintf("u-%d", i+1))
	}
	r := planRollout(members, "r2", goldenOptions())
	fmt.Fprintf(&out, "two of three clusters dropped: %s\n", r.approvalDigest)
	golden.Equal(t, "names.txt", out.Bytes())
}

func goldenOptions() rolloutOptions {
	return rolloutOptions{maxConcurrent: 2, now: time.Unix(1000, 0)}
}

func TestGoldenRolloutOrder(t *testing.T) {
	all := []turn{{}, {number: 7}, {number: 7, ahead: true}, {number: maxTurn, ahead: true}}
	var out bytes.Buffer
	for _, x := range all {
		fmt.Fprintln(&out, x)
	}
	golden.Equal(t, "turns.txt", out.Bytes())
	for i, line := range strings.Split(strings.TrimSpace(string(golden.Read(t, "turns.txt"))), "\n") {
		in := &appsv1.KsctlInstall{}
		in.Annotations = map[string]string{appsv1.TurnAnnotation: line}
		if got := lastTurn(in); got != all[i] {
			t.Errorf("%q is parsed as %+v", line, got)
		}
	}
}

// The entries of status.clusters in every state, the first with every field.
func TestGoldenRollout(t *testing.T) {
	var members []memberInstall
	for i, state := range []string{"busy", "ready", "behind", "failed", "away", "unready", "late", "going", "ready*",
		"",
		"failed*", "busy*", "dropped"} {
		s := memberAt(fmt.Sprintf("c%02d", i), state)
		if s.install != nil {
			s.install.Annotations = map[string]string{appsv1.TurnAnnotation: turn{number: 3}.String()}
		}
		if state == "busy*" {
			since := metav1.NewTime(time.Unix(990, 0))
			s.previous = &appsv1.InstalledCluster{State: appsv1.ClusterUpdating, Since: &since}
		}
		members = append(members, s)
	}
	options := goldenOptions()
	options.maxConcurrent = 6
	r := planRollout(members, "r2", options)
	golden.Complete(t, r.clusters)
	golden.JSON(t, "clusters.json", &r.clusters)

	changes := map[string]string{}
	for cluster, turn := range r.updates {
		changes[cluster] = turn.String()
	}
	golden.JSON(t, "turns-given.json", &changes)
}
