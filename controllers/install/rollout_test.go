package install

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// at is a cluster that is picked, with an install that stands as a word says; "" without one.
// A word with a star is of one that is not as it is to be.
func siteAt(cluster, word string) site {
	s := site{cluster: cluster, picked: true}
	word, old := strings.CutSuffix(word, "*")
	if s.taken = word == "taken"; s.taken || word == "" {
		return s
	}
	s.current = !old
	s.install = &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Name: "app-" + cluster}}
	s.install.Status.LastAppliedRevision = "r2"
	if old {
		s.install.Status.LastAppliedRevision = "r1"
	}
	c := metav1.Condition{Type: appsv1.ReadyCondition, Message: word, LastTransitionTime: metav1.Unix(999, 0)}
	switch word {
	case "ready":
		c.Status = metav1.ConditionTrue
	case "behind":
		c.Status, s.install.Status.LastAppliedRevision = metav1.ConditionTrue, "r1"
	case "busy":
		c.Status = metav1.ConditionUnknown
	case "late", "fresh": // fresh had no kubeconfig for long
		c.Status, c.LastTransitionTime = metav1.ConditionUnknown, metav1.Unix(1, 0)
		s.before = &appsv1.InstalledCluster{State: appsv1.ClusterUpdating, Since: &c.LastTransitionTime}
		if word == "fresh" {
			s.before = &appsv1.InstalledCluster{State: appsv1.ClusterUnreachable}
		}
	case "unready":
		c.Status, c.Reason = metav1.ConditionUnknown, target.ClusterNotReadyReason
	case "failed":
		c.Status = metav1.ConditionFalse
	case "away":
		c.Status, c.Reason = metav1.ConditionFalse, target.ClusterUnreachableReason
	case "going":
		s.install.DeletionTimestamp = &metav1.Time{}
	case "dropped":
		c.Status, s.picked = metav1.ConditionTrue, false
	case "lost":
		c.Status, s.picked, s.lost = metav1.ConditionTrue, false, true
	}
	s.install.Status.Conditions = []metav1.Condition{c}
	return s
}

// A cluster that fails before it looks at the change that it was given, as without its account, holds
// the others up as one that failed, not as one at work without an end.
func TestOneThatFailsBeforeItLooksHasFailed(t *testing.T) {
	s := siteAt("a", "failed")
	s.install.Annotations = map[string]string{appsv1.ReleaseAnnotation: "sha256:r2"}
	s.install.Status.Artifact = takenAt("r1")
	if got := stateOf(s, "r2", time.Unix(1000, 0)); got != appsv1.ClusterFailed {
		t.Errorf("it is %s", got)
	}
}

