package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks/readyexpr"
)

// DependencyWatcher watches the objects that installs depend on.
type DependencyWatcher interface {
	// SetDependencies replaces the objects that an install depends on. targets can have an object
	// twice.
	SetDependencies(user types.NamespacedName, targets []dependency.Object)
	// Version returns the resourceVersion of an object. It is empty if the object does not exist.
	// known is false while the watch has no result yet.
	Version(t dependency.Object) (version string, known bool)
	// Subscribe sets the function that is called for each install that depends on a changed object.
	Subscribe(f func(install types.NamespacedName))
}

// readinessCheck identifies a check of an object that an install depends on. spec.dependsOn can
// have the same object twice, with different ready expressions.
type readinessCheck struct {
	object dependency.Object
	expr   string
}

// readinessResult is the result of a readinessCheck. It is valid for one version of the object and
// one service account.
type readinessResult struct {
	version, account string
	// notReady is the reason why the object is not ready. It is empty if the object is ready.
	notReady string
}

// wait is something that an install waits for, with the reason.
type wait struct {
	message string
	on      appsv1.WaitReference
}

// messagesOf returns the reasons of waits.
func messagesOf(waits []wait) (out []string) {
	for _, w := range waits {
		out = append(out, w.message)
	}
	return out
}

// referencesOf returns what waits are for.
func referencesOf(waits []wait) (out []appsv1.WaitReference) {
	for _, w := range waits {
		out = append(out, w.on)
	}
	return out
}

// unmetDependencies returns the dependencies that are not ready, each with the reason.
func (s *Steps) unmetDependencies(ctx context.Context, o *owner, c *engine.Client) ([]wait, error) {
	in := o.req.Object
	key := client.ObjectKeyFromObject(in)
	path, err := s.dependencyPath(ctx, in, key, dependency.Installs)
	if err != nil {
		return nil, err
	}
	if path != nil {
		return nil, reconcile.NewTerminalError(appsv1.DependencyCycleReason, "spec.dependsOn has a cycle: %s",
			strings.Join(path, " → "))
	}
	var unmet []wait
	results := map[readinessCheck]readinessResult{}
	var objects []dependency.Object
	for i := range in.Spec.DependsOn {
		d := &in.Spec.DependsOn[i]
		name := dependency.KeyOf(in, d)
		if s.Content.Sources.NoCrossNamespace && name.Namespace != in.Namespace {
			return nil, reconcile.NewTerminalError(string(sourceref.AccessDenied),
				"spec.dependsOn[%d]: namespace %s: cross-namespace references are not allowed "+
					"(--no-cross-namespace-refs)", i, name.Namespace)
		}
		var reason string
		var err error
		if d.OfInstall() && d.ReadyExpr == "" {
			reason, err = s.installNotReady(ctx, name)
			if s.Served != nil { // a KsctlInstall is enqueued by an index
				objects = append(objects, dependency.Object{NamespacedName: name,
					Resource: appsv1.GroupVersion.WithResource("ksctlinstalls")})
			}
		} else {
			reason, err = s.objectNotReady(ctx, o, c, d, name, results)
		}
		if err != nil {
			return nil, fmt.Errorf("spec.dependsOn[%d]: %w", i, err)
		}
		if reason != "" {
			kind := d.Kind
			if d.OfInstall() {
				kind = appsv1.KsctlInstallKind
			}
			unmet = append(unmet,
				wait{message: reason,
					on: appsv1.WaitReference{Type: appsv1.WaitDependsOn, Kind: kind, Namespace: name.Namespace,
						Name: name.Name}})
		}
	}
	o.readiness = results
	for q := range results {
		objects = append(objects, q.object)
	}
	s.Dependencies.SetDependencies(key, objects)
	return unmet, nil
}

// installNotReady returns the reason why another install is not ready. It is empty if the install
// is ready.
func (s *Steps) installNotReady(ctx context.Context, name types.NamespacedName) (string, error) {
	var in appsv1.KsctlInstall
	err := s.Client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("KsctlInstall %s does not exist", name), nil
	}
	if err != nil {
		return "", err
	}
	ready := handover.ReadyCondition(&in)
	switch {
	case in.DeletionTimestamp != nil:
		return fmt.Sprintf("KsctlInstall %s is being removed", name), nil
	case handover.IsFullyRemoved(&in):
		return fmt.Sprintf("KsctlInstall %s is not installed: %s", name,
			reconcile.Truncate(reconcile.QuotedMessage(in.Status.Conditions), maxDependencyMessage)), nil
	case handover.IsReady(&in):
		return "", nil
	case in.Spec.Suspend:
		return fmt.Sprintf("KsctlInstall %s is suspended and not ready: resume the KsctlInstall", name), nil
	case ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == in.Generation:
		return fmt.Sprintf("KsctlInstall %s is not ready: %s", name,
			reconcile.Truncate(reconcile.QuotedMessage(in.Status.Conditions), maxDependencyMessage)), nil
	}
	return fmt.Sprintf("KsctlInstall %s is not ready yet", name), nil
}

