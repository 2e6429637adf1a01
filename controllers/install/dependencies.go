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
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks/readyexpr"
)

// Watched says when objects change that installs depend on.
type Watched interface {
	Use(user types.NamespacedName, targets []dependency.Target)
	Version(t dependency.Target) (version string, known bool)
}

// DependencyError says what is wrong with a dependency, so that only a change of
// the specs involved helps.
type DependencyError struct {
	Reason, Message string
}

func (e *DependencyError) Error() string { return e.Message }

// question is what is asked of an object that an install depends on: one may be
// named twice, with other words for what is ready.
type question struct {
	target dependency.Target
	expr   string
}

// verdict is the answer, as of a version and an account.
type verdict struct {
	version, account string
	// not says why it is not ready; empty when it is.
	not string
}

// dependencies says which dependencies are not ready, and why.
func (s *Steps) dependencies(ctx context.Context, o *owner, c *engine.Client) ([]string, error) {
	in := o.req.Object
	key := client.ObjectKeyFromObject(in)
	path, err := s.path(ctx, in, key, dependencyNames)
	if err != nil {
		return nil, err
	}
	if path != nil {
		return nil, &DependencyError{Reason: DependencyCycleReason, Message: "the installs depend on each other: " + strings.Join(path, " → ")}
	}
	var not []string
	var targets []dependency.Target
	verdicts := map[question]verdict{}
	for i := range in.Spec.DependsOn {
		d := &in.Spec.DependsOn[i]
		name := dependencyName(in, d)
		if s.Content.Sources.NoCrossNamespace && name.Namespace != in.Namespace {
			return nil, &DependencyError{Reason: string(sourceref.AccessDenied),
				Message: fmt.Sprintf("dependsOn[%d]: namespace %s: references across namespaces are not allowed here (--no-cross-namespace-refs)", i, name.Namespace)}
		}
		var why string
		var err error
		if d.OfInstall() && d.ReadyExpr == "" {
			why, err = s.installNotReady(ctx, name)
		} else {
			why, err = s.objectNotReady(ctx, o, c, d, name, func(q question, v verdict) {
				if !slices.Contains(targets, q.target) {
					targets = append(targets, q.target)
				}
				verdicts[q] = v
			})
		}
		if err != nil {
			return nil, fmt.Errorf("dependsOn[%d]: %w", i, err)
		}
		if why != "" {
			not = append(not, why)
		}
	}
	o.verdicts = verdicts
	s.Depends.Use(key, targets)
	return not, nil
}

func dependencyName(in *appsv1.KsctlInstall, d *appsv1.Dependency) types.NamespacedName {
	ns := d.Namespace
	if ns == "" {
		ns = in.Namespace
	}
	return types.NamespacedName{Namespace: ns, Name: d.Name}
}

// installNotReady says why another install is not ready; empty when it is.
func (s *Steps) installNotReady(ctx context.Context, name types.NamespacedName) (string, error) {
	var in appsv1.KsctlInstall
	err := s.Client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("KsctlInstall %s does not exist", name), nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case in.DeletionTimestamp != nil:
		return fmt.Sprintf("KsctlInstall %s is being removed", name), nil
	case removedWhole(&in):
		return fmt.Sprintf("KsctlInstall %s is not installed: %s", name, bounded(readyMessage(&in), maxDependencyMessage)), nil
	case isReady(&in):
		return "", nil
	case in.Spec.Suspend:
		return fmt.Sprintf("KsctlInstall %s is not ready, and suspended: resume it", name), nil
	}
	for _, c := range in.Status.Conditions {
		if c.Type == appsv1.ReadyCondition && c.ObservedGeneration == in.Generation && c.Status == metav1.ConditionFalse {
			return fmt.Sprintf("KsctlInstall %s is not ready: %s", name, bounded(c.Message, maxDependencyMessage)), nil
		}
	}
	return fmt.Sprintf("KsctlInstall %s is not ready yet", name), nil
}

// maxDependencyMessage bounds what is repeated of another object's message, in bytes.
const maxDependencyMessage = 256