func TestRollout(t *testing.T) {
	for name, tc := range map[string]struct {
		// sites as name=word, those that are changed and removed, and all states in order.
		sites, change, remove, states string
		most                          int
		goOn                          bool
		held                          bool
	}{
		"nothing is there":                {sites: "a= b= c=", most: 2, change: "a b", states: "Updating Updating Waiting"},
		"one is at it":                    {sites: "a=busy b= c=", most: 2, change: "b", states: "Updating Updating Waiting"},
		"who is behind is at it":          {sites: "a=behind b=", most: 1, states: "Updating Waiting"},
		"one is done":                     {sites: "a=ready b=busy c=", most: 2, change: "c", states: "Ready Updating Updating"},
		"all are done":                    {sites: "a=ready b=ready", most: 2, states: "Ready Ready"},
		"one has a name that is taken":    {sites: "a=taken b=", most: 1, change: "b", states: "Failed Updating"},
		"one takes too long":              {sites: "a=late b= c=", most: 1, goOn: true, change: "b", states: "Failed Updating Waiting"},
		"one had no kubeconfig for long":  {sites: "a=fresh b=", most: 2, change: "b", states: "Updating Updating"},
		"one has no kubeconfig":           {sites: "a=unready b=", most: 1, change: "b", states: "Unreachable Updating"},
		"another change comes in between": {sites: "a=busy* b=ready* c=ready*", most: 2, change: "a", states: "Updating Waiting Waiting"},
		"one has failed":                  {sites: "a=failed b=ready* c=", most: 2, states: "Failed Waiting Waiting"},
		"one has failed, and it goes on":  {sites: "a=failed b=ready* c=", most: 2, goOn: true, change: "b c", states: "Failed Updating Updating"},
		"another change comes":            {sites: "a=ready* b=failed* c=ready*", most: 1, change: "b", states: "Waiting Updating Waiting"},
		"one does not answer":             {sites: "a=away b=ready*", most: 1, change: "b", states: "Unreachable Updating"},
		"one is not picked any more":      {sites: "a=ready b=ready c=dropped", most: 1, remove: "c", states: "Ready Ready Ready"},
		"one of two is not picked":        {sites: "a=ready b=dropped", most: 1, remove: "b", states: "Ready Ready"},
		"most are not picked any more":    {sites: "a=ready b=dropped c=dropped", most: 1, held: true, states: "Ready Ready Ready"},
		"most are gone":                   {sites: "a=ready b=lost c=lost", most: 1, remove: "b c", states: "Ready Ready Ready"},
		"one goes, and is picked again":   {sites: "a=going", most: 1, states: "Removing"},
		"one that fails is dropped":       {sites: "a=ready b=ready c=dropped d=", most: 1, change: "d", remove: "c", states: "Ready Ready Ready Updating"},
	} {
		t.Run(name, func(t *testing.T) {
			var sites []site
			for _, word := range strings.Fields(tc.sites) {
				cluster, how, _ := strings.Cut(word, "=")
				sites = append(sites, siteAt(cluster, how))
			}
			r := planRollout(sites, "r2", rolloutOptions{maxConcurrent: tc.most, stop: !tc.goOn, now: time.Unix(1000, 0)})
			var states []string
			for _, l := range r.lines {
				states = append(states, string(l.State))
			}
			if got := strings.Join(slices.Sorted(maps.Keys(r.change)), " "); got != tc.change {
				t.Errorf("changes %q, want %q", got, tc.change)
			}
			if got := strings.Join(r.remove, " "); got != tc.remove {
				t.Errorf("removes %q, want %q", got, tc.remove)
			}
			if got := strings.Join(states, " "); got != tc.states {
				t.Errorf("states %q, want %q", got, tc.states)
			}
			if (r.held != "") != tc.held {
				t.Errorf("held by %q", r.held)
			}
			if tc.held {
				approved := planRollout(sites, "r2", rolloutOptions{maxConcurrent: tc.most, approved: r.held})
				if approved.held != "" || len(approved.remove) == 0 {
					t.Errorf("approved: %+v", approved)
				}
			}
		})
	}
}

// A cluster has its timeout for each change, from when it begins with it.
func TestSinceWhenAClusterTakesInAChange(t *testing.T) {
	s := siteAt("a", "fresh")
	s.install.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	var line appsv1.InstalledCluster
	look := func(at int64) {
		line = planRollout([]site{s}, "r2", rolloutOptions{maxConcurrent: 1, now: time.Unix(at, 0)}).lines[0]
		s.before = &line
	}
	for _, x := range []struct {
		at    int64
		state appsv1.ClusterState
		since int64
	}{{1000, appsv1.ClusterUpdating, 1000}, {1060, appsv1.ClusterUpdating, 1000}, {1061, appsv1.ClusterFailed, 0}, {1062, appsv1.ClusterFailed, 0}} {
		if look(x.at); line.State != x.state || (line.Since == nil) != (x.since == 0) || line.Since != nil && line.Since.Unix() != x.since {
			t.Errorf("at %d: %+v", x.at, line)
		}
	}
	s.before.State, s.before.Since = appsv1.ClusterUpdating, &metav1.Time{Time: time.Unix(1065, 0)}
	s.current = false // another commit, whose turn has to wait for the change that it is at
	behind := siteAt("b", "ready*")
	r := planRollout([]site{s, behind}, "r2", rolloutOptions{maxConcurrent: 0, now: time.Unix(1070, 0)})
	if s.before = &r.lines[0]; s.before.State != appsv1.ClusterWaiting || s.before.Since == nil || !s.inProgress(time.Unix(1125, 0)) || s.inProgress(time.Unix(1126, 0)) {
		t.Errorf("at the change before: %+v", r.lines)
	}
	if look(1130); line.State != appsv1.ClusterUpdating || line.Since.Unix() != 1130 {
		t.Errorf("another change: %+v", line)
	}
	// One that can't be written begins with nothing, and the status stays as it is.
	r = planRollout([]site{s}, "r2", rolloutOptions{maxConcurrent: 1, now: time.Unix(1200, 0)})
	if r.refuse(&s); r.lines[0].Since.Unix() != 1130 {
		t.Errorf("refused: %+v", r.lines[0])
	}
}

