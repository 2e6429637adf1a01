package nodegroup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

func withMode(m clusterv1.ScalingMode, c *Cluster) *Cluster {
	c.Mode = m
	return c
}

func withMin(n int32, c *Cluster) *Cluster {
	c.Groups[0].Min = n
	return c
}

// withWorker modifies a worker of c.
func withWorker(c *Cluster, at int, change func(*Worker)) *Cluster {
	change(&c.Workers[at])
	return c
}

func unjoined(w *Worker)     { w.Node, w.ProviderID, w.Ready = "", "", false }
func markDeleting(w *Worker) { w.Deleting = true }
func unmanaged(w *Worker)    { w.Pool = "" }

func TestPlanDelete(t *testing.T) {
	four := func() *Cluster { return newCluster(4, 0, workers("small", "small", "small", "small")...) }
	mixed := func() *Cluster { return newCluster(2, 1, workers("small", "big", "small")...) }
	unready := four()
	unready.UnreadyReason = errors.New("nothing is known")
	twice := four()
	twice.Workers[3].Node, twice.Workers[3].ProviderID = twice.Workers[0].Node, twice.Workers[0].ProviderID
	for name, c := range map[string]struct {
		cluster *Cluster
		nodes   []Node
		code    codes.Code
		target  int32 // -1: no change
	}{
		"the last one":                {four(), nodesAt(four(), 3), codes.OK, 3},
		"the last ones, in any order": {four(), nodesAt(four(), 2, 3, 1), codes.OK, 1},
		"all":                         {four(), nodesAt(four(), 0, 1, 2, 3), codes.OK, 0},
		"the last one, named twice":   {four(), nodesAt(four(), 3, 3), codes.OK, 3},
		"by node name":                {four(), []Node{{Name: four().Workers[3].Node}}, codes.OK, 3},
		"by providerID":               {four(), []Node{{ProviderID: four().Workers[3].ProviderID}}, codes.OK, 3},
		"by providerID as name": {four(),
			[]Node{{Name: four().Workers[3].ProviderID, ProviderID: four().Workers[3].ProviderID}}, codes.OK, 3},
		"none":              {four(), nil, codes.OK, -1},
		"one in the middle": {four(), nodesAt(four(), 2), codes.FailedPrecondition, 0},
		"with a gap":        {four(), nodesAt(four(), 1, 3), codes.FailedPrecondition, 0},
		"not a worker": {four(), []Node{{Name: "master-1", ProviderID: "k3s://master-1"}},
			codes.NotFound, 0},
		"a worker and an unknown node": {four(), append(nodesAt(four(), 3), Node{Name: "x"}), codes.NotFound, 0},
		"empty node":                   {four(), []Node{{}}, codes.NotFound, 0},
		"name and providerID of different workers": {four(),
			[]Node{{Name: four().Workers[3].Node, ProviderID: four().Workers[2].ProviderID}}, codes.NotFound, 0},
		"ambiguous name":         {twice, nodesAt(twice, 3), codes.NotFound, 0},
		"worker of another pool": {mixed(), nodesAt(mixed(), 1), codes.NotFound, 0},
		"before a worker of another pool": {mixed(), nodesAt(mixed(), 0, 2),
			codes.FailedPrecondition, 0},
		"after a worker of another pool": {mixed(), nodesAt(mixed(), 2), codes.OK, 1},
		"before a worker of no pool": {withWorker(four(), 3, unmanaged), nodesAt(four(), 2),
			codes.FailedPrecondition, 0},
		"before a worker that has not joined": {withWorker(four(), 3, unjoined), nodesAt(four(), 2),
			codes.FailedPrecondition, 0},
		"after a worker that has not joined": {withWorker(four(), 1, unjoined), nodesAt(four(), 3),
			codes.FailedPrecondition, 0},
		"after a canceled worker that has not joined": {withWorker(newCluster(3, 0, four().Workers...), 1,
			unjoined), nodesAt(four(), 3), codes.OK, 2},
		"after a worker of another pool that has not joined": {withWorker(mixed(), 1, unjoined), nodesAt(mixed(), 2),
			codes.OK, 1},
		"to minSize":    {withMin(3, four()), nodesAt(four(), 3), codes.OK, 3},
		"below minSize": {withMin(3, four()), nodesAt(four(), 2, 3), codes.FailedPrecondition, 0},
		"already being deleted": {withWorker(newCluster(3, 0, four().Workers...), 3, markDeleting),
			nodesAt(four(), 3), codes.OK, -1},
		"before one being deleted": {withWorker(newCluster(3, 0, four().Workers...), 3, markDeleting),
			nodesAt(four(), 2), codes.OK, 2},
		"surplus, deletion not begun": {newCluster(3, 0, four().Workers...), nodesAt(four(), 3), codes.OK, -1},
		"before a surplus worker":     {newCluster(3, 0, four().Workers...), nodesAt(four(), 2), codes.OK, 2},
		"while another pool misses a machine": {newCluster(4, 1, four().Workers...), nodesAt(four(), 3),
			codes.FailedPrecondition, 0},
		"while its own pool misses a machine": {newCluster(5, 0, four().Workers...), nodesAt(four(), 3),
			codes.FailedPrecondition, 0},
		"mode Off": {withMode(clusterv1.ScalingOff, four()), nodesAt(four(), 3),
			codes.FailedPrecondition, 0},
		"mode ScaleUpOnly": {withMode(clusterv1.ScalingUpOnly, four()), nodesAt(four(), 3),
			codes.FailedPrecondition, 0},
		"already being deleted, mode Off": {withMode(clusterv1.ScalingOff,
			withWorker(newCluster(3, 0, four().Workers...), 3, markDeleting)), nodesAt(four(), 3), codes.OK, -1},
		"surplus, mode Off": {withMode(clusterv1.ScalingOff, newCluster(3, 0, four().Workers...)),
			nodesAt(four(), 3), codes.FailedPrecondition, 0},
		"unready cluster": {unready, nodesAt(four(), 3), codes.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlanDelete(c.cluster, groupID("small"), c.nodes)
			if c.target == -1 {
				if err != nil || len(got) > 0 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			expectChange(t, got, err, c.code, c.target, 0)
		})
	}
	if _, err := PlanDelete(four(), groupID("none"), nil); status.Code(err) != codes.NotFound {
		t.Errorf("unknown group: %v", err)
	}
}

