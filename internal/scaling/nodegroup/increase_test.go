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

// failing is prod with two machines of "small" that could not be made, beside three that could.
func failing(until time.Time) *Cluster {
	c := cluster(5, 0, workers("small", "small", "small")...)
	c.Groups[0].Failure = &Failure{OutOfResources: true, Code: "QuotaExceeded", Message: "12 of 12 vCPUs are in use", Count: 2, Until: until}
	return c
}

// wants compares what was decided.
func wants(t *testing.T, got []Change, err error, code codes.Code, target, forgive int32) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v (%s), want %s", err, status.Code(err), code)
	}
	if err != nil {
		refusal := (*Refusal)(nil)
		if !errors.As(err, &refusal) || len(got) > 0 {
			t.Errorf("%T %v with %v", err, err, got)
		}
		return
	}
	if len(got) != 1 || got[0].Target != target || got[0].Forgive != forgive || got[0].Reason == "" {
		t.Errorf("%+v, want target %d and %d forgiven", got, target, forgive)
	}
}

func TestIncrease(t *testing.T) {
	limited := func(limit int32, c *Cluster) *Cluster {
		c.MaxNodes = limit
		return c
	}
	off := cluster(1, 0, workers("small")...)
	off.Mode = clusterv1.ScalingOff
	up := cluster(1, 0, workers("small")...)
	up.Mode = clusterv1.ScalingUpOnly
	unready := cluster(1, 0, workers("small")...)
	unready.Unready = errors.New("the agent does not answer")
	full := failing(noon.Add(time.Minute))
	full.Groups[0].Failure.OutOfResources = false
	deleting := cluster(1, 0, workers("small", "small")...)
	deleting.Workers[1].Deleting = true
	for name, c := range map[string]struct {
		cluster *Cluster
		delta   int32
		code    codes.Code
		target  int32
		forgive int32
	}{
		"one more":                                {cluster(1, 0, workers("small")...), 1, codes.OK, 2, 0},
		"from zero":                               {cluster(0, 0), 1, codes.OK, 1, 0},
		"up to the most":                          {cluster(1, 0, workers("small")...), 5, codes.OK, 6, 0},
		"beyond the most":                         {cluster(1, 0, workers("small")...), 6, codes.OutOfRange, 0, 0},
		"beyond what fits in a number":            {cluster(6, 0), math.MaxInt32, codes.OutOfRange, 0, 0},
		"by nothing":                              {cluster(1, 0), 0, codes.InvalidArgument, 0, 0},
		"by less than nothing":                    {cluster(1, 0), math.MinInt32, codes.InvalidArgument, 0, 0},
		"while off":                               {off, 1, codes.FailedPrecondition, 0, 0},
		"while machines are only made":            {up, 1, codes.OK, 2, 0},
		"while nothing is known":                  {unready, 1, codes.Unavailable, 0, 0},
		"while the cloud has no more":             {failing(noon.Add(time.Second)), 1, codes.ResourceExhausted, 0, 0},
		"while it failed for another reason":      {full, 1, codes.Unavailable, 0, 0},
		"after a failure":                         {failing(noon), 1, codes.OK, 4, 2},
		"after a failure, to the most":            {failing(noon), 3, codes.OK, 6, 2},
		"after a failure, beyond":                 {failing(noon), 4, codes.OutOfRange, 0, 0},
		"up to the limit of the cluster":          {limited(8, cluster(2, 2, workers("small", "small", "big", "big")...)), 1, codes.OK, 3, 0},
		"beyond the limit of the cluster":         {limited(8, cluster(2, 2, workers("small", "small", "big", "big")...)), 2, codes.ResourceExhausted, 0, 0},
		"targets that are not there yet count":    {limited(8, cluster(2, 3, workers("small", "small")...)), 1, codes.ResourceExhausted, 0, 0},
		"machines that are not gone yet count":    {limited(6, cluster(0, 0, workers("big", "big", "big")...)), 1, codes.ResourceExhausted, 0, 0},
		"a limit that is too low already":         {limited(1, cluster(0, 0)), 1, codes.ResourceExhausted, 0, 0},
		"forgiven machines leave room":            {limited(7, failing(noon)), 1, codes.OK, 4, 2},
		"while one is being deleted":              {deleting, 1, codes.OK, 2, 0},
		"while one is to be deleted, not yet":     {cluster(1, 0, workers("small", "small")...), 1, codes.Unavailable, 0, 0},
		"a limit with no number above that holds": {limited(math.MaxInt32, cluster(1, 4, workers("small")...)), 5, codes.OK, 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Increase(c.cluster, groupID("small"), c.delta, noon)
			wants(t, got, err, c.code, c.target, c.forgive)
		})
	}
	if _, err := Increase(cluster(1, 0), GroupID(other, "small"), 1, noon); status.Code(err) != codes.NotFound {
		t.Errorf("of another cluster: %v", err)
	}
}

