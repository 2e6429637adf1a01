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

func mode(m clusterv1.ScalingMode, c *Cluster) *Cluster {
	c.Mode = m
	return c
}

func least(n int32, c *Cluster) *Cluster {
	c.Groups[0].Min = n
	return c
}

// with changes a worker of c.
func with(c *Cluster, at int, change func(*Worker)) *Cluster {
	change(&c.Workers[at])
	return c
}

func unjoined(w *Worker)  { w.Node, w.ProviderID, w.Ready = "", "", false }
func goes(w *Worker)      { w.Deleting = true }
func unmanaged(w *Worker) { w.Pool = "" }

func TestDelete(t *testing.T) {
	four := func() *Cluster { return cluster(4, 0, workers("small", "small", "small", "small")...) }
	mixed := func() *Cluster { return cluster(2, 1, workers("small", "big", "small")...) }
	unready := four()
	unready.Unready = errors.New("nothing is known")
	twice := four()
	twice.Workers[3].Node, twice.Workers[3].ProviderID = twice.Workers[0].Node, twice.Workers[0].ProviderID
	for name, c := range map[string]struct {
		cluster *Cluster
		nodes   []Node
		code    codes.Code
		target  int32 // -1: no change
	}{
		"the last one":                           {four(), nodes(four(), 3), codes.OK, 3},
		"the last ones, in any order":            {four(), nodes(four(), 2, 3, 1), codes.OK, 1},
		"all of them":                            {four(), nodes(four(), 0, 1, 2, 3), codes.OK, 0},
		"the last one, named twice":              {four(), nodes(four(), 3, 3), codes.OK, 3},
		"by its name alone":                      {four(), []Node{{Name: four().Workers[3].Node}}, codes.OK, 3},
		"by its providerID alone":                {four(), []Node{{ProviderID: four().Workers[3].ProviderID}}, codes.OK, 3},
		"by its providerID for a name":           {four(), []Node{{Name: four().Workers[3].ProviderID, ProviderID: four().Workers[3].ProviderID}}, codes.OK, 3},
		"none":                                   {four(), nil, codes.OK, -1},
		"one in the middle":                      {four(), nodes(four(), 2), codes.FailedPrecondition, 0},
		"with one left out":                      {four(), nodes(four(), 1, 3), codes.FailedPrecondition, 0},
		"one that nobody knows":                  {four(), []Node{{Name: "master-1", ProviderID: "k3s://master-1"}}, codes.NotFound, 0},
		"one that is known, and one that is not": {four(), append(nodes(four(), 3), Node{Name: "x"}), codes.NotFound, 0},
		"without a name":                         {four(), []Node{{}}, codes.NotFound, 0},
		"the name of one, the id of another":     {four(), []Node{{Name: four().Workers[3].Node, ProviderID: four().Workers[2].ProviderID}}, codes.NotFound, 0},
		"one of two that claim a name":           {twice, nodes(twice, 3), codes.NotFound, 0},
		"of another pool":                        {mixed(), nodes(mixed(), 1), codes.NotFound, 0},
		"before one of another pool":             {mixed(), nodes(mixed(), 0, 2), codes.FailedPrecondition, 0},
		"behind one of another pool":             {mixed(), nodes(mixed(), 2), codes.OK, 1},
		"before one of no pool":                  {with(four(), 3, unmanaged), nodes(four(), 2), codes.FailedPrecondition, 0},
		"before one that has not joined":         {with(four(), 3, unjoined), nodes(four(), 2), codes.FailedPrecondition, 0},
		"behind one that has not joined":         {with(four(), 1, unjoined), nodes(four(), 3), codes.FailedPrecondition, 0},
		"behind one that is given up":            {with(cluster(3, 0, four().Workers...), 1, unjoined), nodes(four(), 3), codes.OK, 2},
		"behind another pool's, not joined":      {with(mixed(), 1, unjoined), nodes(mixed(), 2), codes.OK, 1},
		"down to the least":                      {least(3, four()), nodes(four(), 3), codes.OK, 3},
		"below the least":                        {least(3, four()), nodes(four(), 2, 3), codes.FailedPrecondition, 0},
		"one that is going":                      {with(cluster(3, 0, four().Workers...), 3, goes), nodes(four(), 3), codes.OK, -1},
		"the one before one that is going":       {with(cluster(3, 0, four().Workers...), 3, goes), nodes(four(), 2), codes.OK, 2},
		"one that is to go, not begun":           {cluster(3, 0, four().Workers...), nodes(four(), 3), codes.OK, -1},
		"the one before it":                      {cluster(3, 0, four().Workers...), nodes(four(), 2), codes.OK, 2},
		"while another pool gets more":           {cluster(4, 1, four().Workers...), nodes(four(), 3), codes.FailedPrecondition, 0},
		"while its own pool gets more":           {cluster(5, 0, four().Workers...), nodes(four(), 3), codes.FailedPrecondition, 0},
		"while off":                              {mode(clusterv1.ScalingOff, four()), nodes(four(), 3), codes.FailedPrecondition, 0},
		"while machines are only made":           {mode(clusterv1.ScalingUpOnly, four()), nodes(four(), 3), codes.FailedPrecondition, 0},
		"one that is going, while off":           {mode(clusterv1.ScalingOff, with(cluster(3, 0, four().Workers...), 3, goes)), nodes(four(), 3), codes.OK, -1},
		"one too many, while off":                {mode(clusterv1.ScalingOff, cluster(3, 0, four().Workers...)), nodes(four(), 3), codes.FailedPrecondition, 0},
		"while nothing is known":                 {unready, nodes(four(), 3), codes.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Delete(c.cluster, groupID("small"), c.nodes)
			if c.target == -1 {
				if err != nil || len(got) > 0 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			wants(t, got, err, c.code, c.target, 0)
		})
	}
	if _, err := Delete(four(), groupID("none"), nil); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown group: %v", err)
	}
}