// An agent that is only given a number of machines deletes the end of its array: the rejection
// names the worker at the end.
func TestPlanDeleteNamesTheLastWorker(t *testing.T) {
	for text, c := range map[string]*Cluster{
		"worker 3 (not joined)": withWorker(newCluster(4, 0,
			workers("small", "small", "small", "small")...), 3, unjoined),
		"worker 3 (node prod-vm-wp-3-abcde, in no pool)": withWorker(
			newCluster(3, 0, workers("small", "small", "small", "small")...), 3, unmanaged),
		"worker 2 (node prod-vm-wp-2-abcde)":           newCluster(2, 1, workers("small", "small", "big")...),
		"worker 1 (node prod-vm-wp-1-abcde) cannot be": newCluster(2, 1, workers("small", "small", "big")...),
	} {
		_, err := PlanDelete(c, groupID("small"), nodesAt(c, 1))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not contain %q", err, text)
		}
	}
}

func TestPlanDeleteClearsFailedMachines(t *testing.T) {
	soon := noon.Add(time.Minute)
	fake := func(k int) Node {
		id := placeholderID(groupID("small"), k)
		return Node{Name: id, ProviderID: id}
	}
	cheap := withFailure(soon)
	cheap.Groups[0].Min = 4 // minSize does not protect failed machines
	short := withFailure(soon)
	short.Groups[0].Target = 3 // does not include the failed machines
	over := withFailure(soon)
	over.Groups[0].Failure.Count = 0
	big := placeholderID(groupID("big"), 0)
	for name, c := range map[string]struct {
		cluster *Cluster
		nodes   []Node
		code    codes.Code
		target  int32 // -1: no change
		cleared int32
	}{
		"both placeholders": {withFailure(soon), []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"one of two":        {withFailure(soon), []Node{fake(1)}, codes.OK, 4, 1},
		"one, named twice":  {withFailure(soon), []Node{fake(1), fake(1)}, codes.OK, 4, 1},
		"by name alone":     {withFailure(soon), []Node{{Name: fake(0).Name}}, codes.OK, 4, 1},
		"by providerID alone": {withFailure(soon), []Node{{Name: "x", ProviderID: fake(0).Name}}, codes.OK, 4,
			1},
		"already cleared": {withFailure(soon), []Node{fake(2)}, codes.OK, -1, 0},
		"no failure": {newCluster(3, 0, workers("small", "small", "small")...), []Node{fake(0)},
			codes.OK, -1, 0},
		"all cleared": {over, []Node{fake(0)}, codes.OK, -1, 0},
		"mode Off": {withMode(clusterv1.ScalingOff, withFailure(soon)), []Node{fake(0), fake(1)},
			codes.OK, 3, 2},
		"mode ScaleUpOnly": {withMode(clusterv1.ScalingUpOnly, withFailure(soon)), []Node{fake(0)}, codes.OK,
			4, 1},
		"below minSize":              {cheap, []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"keeps machines with a node": {short, []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"with the last node": {withFailure(soon), append(nodesAt(withFailure(soon), 2), fake(0), fake(1)),
			codes.OK, 2, 2},
		"the last node alone": {withFailure(soon), nodesAt(withFailure(soon), 2), codes.OK, 2, 2},
		"with the last node, in part": {withFailure(soon), append(nodesAt(withFailure(soon), 2), fake(1)), codes.OK, 2,
			2},
		"another pool": {withFailure(soon), []Node{{Name: big, ProviderID: big}}, codes.NotFound, 0, 0},
		"number with leading zero": {withFailure(soon), []Node{{Name: placeholderPrefix + groupID("small") + "/01"}},
			codes.NotFound, 0, 0},
		"negative number": {withFailure(soon), []Node{{Name: placeholderPrefix + groupID("small") + "/-1"}},
			codes.NotFound, 0, 0},
		"no number": {withFailure(soon), []Node{{Name: placeholderPrefix + groupID("small")}},
			codes.NotFound, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlanDelete(c.cluster, groupID("small"), c.nodes)
			if c.target == -1 {
				if err != nil || len(got) > 0 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			expectChange(t, got, err, c.code, c.target, c.cleared)
		})
	}
}

// The target includes failed machines; a live node never takes the place of one.
func TestPlanDeleteRemovesLiveNodesDespiteAFailure(t *testing.T) {
	c := withFailure(noon.Add(time.Minute))
	changes, err := PlanDelete(c, groupID("small"), nodesAt(c, 1, 2))
	expectChange(t, changes, err, codes.OK, 1, 2)
	apply(c, changes)
	if _, leaving := newIndex(c).countMachines(); leaving[0] || !leaving[1] || !leaving[2] {
		t.Errorf("leaving: %v", leaving)
	}
}

// The controller counts machines that exist but never joined as failed. Once their failure is
// cleared, they are deleted.
func TestUnjoinedMachinesAreRemovedOnceTheirFailureIsCleared(t *testing.T) {
	c := newCluster(3, 0, workers("small", "small", "small")...)
	withWorker(c, 2, unjoined)
	c.Groups[0].Failure = &Failure{Code: "NotJoined", Count: 1, BackoffUntil: noon}
	id := placeholderID(groupID("small"), 0)
	changes, err := PlanDelete(c, groupID("small"), []Node{{Name: id, ProviderID: id}})
	expectChange(t, changes, err, codes.OK, 2, 1)
	apply(c, changes)
	standings, leaving := newIndex(c).countMachines()
	if !leaving[2] || leaving[0] || leaving[1] || standings[0].missing() != 0 {
		t.Errorf("%v %+v", leaving, standings)
	}
	changes, err = PlanDelete(c, groupID("small"), nodesAt(c, 1))
	expectChange(t, changes, err, codes.OK, 1, 0)
}