func TestBackoffSaysWhyAndUntilWhen(t *testing.T) {
	_, err := Increase(failing(noon.Add(5*time.Minute)), groupID("small"), 1, noon)
	for _, said := range []string{"small", "2026-11-23T12:05:00Z", "QuotaExceeded", "12 of 12 vCPUs"} {
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%v does not say %s", err, said)
		}
	}
}

func TestDecrease(t *testing.T) {
	making := cluster(3, 0, workers("small", "small", "small")...)
	making.Workers[2].Node, making.Workers[2].ProviderID, making.Busy = "", "", true
	pair := cluster(5, 0, workers("small", "small", "small")...)
	pair.Workers[2].Node, pair.Workers[2].ProviderID, pair.Busy = "", "", true
	leaving := cluster(2, 0, workers("small", "small")...)
	leaving.Workers[1].Deleting = true
	unready := cluster(3, 0)
	unready.Unready = errors.New("nothing is known")
	off := cluster(3, 0, workers("small")...)
	off.Mode = clusterv1.ScalingOff
	failed := failing(noon)
	failed.Groups[0].Target = 6 // and one is on its way
	for name, c := range map[string]struct {
		cluster *Cluster
		delta   int32
		code    codes.Code
		target  int32
		forgive int32
	}{
		"one that does not come":                   {cluster(3, 0, workers("small", "small")...), -1, codes.OK, 2, 0},
		"all that do not come":                     {cluster(3, 0), -3, codes.OK, 0, 0},
		"never below what exists":                  {cluster(3, 0, workers("small", "small")...), -2, codes.OK, 2, 0},
		"whatever is asked":                        {cluster(3, 0, workers("small", "small")...), math.MinInt32, codes.OK, 2, 0},
		"nothing to give up":                       {cluster(2, 0, workers("small", "small")...), -1, codes.FailedPrecondition, 0, 0},
		"those that are being made":                {making, -1, codes.FailedPrecondition, 0, 0},
		"beside one that is being made":            {pair, -3, codes.OK, 3, 0},
		"of those that are deleted, another comes": {leaving, -1, codes.OK, 1, 0},
		"by nothing":                               {cluster(3, 0), 0, codes.InvalidArgument, 0, 0},
		"by more":                                  {cluster(3, 0), 1, codes.InvalidArgument, 0, 0},
		"while nothing is known":                   {unready, -1, codes.Unavailable, 0, 0},
		"while off, what has begun is given up":    {off, -1, codes.OK, 2, 0},
		"one on its way, before one that failed":   {failed, -1, codes.OK, 5, 0},
		"and then those that failed":               {failed, -2, codes.OK, 4, 1},
		"all of them":                              {failed, -3, codes.OK, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decrease(c.cluster, groupID("small"), c.delta)
			wants(t, got, err, c.code, c.target, c.forgive)
		})
	}
	if _, err := Decrease(cluster(1, 0), "small", -1); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown group: %v", err)
	}
}

func TestDecisionsChangeNothing(t *testing.T) {
	c, same := failing(noon), failing(noon)
	_, _ = Increase(c, groupID("small"), 1, noon)
	_, _ = Decrease(c, groupID("small"), -1)
	_, _ = Delete(c, groupID("small"), append(nodes(c, 2), Node{Name: placeholder(groupID("small"), 0)}))
	Instances(c, groupID("small"))
	if !reflect.DeepEqual(c, same) {
		t.Errorf("%+v", c)
	}
}