// objectNotReady says why an object of any kind is not ready; empty when it is.
// It is read with the account's rights, once for each of its versions.
func (s *Steps) objectNotReady(ctx context.Context, o *owner, c *engine.Client, d *appsv1.Dependency, name types.NamespacedName,
	use func(question, verdict),
) (string, error) {
	if d.ReadyExpr != "" {
		if err := readyexpr.Check(d.ReadyExpr); err != nil {
			return "", &DependencyError{Reason: InvalidDependencyReason, Message: fmt.Sprintf("readyExpr: %v", err)}
		}
	}
	gv, err := schema.ParseGroupVersion(d.APIVersion)
	if err != nil {
		return "", &DependencyError{Reason: InvalidDependencyReason, Message: err.Error()}
	}
	kind := d.Kind
	if d.OfInstall() {
		gv, kind = appsv1.GroupVersion, Kind
	}
	m, err := s.Targets.Local.Discovery.Resolve(ctx, gv.Group, gv.Version, kind)
	var unserved *engine.NotServedError
	if errors.As(err, &unserved) {
		return fmt.Sprintf("%s %s: %v", kind, name, unserved), nil
	}
	if err != nil {
		return "", err
	}
	t := dependency.At(m, name)
	if t.Namespace == "" && d.Namespace != "" {
		return "", &DependencyError{Reason: InvalidDependencyReason,
			Message: fmt.Sprintf("%s lives in no namespace: take namespace %q out", d.Kind, d.Namespace)}
	}
	q := question{target: t, expr: d.ReadyExpr}
	v, err := s.judgeTarget(ctx, o, c, q, kind)
	if err != nil {
		return "", err
	}
	use(q, v)
	return v.not, nil
}

// judgeTarget looks at a target again only when it changed, or the account did.
func (s *Steps) judgeTarget(ctx context.Context, o *owner, c *engine.Client, q question, kind string) (verdict, error) {
	account, t := s.account(o.req.Object), q.target
	version, known := s.Depends.Version(t)
	if v, seen := o.verdicts[q]; seen && v.account == account && (!known || v.version == version) {
		return v, nil
	}
	what := fmt.Sprintf("%s %s", kind, strings.TrimPrefix(t.String(), "/"))
	u, err := c.Resource(t.Resource).Namespace(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return verdict{version: "", account: account, not: what + " does not exist"}, nil
	case apierrors.IsForbidden(err):
		return verdict{}, fmt.Errorf("%s: the account of the install may not get it: %w", what, err)
	case err != nil:
		return verdict{}, err
	}
	v := verdict{version: u.GetResourceVersion(), account: account}
	if ready, why := live.Judge(u, q.expr); ready != live.Current {
		v.not = fmt.Sprintf("%s is %s: %s", what, ready, why)
	}
	return v, nil
}

// dependencyNames are the installs that an install depends on.
func dependencyNames(in *appsv1.KsctlInstall) []types.NamespacedName {
	var out []types.NamespacedName
	for i := range in.Spec.DependsOn {
		if d := &in.Spec.DependsOn[i]; d.OfInstall() {
			out = append(out, dependencyName(in, d))
		}
	}
	return out
}

func dependencyOutcome(err error, revision string) reconcile.Outcome {
	var wrong *DependencyError
	if errors.As(err, &wrong) {
		return reconcile.Stalled{Err: err, Reason: wrong.Reason, Revision: revision}
	}
	return reconcile.Retry{Err: err, Reason: fluxmeta.DependencyNotReadyReason, Revision: revision}
}

// blocked is the outcome of an install that waits for what it depends on. That
// has a timeout of its own.
func blocked(on []string, revision string) reconcile.Outcome {
	return reconcile.Waiting{On: "waits for " + list(on), Reason: fluxmeta.DependencyNotReadyReason, Revision: revision}
}

// isBlocked is true when something is not sent because of a dependency.
func isBlocked(rep *engine.Report) bool {
	for _, c := range rep.Plan.Components {
		if c.Blocked {
			return true
		}
	}
	return false
}
