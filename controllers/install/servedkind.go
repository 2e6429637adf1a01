package install

import (
	"context"
	"encoding/json"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// ServedKind is what differs for the objects of a kind that a stack serves. Each object is
// reconciled as a KsctlInstall that does not exist in the cluster. KsctlRemoves are not for it, and
// no other install takes over an object from it.
type ServedKind struct {
	// Kind is the kind of owner keys: Kind.group.
	Kind string
	// Artifact returns the artifact that an object uses.
	Artifact func(ctx context.Context, in *appsv1.KsctlInstall) (artifact.Artifact, error)
	// MayUse reports whether objects of an install may be in a namespace.
	MayUse func(in *appsv1.KsctlInstall, namespace string) bool
	// MayContain returns the kinds of a cycle that an object of a kind, as Kind.group, in the stack
	// would close; nil if there is none.
	MayContain func(ctx context.Context, kind string) ([]string, error)
	// Secret returns the data of a Secret of an install that exists in memory only, as that named
	// stacks.SensitiveFields; nil for others.
	Secret func(in *appsv1.KsctlInstall, name string) map[string][]byte
	// Report returns the fields of an object of an install that the status reports, see
	// live.ReportAnnotation.
	Report func(in *appsv1.KsctlInstall, ref stacks.Ref) string
}

// References returns what an install uses: ConfigMaps, Secrets and the service account as values of
// reconcile.IndexValue, and the id of its KsctlCluster. KsctlInstalls have field indexes of them.
func (s *Steps) References(in *appsv1.KsctlInstall) (out []string) {
	indexes := installIndexes(s.DefaultServiceAccount)
	for _, name := range []string{referencedConfigsIndex, serviceAccountIndex, clusterRefIndex} {
		out = append(out, indexes[name](in)...)
	}
	return out
}

// Reported returns the fields of the objects of an install that its status reports, as JSON.
func (s *Steps) Reported(in *appsv1.KsctlInstall) map[stacks.Ref]json.RawMessage {
	out := map[stacks.Ref]json.RawMessage{}
	o, known := s.owners.Peek(client.ObjectKeyFromObject(in), in.UID)
	if !known || o.target == nil {
		return out
	}
	for id := range o.inv.All() {
		ref, err := stacks.ParseID(id)
		if err != nil || s.Served.Report(in, ref) == "" {
			continue
		}
		if l, ok := o.target.Index.Get(ref); ok {
			out[ref] = withResult(l.Reported, l.Result)
		}
	}
	return out
}

// withResult adds the result of a Job to fields, which are a JSON object or nil.
func withResult(fields, result json.RawMessage) json.RawMessage {
	if result == nil {
		return fields
	}
	all := map[string]json.RawMessage{}
	if fields != nil {
		_ = json.Unmarshal(fields, &all) // the index encoded it
	}
	all["result"] = result
	raw, err := json.Marshal(all)
	if err != nil {
		return fields // the result is invalid JSON
	}
	return raw
}

// kind returns the kind of owner keys.
func (s *Steps) kind() string {
	if s.Served != nil {
		return s.Served.Kind
	}
	return appsv1.KsctlInstallKind
}

// selectArtifact returns the artifact that an install uses now, or the outcome without one.
func (s *Steps) selectArtifact(ctx context.Context, o *owner) (artifact.Artifact, reconcile.Outcome) {
	in := o.req.Object
	if s.Served != nil {
		selected, err := s.Served.Artifact(ctx, in)
		if err != nil {
			return selected, content.SourceOutcome(err)
		}
		return selected, nil
	}
	offered, err := s.Content.Artifact(ctx, in.Spec.SourceRef, in.Namespace, in.Spec.Stack, in.Spec.StackVersion)
	if err != nil {
		return offered, content.SourceOutcome(err)
	}
	selected, err := o.selectArtifact(ctx, offered)
	if err != nil {
		return selected, reconcile.Retry{Err: err, Revision: offered.Revision}
	}
	if selected.Digest == "" {
		return selected, o.awaitingRollout("the previously released revision is unknown")
	}
	return selected, nil
}

// recordPlan records what an install desires, for the installs that release objects.
func (s *Steps) recordPlan(o *owner, artifact string, components []plan.Component, provisional bool) {
	if s.Served == nil {
		s.Plans.RecordPlan(o.req.Object, artifact, components, provisional)
	}
}

// recordFailure records that what an install desires of an artifact is unknown.
func (s *Steps) recordFailure(o *owner, artifact string, definite bool) {
	if s.Served == nil {
		s.Plans.RecordFailure(o.req.Object, artifact, o.inv, definite)
	}
}

// refuseObjects refuses the objects that an object of a served kind may not have, before any
// request: those in other namespaces, and those of kinds that contain its own kind.
func (k *ServedKind) refuseObjects(ctx context.Context, in *appsv1.KsctlInstall, components []plan.Component) {
	if k == nil {
		return
	}
	for i := range components {
		for j := range components[i].Items {
			it := &components[i].Items[j]
			if err := k.checkObject(ctx, in, it); err != nil {
				it.ResolveErr = err
			}
		}
	}
}

func (k *ServedKind) checkObject(ctx context.Context, in *appsv1.KsctlInstall, it *plan.Item) error {
	namespace := it.Namespace
	if it.Shared {
		namespace = it.Name
	}
	if namespace != "" && namespace != in.Namespace && !k.MayUse(in, namespace) {
		return plan.NewInvalidObjectError("namespace %s is not the namespace of the %s, and not among "+
			"spec.targetNamespaces of the KsctlKind", namespace, k.Kind)
	}
	cycle, err := k.MayContain(ctx, it.Kind+"."+it.Group)
	if err == nil && cycle != nil {
		err = plan.NewInvalidObjectError("the kinds would contain each other without end: %s",
			strings.Join(cycle, " → "))
	}
	return err
}
