package nodegroup

import (
	"cmp"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// Values of InstanceErrorClass in Cluster Autoscaler.
const (
	errorClassOutOfResources = 1
	errorClassOther          = 99
)

// defaultErrorCode is the code of a failure that has none: Cluster Autoscaler reads "" as no error.
const defaultErrorCode = "MachineFailed"

func (f *Failure) code() string    { return cmp.Or(truncate(f.Code, 64), defaultErrorCode) }
func (f *Failure) message() string { return truncate(f.Message, 200) }

// instances returns the machines of a group that have joined as nodes, and one placeholder for each
// failed machine. It omits machines that have not joined: Cluster Autoscaler would delete and
// re-create them without end. It also omits nodes without a provider ID: Cluster Autoscaler matches
// instances to nodes by provider ID alone, and would treat these healthy nodes as machines that
// never joined.
func (x *index) instances(at int) []*externalgrpc.Instance {
	g := &x.Groups[at]
	_, removing := x.countMachines()
	var out []*externalgrpc.Instance
	for i := range x.Workers {
		w := &x.Workers[i]
		if w.Pool != g.Name || w.Node == "" || w.ProviderID == "" {
			continue
		}
		state := externalgrpc.InstanceStatus_instanceRunning
		if removing[i] {
			state = externalgrpc.InstanceStatus_instanceDeleting
		}
		out = append(out,
			&externalgrpc.Instance{Id: w.ProviderID, Status: &externalgrpc.InstanceStatus{InstanceState: state}})
	}
	for k := range g.failedCount() {
		class := int32(errorClassOther)
		if g.Failure.OutOfResources {
			class = errorClassOutOfResources
		}
		out = append(out, &externalgrpc.Instance{Id: placeholderID(g.ID, k), Status: &externalgrpc.InstanceStatus{
			InstanceState: externalgrpc.InstanceStatus_instanceCreating,
			ErrorInfo: &externalgrpc.InstanceErrorInfo{ErrorCode: g.Failure.code(),
				ErrorMessage: g.Failure.message(), InstanceErrorClass: class},
		}})
	}
	return out
}
