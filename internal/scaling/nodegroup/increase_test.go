package nodegroup

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// withFailure returns prod with three joined machines and two failed machines in pool "small".
func withFailure(until time.Time) *Cluster {
	c := newCluster(5, 0, workers("small", "small", "small")...)
	c.Groups[0].Failure = &Failure{OutOfResources: true, Code: "QuotaExceeded", Message: "12 of 12 vCPUs are in use",
		Count: 2, BackoffUntil: until}
	return c
}

// expectChange checks a decision: its gRPC code and, for codes.OK, the target and the number of
// cleared failed machines.
func expectChange(t *testing.T, got []Change, err error, code codes.Code, target, cleared int32) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v (%s), want %s", err, status.Code(err), code)
	}
	if err != nil {
		rejected := (*RejectedError)(nil)
		if !errors.As(err, &rejected) || len(got) > 0 {
			t.Errorf("%T %v with %v", err, err, got)
		}
		return
	}
	if len(got) != 1 || got[0].Target != target || got[0].ClearFailed != cleared || got[0].Reason == "" {
		t.Errorf("%+v, want target %d and %d cleared", got, target, cleared)
	}
}

func TestPlanIncrease(t *testing.T) {
	limited := func(limit int32, c *Cluster) *Cluster {
		c.MaxNodes = limit
		return c
	}
	off := newCluster(1, 0, workers("small")...)
	off.Mode = clusterv1.ScalingOff
	up := newCluster(1, 0, workers("small")...)
	up.Mode = clusterv1.ScalingUpOnly
	unready := newCluster(1, 0, workers("small")...)
	unready.UnreadyReason = errors.New("the agent does not answer")
	full := withFailure(noon.Add(time.Minute))
	full.Groups[0].Failure.OutOfResources = false
	deleting := newCluster(1, 0, workers("small", "small")...)
	deleting.Workers[1].Deleting = true
	for name, c := range map[string]struct {
		cluster *Cluster
		delta   int32
		code    codes.Code
		target  int32
		cleared int32
	}{
		"one more":             {newCluster(1, 0, workers("small")...), 1, codes.OK, 2, 0},
		"from zero":            {newCluster(0, 0), 1, codes.OK, 1, 0},
		"to maxSize":           {newCluster(1, 0, workers("small")...), 5, codes.OK, 6, 0},
		"beyond maxSize":       {newCluster(1, 0, workers("small")...), 6, codes.OutOfRange, 0, 0},
		"overflow":             {newCluster(6, 0), math.MaxInt32, codes.OutOfRange, 0, 0},
		"by zero":              {newCluster(1, 0), 0, codes.InvalidArgument, 0, 0},
		"by a negative number": {newCluster(1, 0), math.MinInt32, codes.InvalidArgument, 0, 0},
		"mode Off":             {off, 1, codes.FailedPrecondition, 0, 0},
		"mode ScaleUpOnly":     {up, 1, codes.OK, 2, 0},
		"unready cluster":      {unready, 1, codes.Unavailable, 0, 0},
		"backoff, out of resources": {withFailure(noon.Add(time.Second)), 1, codes.ResourceExhausted, 0,
			0},
		"backoff, other failure":            {full, 1, codes.Unavailable, 0, 0},
		"after the backoff":                 {withFailure(noon), 1, codes.OK, 4, 2},
		"after the backoff, to maxSize":     {withFailure(noon), 3, codes.OK, 6, 2},
		"after the backoff, beyond maxSize": {withFailure(noon), 4, codes.OutOfRange, 0, 0},
		"to maxNodesTotal": {limited(8,
			newCluster(2, 2, workers("small", "small", "big", "big")...)), 1, codes.OK, 3, 0},
		"beyond maxNodesTotal": {limited(8,
			newCluster(2, 2, workers("small", "small", "big", "big")...)), 2, codes.ResourceExhausted, 0, 0},
		"missing machines of other pools count": {limited(8, newCluster(2, 3, workers("small", "small")...)), 1,
			codes.ResourceExhausted, 0, 0},
		"surplus machines of other pools count": {limited(6, newCluster(0, 0, workers("big", "big", "big")...)), 1,
			codes.ResourceExhausted, 0, 0},
		"maxNodesTotal is already exceeded":    {limited(1, newCluster(0, 0)), 1, codes.ResourceExhausted, 0, 0},
		"cleared failed machines do not count": {limited(7, withFailure(noon)), 1, codes.OK, 4, 2},
		"while one is being deleted":           {deleting, 1, codes.OK, 2, 0},
		"while the deletion of one has not begun": {newCluster(1, 0, workers("small", "small")...), 1,
			codes.Unavailable, 0, 0},
		"maxNodesTotal is the largest number": {limited(math.MaxInt32, newCluster(1, 4, workers("small")...)), 5,
			codes.OK, 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlanIncrease(c.cluster, groupID("small"), c.delta, noon)
			expectChange(t, got, err, c.code, c.target, c.cleared)
		})
	}
	if _, err := PlanIncrease(newCluster(1, 0), GroupID(other, "small"), 1, noon); status.Code(err) != codes.NotFound {
		t.Errorf("group of another cluster: %v", err)
	}
}