// A count-only agent deletes the end of its array: who is refused is told who stands there.
func TestARefusalSaysWhichWorkerIsTheTail(t *testing.T) {
	for said, c := range map[string]*Cluster{
		"worker 3 (not joined)":                            with(cluster(4, 0, workers("small", "small", "small", "small")...), 3, unjoined),
		"worker 3 (node prod-vm-wp-3-abcde, of no pool)":   with(cluster(3, 0, workers("small", "small", "small", "small")...), 3, unmanaged),
		"worker 2 (node prod-vm-wp-2-abcde)":               cluster(2, 1, workers("small", "small", "big")...),
		"worker 1 (node prod-vm-wp-1-abcde) can't go befo": cluster(2, 1, workers("small", "small", "big")...),
	} {
		_, err := Delete(c, groupID("small"), nodes(c, 1))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), said) {
			t.Errorf("%v does not say %q", err, said)
		}
	}
}

func TestForgive(t *testing.T) {
	soon := noon.Add(time.Minute)
	fake := func(k int) Node {
		id := placeholder(groupID("small"), k)
		return Node{Name: id, ProviderID: id}
	}
	cheap := failing(soon)
	cheap.Groups[0].Min = 4 // what could not be made is no machine that is deleted
	short := failing(soon)
	short.Groups[0].Target = 3 // the failure is not in it
	over := failing(soon)
	over.Groups[0].Failure.Count = 0
	big := placeholder(groupID("big"), 0)
	for name, c := range map[string]struct {
		cluster *Cluster
		nodes   []Node
		code    codes.Code
		target  int32 // -1: no change
		forgive int32
	}{
		"both":                           {failing(soon), []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"one of two":                     {failing(soon), []Node{fake(1)}, codes.OK, 4, 1},
		"one, named twice":               {failing(soon), []Node{fake(1), fake(1)}, codes.OK, 4, 1},
		"by its name alone":              {failing(soon), []Node{{Name: fake(0).Name}}, codes.OK, 4, 1},
		"by its providerID alone":        {failing(soon), []Node{{Name: "x", ProviderID: fake(0).Name}}, codes.OK, 4, 1},
		"one that is forgiven":           {failing(soon), []Node{fake(2)}, codes.OK, -1, 0},
		"where nothing failed":           {cluster(3, 0, workers("small", "small", "small")...), []Node{fake(0)}, codes.OK, -1, 0},
		"where all is forgiven":          {over, []Node{fake(0)}, codes.OK, -1, 0},
		"while off":                      {mode(clusterv1.ScalingOff, failing(soon)), []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"while machines are only made":   {mode(clusterv1.ScalingUpOnly, failing(soon)), []Node{fake(0)}, codes.OK, 4, 1},
		"also below the least":           {cheap, []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"never a machine that is a node": {short, []Node{fake(0), fake(1)}, codes.OK, 3, 2},
		"and the last node":              {failing(soon), append(nodes(failing(soon), 2), fake(0), fake(1)), codes.OK, 2, 2},
		"the last node alone":            {failing(soon), nodes(failing(soon), 2), codes.OK, 4, 0},
		"of another pool":                {failing(soon), []Node{{Name: big, ProviderID: big}}, codes.NotFound, 0, 0},
		"a number that is none":          {failing(soon), []Node{{Name: placeholders + groupID("small") + "/01"}}, codes.NotFound, 0, 0},
		"a number below zero":            {failing(soon), []Node{{Name: placeholders + groupID("small") + "/-1"}}, codes.NotFound, 0, 0},
		"no number":                      {failing(soon), []Node{{Name: placeholders + groupID("small")}}, codes.NotFound, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Delete(c.cluster, groupID("small"), c.nodes)
			if c.target == -1 {
				if err != nil || len(got) > 0 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			wants(t, got, err, c.code, c.target, c.forgive)
		})
	}
}

// Machines that exist and never joined are counted as failed by who tells so.
func TestMachinesThatNeverJoinedAreGivenUpOnceForgiven(t *testing.T) {
	c := cluster(3, 0, workers("small", "small", "small")...)
	with(c, 2, unjoined)
	c.Groups[0].Failure = &Failure{Code: "NotJoined", Count: 1, Until: noon}
	id := placeholder(groupID("small"), 0)
	changes, err := Delete(c, groupID("small"), []Node{{Name: id, ProviderID: id}})
	wants(t, changes, err, codes.OK, 2, 1)
	apply(c, changes)
	standings, leaving := c.standings()
	if !leaving[2] || leaving[0] || leaving[1] || standings[0].coming() != 0 {
		t.Errorf("%v %+v", leaving, standings)
	}
	changes, err = Delete(c, groupID("small"), nodes(c, 1))
	wants(t, changes, err, codes.OK, 1, 0)
}
