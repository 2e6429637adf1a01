package nodegroup

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// formatInstances formats instances as text.
func formatInstances(all []*externalgrpc.Instance) []string {
	var out []string
	for _, i := range all {
		s := fmt.Sprintf("%s %s", i.GetId(), i.GetStatus().GetInstanceState())
		if e := i.GetStatus().GetErrorInfo(); e != nil {
			s += fmt.Sprintf(" %s %d: %s", e.GetErrorCode(), e.GetInstanceErrorClass(), e.GetErrorMessage())
		}
		out = append(out, s)
	}
	return out
}

// instances returns the instances of a group; nil if there is no such group.
func instances(c *Cluster, id string) []*externalgrpc.Instance {
	x := newIndex(c)
	at, err := x.group(id)
	if err != nil {
		return nil
	}
	return x.instances(at)
}

// Machines are listed once their node has joined, and failed machines as placeholders with an
// error.
func TestInstances(t *testing.T) {
	c := withFailure(noon)
	c.Workers = append(c.Workers, joinedWorker(3, "big"), joinedWorker(4, "small"), joinedWorker(5, ""),
		joinedWorker(6, "small"))
	withWorker(c, 1, unjoined)
	withWorker(c, 2, func(w *Worker) { w.ProviderID = "" })
	withWorker(c, 4, markDeleting)
	withWorker(c, 6, func(w *Worker) { w.Node = "" }) // has a provider ID but no node
	want := []string{
		"k3s://prod-vm-wp-0-abcde instanceRunning",
		"k3s://prod-vm-wp-4-abcde instanceDeleting",
		"ksctl-failed://team/prod/small/0 instanceCreating QuotaExceeded 1: 12 of 12 vCPUs are in use",
		"ksctl-failed://team/prod/small/1 instanceCreating QuotaExceeded 1: 12 of 12 vCPUs are in use",
	}
	if got := formatInstances(instances(c, groupID("small"))); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if got := instances(c, "team/prod/none"); got != nil {
		t.Errorf("%v", got)
	}
}

// Cluster Autoscaler reads the code "" as no error, and gRPC cannot send a message with invalid
// UTF-8.
func TestAnyFailureCanBeSent(t *testing.T) {
	for _, f := range []Failure{
		{Count: 1},
		{Count: 1, Code: "\xff", Message: "\xff\xfe"},
		{Count: 1, Code: strings.Repeat("ü", 100), Message: "x" + strings.Repeat("ü", 1000)},
	} {
		c := newCluster(1, 0)
		c.Groups[0].Failure = &f
		got := instances(c, groupID("small"))
		if len(got) != 1 {
			t.Fatal(got)
		}
		e := got[0].GetStatus().GetErrorInfo()
		if e.GetErrorCode() == "" || e.GetInstanceErrorClass() != 99 || len(e.GetErrorMessage()) > 200 ||
			!utf8.ValidString(e.GetErrorMessage()) {
			t.Errorf("%+v", e)
		}
		if _, err := proto.Marshal(got[0]); err != nil {
			t.Error(err)
		}
	}
}

// If the state is unspecified, Cluster Autoscaler also drops the error.
func TestEveryInstanceHasAState(t *testing.T) {
	c := withFailure(noon)
	withWorker(c, 2, markDeleting)
	for _, i := range instances(c, groupID("small")) {
		if i.GetStatus().GetInstanceState() == externalgrpc.InstanceStatus_unspecified {
			t.Error(i)
		}
	}
}

func TestParsePlaceholder(t *testing.T) {
	for _, id := range []string{"team/prod/small", "a/b/c"} {
		for _, k := range []int{0, 7, 4999} {
			group, at, ok := parsePlaceholder(Node{ProviderID: placeholderID(id, k)})
			if !ok || group != id || at != k {
				t.Errorf("%s %d: %s %d %t", id, k, group, at, ok)
			}
		}
	}
	for _, id := range []string{"", "ksctl-failed://", "ksctl-failed:///", "ksctl-failed://x", "ksctl-failed://x/+1",
		"ksctl-failed://x/1 ", "ksctl-failed://x/99999999999999999999", "k3s://x/1"} {
		if group, k, ok := parsePlaceholder(Node{Name: id}); ok && (group != "" || k != 0) {
			t.Errorf("%q: parsed as %q %d", id, group, k)
		}
	}
}

// The number of placeholders is bounded by the target.
func TestPlaceholdersAreBoundedByTheTarget(t *testing.T) {
	c := newCluster(2, 0)
	c.Groups[0].Failure = &Failure{Code: "x", Count: 1 << 30}
	if got := instances(c, groupID("small")); len(got) != 2 {
		t.Errorf("%d instances", len(got))
	}
	c.Groups[0].Failure.Count = -1
	if got := instances(c, groupID("small")); len(got) != 0 {
		t.Errorf("%d instances", len(got))
	}
}