func TestPlanIncreaseNamesCauseAndEndOfBackoff(t *testing.T) {
	_, err := PlanIncrease(withFailure(noon.Add(5*time.Minute)), groupID("small"), 1, noon)
	for _, text := range []string{"small", "2026-11-23T12:05:00Z", "QuotaExceeded", "12 of 12 vCPUs"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not contain %s", err, text)
		}
	}
}

func TestPlanDecrease(t *testing.T) {
	making := newCluster(3, 0, workers("small", "small", "small")...)
	making.Workers[2].Node, making.Workers[2].ProviderID, making.Busy = "", "", true
	pair := newCluster(5, 0, workers("small", "small", "small")...)
	pair.Workers[2].Node, pair.Workers[2].ProviderID, pair.Busy = "", "", true
	leaving := newCluster(2, 0, workers("small", "small")...)
	leaving.Workers[1].Deleting = true
	unready := newCluster(3, 0)
	unready.UnreadyReason = errors.New("nothing is known")
	off := newCluster(3, 0, workers("small")...)
	off.Mode = clusterv1.ScalingOff
	failed := withFailure(noon)
	failed.Groups[0].Target = 6 // one more machine does not exist yet
	for name, c := range map[string]struct {
		cluster *Cluster
		delta   int32
		code    codes.Code
		target  int32
		cleared int32
	}{
		"one missing machine":               {newCluster(3, 0, workers("small", "small")...), -1, codes.OK, 2, 0},
		"all missing machines":              {newCluster(3, 0), -3, codes.OK, 0, 0},
		"never below the existing machines": {newCluster(3, 0, workers("small", "small")...), -2, codes.OK, 2, 0},
		"never below them, by any number": {newCluster(3, 0, workers("small", "small")...), math.MinInt32,
			codes.OK, 2, 0},
		"all machines exist": {newCluster(2, 0, workers("small", "small")...), -1,
			codes.FailedPrecondition, 0, 0},
		"machine being created":                  {making, -1, codes.FailedPrecondition, 0, 0},
		"missing machines and one being created": {pair, -3, codes.OK, 3, 0},
		"machine being deleted does not count":   {leaving, -1, codes.OK, 1, 0},
		"by zero":                                {newCluster(3, 0), 0, codes.InvalidArgument, 0, 0},
		"by a positive number":                   {newCluster(3, 0), 1, codes.InvalidArgument, 0, 0},
		"unready cluster":                        {unready, -1, codes.Unavailable, 0, 0},
		"mode Off cancels, too":                  {off, -1, codes.OK, 2, 0},
		"missing machine before a failed one":    {failed, -1, codes.OK, 5, 0},
		"missing machine, then one failed":       {failed, -2, codes.OK, 4, 1},
		"missing machine, then all failed ones":  {failed, -3, codes.OK, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlanDecrease(c.cluster, groupID("small"), c.delta)
			expectChange(t, got, err, c.code, c.target, c.cleared)
		})
	}
	if _, err := PlanDecrease(newCluster(1, 0), "small", -1); status.Code(err) != codes.NotFound {
		t.Errorf("unknown group: %v", err)
	}
}

func TestPlansDoNotModifyTheCluster(t *testing.T) {
	c, same := withFailure(noon), withFailure(noon)
	_, _ = PlanIncrease(c, groupID("small"), 1, noon)
	_, _ = PlanDecrease(c, groupID("small"), -1)
	_, _ = PlanDelete(c, groupID("small"), append(nodesAt(c, 2), Node{Name: placeholderID(groupID("small"), 0)}))
	instances(c, groupID("small"))
	if !reflect.DeepEqual(c, same) {
		t.Errorf("%+v", c)
	}
}