// maxDependencyMessage is the maximum length, in bytes, of a message that is copied from another
// object.
const maxDependencyMessage = 256

// objectNotReady returns the reason why an object of any kind is not ready. It is empty if the
// object is ready. The object is read with the install's service account, once per version. The
// result of the check is added to results.
func (s *Steps) objectNotReady(ctx context.Context, o *owner, c *engine.Client, d *appsv1.Dependency,
	name types.NamespacedName,
	results map[readinessCheck]readinessResult,
) (string, error) {
	if d.ReadyExpr != "" {
		if err := readyexpr.Check(d.ReadyExpr); err != nil {
			return "", reconcile.NewTerminalError(appsv1.InvalidDependencyReason, "readyExpr: %w", err)
		}
	}
	gv, err := schema.ParseGroupVersion(d.APIVersion)
	if err != nil {
		return "", reconcile.NewTerminalError(appsv1.InvalidDependencyReason, "%w", err)
	}
	kind := d.Kind
	if d.OfInstall() {
		gv, kind = appsv1.GroupVersion, appsv1.KsctlInstallKind
	}
	m, err := s.Targets.Local.Discovery.Resolve(ctx, gv.Group, gv.Version, kind)
	var notServed *plan.NotServedError
	if errors.As(err, &notServed) {
		return fmt.Sprintf("%s %s: %v", kind, name, notServed), nil
	}
	if err != nil {
		return "", err
	}
	t := dependency.ObjectOf(m, name)
	if t.Namespace == "" && d.Namespace != "" {
		return "", reconcile.NewTerminalError(appsv1.InvalidDependencyReason,
			"%s is cluster-scoped: remove namespace %q", d.Kind, d.Namespace)
	}
	q := readinessCheck{object: t, expr: d.ReadyExpr}
	v, err := s.evaluateReadiness(ctx, o, c, q, kind)
	if err != nil {
		return "", err
	}
	results[q] = v
	return v.notReady, nil
}

// evaluateReadiness evaluates the readiness of an object. It reads the object again only if its
// version or the service account has changed.
func (s *Steps) evaluateReadiness(ctx context.Context, o *owner, c *engine.Client, q readinessCheck,
	kind string) (readinessResult, error) {
	account, t := s.serviceAccountName(o.req.Object), q.object
	version, known := s.Dependencies.Version(t)
	if v, seen := o.readiness[q]; seen && v.account == account && (!known || v.version == version) {
		return v, nil
	}
	what := fmt.Sprintf("%s %s", kind, strings.TrimPrefix(t.String(), "/"))
	u, err := c.Resource(t.Resource).Namespace(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return readinessResult{account: account, notReady: what + " does not exist"}, nil
	case apierrors.IsForbidden(err):
		return readinessResult{},
			fmt.Errorf("%s: the service account of the install is not allowed to get the object: %w", what, err)
	case err != nil:
		return readinessResult{}, err
	}
	v := readinessResult{version: u.GetResourceVersion(), account: account}
	if ready, why := live.AssessReadiness(u, q.expr); ready != live.Current {
		v.notReady = fmt.Sprintf("%s is %s: %s", what, ready, why)
	}
	return v, nil
}

func dependencyOutcome(err error, revision string) reconcile.Outcome {
	var step *reconcile.StepError
	if errors.As(err, &step) {
		return reconcile.OutcomeOf(err, revision)
	}
	return reconcile.Retry{Err: err, Reason: fluxmeta.DependencyNotReadyReason, Revision: revision}
}

// blockedOutcome is the outcome of an install whose dependencies are not ready. It never times out:
// the dependencies have timeouts of their own.
func blockedOutcome(on []wait, revision string) reconcile.Outcome {
	return reconcile.Waiting{On: "dependencies are not ready: " + reconcile.JoinNames(messagesOf(on)),
		For: referencesOf(on), Reason: fluxmeta.DependencyNotReadyReason, Revision: revision}
}

// anyBlocked reports whether an object is not applied because a dependency is not ready.
func anyBlocked(rep *engine.Report) bool {
	return slices.ContainsFunc(rep.Plan.Components, func(c plan.ComponentState) bool { return c.Blocked })
}
