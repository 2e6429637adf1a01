package nodegroup

import (
	"cmp"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// Classes of errors of a machine, as Cluster Autoscaler has them.
const (
	outOfResources = 1
	otherError     = 99
)

// unnamed is the code of a failure without one: "" would say that nothing failed.
const unnamed = "MachineFailed"

func (f *Failure) code() string    { return cmp.Or(cut(f.Code, 64), unnamed) }
func (f *Failure) message() string { return cut(f.Message, 200) }

// Instances are the machines of a group that are nodes, and one for each that could not be
// made. Machines that have not joined are not among them: Cluster Autoscaler would have them
// deleted and made again without end. Neither are nodes without a providerID: it knows nodes by
// that alone, and would take healthy ones for machines that never joined.
func Instances(c *Cluster, id string) []*externalgrpc.Instance {
	x := newIndex(c)
	at, ok := x.groups[id]
	if !ok {
		return nil
	}
	return x.instances(at)
}

func (x *index) instances(at int) []*externalgrpc.Instance {
	g := &x.Groups[at]
	_, leaving := x.standings()
	var out []*externalgrpc.Instance
	for i := range x.Workers {
		w := &x.Workers[i]
		if w.Pool != g.Name || w.Node == "" || w.ProviderID == "" {
			continue
		}
		state := externalgrpc.InstanceStatus_instanceRunning
		if leaving[i] {
			state = externalgrpc.InstanceStatus_instanceDeleting
		}
		out = append(out, &externalgrpc.Instance{Id: w.ProviderID, Status: &externalgrpc.InstanceStatus{InstanceState: state}})
	}
	for k := range g.failed() {
		class := int32(otherError)
		if g.Failure.OutOfResources {
			class = outOfResources
		}
		out = append(out, &externalgrpc.Instance{Id: placeholder(g.ID, k), Status: &externalgrpc.InstanceStatus{
			InstanceState: externalgrpc.InstanceStatus_instanceCreating,
			ErrorInfo:     &externalgrpc.InstanceErrorInfo{ErrorCode: g.Failure.code(), ErrorMessage: g.Failure.message(), InstanceErrorClass: class},
		}})
	}
	return out
}
