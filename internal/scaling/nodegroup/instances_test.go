package nodegroup

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// listed are instances as text.
func listed(all []*externalgrpc.Instance) []string {
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

// Rule 4: machines are listed once their node joined, and a machine that could not be made as a
// placeholder with an error.
func TestInstances(t *testing.T) {
	c := failing(noon)
	c.Workers = append(c.Workers, joined(3, "big"), joined(4, "small"), joined(5, ""), joined(6, "small"))
	with(c, 1, unjoined)
	with(c, 2, func(w *Worker) { w.ProviderID = "" })
	with(c, 4, goes)
	with(c, 6, func(w *Worker) { w.Node = "" }) // its machine is known, and no node of it
	want := []string{
		"k3s://prod-vm-wp-0-abcde instanceRunning",
		"k3s://prod-vm-wp-4-abcde instanceDeleting",
		"ksctl-failed://team/prod/small/0 instanceCreating QuotaExceeded 1: 12 of 12 vCPUs are in use",
		"ksctl-failed://team/prod/small/1 instanceCreating QuotaExceeded 1: 12 of 12 vCPUs are in use",
	}
	if got := listed(Instances(c, groupID("small"))); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if got := Instances(c, "team/prod/none"); got != nil {
		t.Errorf("%v", got)
	}
}

// "" would be no error, and a message that is not UTF-8 can't be sent.
func TestAFailureCanAlwaysBeSent(t *testing.T) {
	for _, f := range []Failure{
		{Count: 1},
		{Count: 1, Code: "\xff", Message: "\xff\xfe"},
		{Count: 1, Code: strings.Repeat("ü", 100), Message: "x" + strings.Repeat("ü", 1000)},
	} {
		c := cluster(1, 0)
		c.Groups[0].Failure = &f
		got := Instances(c, groupID("small"))
		if len(got) != 1 {
			t.Fatal(got)
		}
		e := got[0].GetStatus().GetErrorInfo()
		if e.GetErrorCode() == "" || e.GetInstanceErrorClass() != 99 || len(e.GetErrorMessage()) > 200 || !utf8.ValidString(e.GetErrorMessage()) {
			t.Errorf("%+v", e)
		}
		if _, err := proto.Marshal(got[0]); err != nil {
			t.Error(err)
		}
	}
}

// Without a status that is specified, the error is dropped as well.
func TestNoInstanceIsUnspecified(t *testing.T) {
	c := failing(noon)
	with(c, 2, goes)
	for _, i := range Instances(c, groupID("small")) {
		if i.GetStatus().GetInstanceState() == externalgrpc.InstanceStatus_unspecified {
			t.Error(i)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	for _, id := range []string{"team/prod/small", "a/b/c"} {
		for _, k := range []int{0, 7, 4999} {
			group, at, ok := placeholderOf(Node{ProviderID: placeholder(id, k)})
			if !ok || group != id || at != k {
				t.Errorf("%s %d: %s %d %t", id, k, group, at, ok)
			}
		}
	}
	for _, id := range []string{"", "ksctl-failed://", "ksctl-failed:///", "ksctl-failed://x", "ksctl-failed://x/+1", "ksctl-failed://x/1 ", "ksctl-failed://x/99999999999999999999", "k3s://x/1"} {
		if group, k, ok := placeholderOf(Node{Name: id}); ok && (group != "" || k != 0) {
			t.Errorf("%q is %q %d", id, group, k)
		}
	}
}

// More than the target says are not there to be listed.
func TestNoMoreFailedThanTheTarget(t *testing.T) {
	c := cluster(2, 0)
	c.Groups[0].Failure = &Failure{Code: "x", Count: 1 << 30}
	if got := Instances(c, groupID("small")); len(got) != 2 {
		t.Errorf("%d instances", len(got))
	}
	c.Groups[0].Failure.Count = -1
	if got := Instances(c, groupID("small")); len(got) != 0 {
		t.Errorf("%d instances", len(got))
	}
}