func TestSiteInstall(t *testing.T) {
	in := install("app", "src", nil)
	in.UID = "u"
	in.Labels = map[string]string{"team": "web", "app.kubernetes.io/instance": "x", "kustomize.toolkit.fluxcd.io/name": "x"}
	in.Spec.ClusterSelector = &appsv1.ClusterSelector{}
	in.Spec.Suspend = true
	x := siteInstall(in, "prod", "sha256:x")
	if x.Name != "app-prod" || x.Spec.ClusterSelector != nil || x.Spec.ClusterRef.Name != "prod" || x.Spec.Suspend || !isSite(x, in) || fleetOf(x) != "app" {
		t.Errorf("%+v", x)
	}
	if len(x.Labels) != 2 || x.Labels["team"] != "web" || x.Labels[appsv1.FleetLabel] != "app" {
		t.Errorf("labels %v", x.Labels)
	}
	if in.Spec.ClusterSelector == nil {
		t.Error("the install itself was changed")
	}
	have := x.DeepCopy()
	have.Labels["mine"] = "stays"
	if !currentSite(have, x) || currentSite(have, siteInstall(in, "prod", "sha256:y")) {
		t.Error("current is what has the spec and the digest")
	}
	in.Spec.Strict = true
	want := siteInstall(in, "prod", "sha256:y")
	if got := adjusted(have, want); !currentSite(got, want) || got.Labels["mine"] != "stays" {
		t.Errorf("adjusted %+v", got)
	}
	long := siteName(strings.Repeat("a", 150), strings.Repeat("b", 150))
	if len(long) > 253 || long == siteName(strings.Repeat("a", 150), strings.Repeat("b", 149)) {
		t.Errorf("name %s", long)
	}
}

func TestClusterValues(t *testing.T) {
	c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod", Namespace: "team", Labels: map[string]string{"region": "eu"}},
		Status: clusterv1.KsctlClusterStatus{Facts: &clusterv1.ClusterFacts{Cloud: "aws"}, KubernetesVersion: "v1.36.3"}}
	set := func(pairs ...string) *appsv1.ValuesReference {
		ref := &appsv1.ValuesReference{Kind: appsv1.ClusterValues, Component: "web"}
		for i := 0; i < len(pairs); i += 2 {
			ref.Set = append(ref.Set, appsv1.ClusterValue{Path: pairs[i], Expr: pairs[i+1]})
		}
		return ref
	}
	got, err := evaluate(c, set("ingress.host", "'app.' + metadata.name + '.example.com'", "region", "metadata.labels['region']", "version", "status.kubernetesVersion",
		"cloud", "status.facts.cloud", `labels.a\.b/c`, "has(status.facts.region)"))
	want := "cloud: aws\ningress:\n  host: app.prod.example.com\nlabels:\n  a.b/c: false\nregion: eu\nversion: v1.36.3\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	for what, ref := range map[string]*appsv1.ValuesReference{
		"no such label":    set("a", "metadata.labels['x']"),
		"a list":           set("a", "[1]"),
		"nonsense":         set("a", "metadata."),
		"two at one place": set("a", "1", "a.b", "2"),
		"an empty part":    set("a..b", "1"),
	} {
		if _, err := evaluate(c, ref); err == nil || !strings.HasPrefix(err.Error(), `valuesFrom Cluster for component "web": a`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !slices.Equal(splitPath(`a.b\.c`), []string{"a", "b.c"}) {
		t.Errorf("split as %v", splitPath(`a.b\.c`))
	}
}
