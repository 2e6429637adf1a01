package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/chaos/check"
	"github.com/ksctl/gitops/e2e/harness"
)

// action is something that happens during a run. It is chosen as often as its weight says.
type action struct {
	name   string
	weight int
	do     func(*run, context.Context) error
}

// errNothing is returned by an action that has nothing to act on.
var errNothing = errors.New("nothing to do")

var actions = []action{
	{"change values", 6, (*run).changeValues},
	{"add and remove objects", 6, (*run).changeObjects},
	{"move an object", 5, (*run).moveObject},
	{"swap objects", 4, (*run).swapObjects},
	{"break a stack", 3, (*run).breakStack},
	{"repair a stack", 3, (*run).repairStack},
	{"edit a live object", 4, (*run).editLive},
	{"delete a live object", 4, (*run).deleteLive},
	{"delete an install", 3, (*run).deleteInstall},
	{"create an install again", 3, (*run).restoreInstall},
	{"change dependencies", 3, (*run).changeDependencies},
	{"suspend an install", 2, (*run).suspendInstall},
	{"resume an install", 2, (*run).resumeInstall},
	{"delete an account", 2, (*run).deleteAccount},
	{"create an account", 2, (*run).createAccount},
	{"revoke rights", 2, (*run).revokeRights},
	{"grant rights", 2, (*run).grantRights},
	{"kill the controller", 3, (*run).killController},
	{"kill the API server", 2, (*run).killAPIServer},
	{"kill etcd", 2, (*run).killEtcd},
}

// act runs a random action. It returns false if there was nothing to act on.
func (r *run) act(ctx context.Context) (bool, error) {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := r.random.IntN(total)
	i := slices.IndexFunc(actions, func(a action) bool { at -= a.weight; return at < 0 })
	err := actions[i].do(r, ctx)
	if errors.Is(err, errNothing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", actions[i].name, err)
	}
	r.faults[actions[i].name]++
	return true, nil
}

// any returns a random install for which a condition is true.
func (r *run) any(is func(*install) bool) (*install, error) {
	var all []*install
	for _, in := range r.installs {
		if is(in) {
			all = append(all, in)
		}
	}
	if len(all) == 0 {
		return nil, errNothing
	}
	return all[r.random.IntN(len(all))], nil
}

func existing(in *install) bool { return !in.deleted }

func (r *run) changeValues(ctx context.Context) error {
	in, err := r.any(existing)
	if err != nil {
		return err
	}
	for _, o := range in.sorted() {
		if r.random.IntN(2) == 0 {
			in.objects[o] = r.value()
		}
	}
	r.logf("%s: other values", in.name)
	return r.commit(ctx, in.repository)
}

func (r *run) changeObjects(ctx context.Context) error {
	in, err := r.any(existing)
	if err != nil {
		return err
	}
	if o, ok := r.pick(in); ok {
		r.assign(o, nil, "")
		r.logf("%s: without %s", in.name, o)
	}
	for range r.random.IntN(3) {
		r.addObject(in)
	}
	return r.commit(ctx, in.repository)
}

// pair returns two installs of a namespace, each with an object.
func (r *run) pair() (a, b *install, oa, ob check.Object, err error) {
	if a, err = r.any(existing); err != nil {
		return
	}
	b, err = r.any(func(in *install) bool { return !in.deleted && in != a && in.namespace == a.namespace })
	if err != nil {
		return
	}
	var okA, okB bool
	oa, okA = r.pick(a)
	ob, okB = r.pick(b)
	if !okA || !okB {
		err = errNothing
	}
	return
}

func (r *run) moveObject(ctx context.Context) error {
	a, b, o, _, err := r.pair()
	if err != nil {
		return err
	}
	r.assign(o, b, r.value())
	r.logf("%s moves from %s to %s", o, a.name, b.name)
	return r.commitBoth(ctx, a, b)
}

func (r *run) swapObjects(ctx context.Context) error {
	a, b, oa, ob, err := r.pair()
	if err != nil {
		return err
	}
	r.assign(oa, b, r.value())
	r.assign(ob, a, r.value())
	r.logf("%s of %s and %s of %s are swapped", oa, a.name, ob, b.name)
	return r.commitBoth(ctx, a, b)
}

// commitBoth commits the repositories of two installs, in random order.
func (r *run) commitBoth(ctx context.Context, a, b *install) error {
	if r.random.IntN(2) == 0 {
		a, b = b, a
	}
	if err := r.commit(ctx, a.repository); err != nil || a.repository == b.repository {
		return err
	}
	return r.commit(ctx, b.repository)
}

func (r *run) breakStack(ctx context.Context) error {
	in, err := r.any(func(in *install) bool { return !in.broken })
	if err != nil {
		return err
	}
	in.broken = true
	r.logf("%s: does not render", in.name)
	return r.commit(ctx, in.repository)
}

func (r *run) repairStack(ctx context.Context) error {
	in, err := r.any(func(in *install) bool { return in.broken })
	if err != nil {
		return err
	}
	in.broken = false
	r.logf("%s: renders again", in.name)
	return r.commit(ctx, in.repository)
}

// live returns the live object of a random desired one.
func (r *run) live() (*unstructured.Unstructured, error) {
	in, err := r.any(existing)
	if err != nil {
		return nil, err
	}
	all := in.sorted()
	o := all[r.random.IntN(len(all))]
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	if o.Kind == "Role" || o.Kind == "ClusterRole" {
		u.SetAPIVersion("rbac.authorization.k8s.io/v1")
	}
	u.SetKind(o.Kind)
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	return u, nil
}

func (r *run) editLive(ctx context.Context) error {
	u, err := r.live()
	if err != nil {
		return err
	}
	patch := `{"metadata":{"annotations":{"value":"edited"}}}`
	switch u.GetKind() {
	case "ConfigMap":
		patch = `{"data":{"value":"edited"}}`
	case "Service":
		patch = `{"spec":{"selector":{"value":"edited"}}}`
	}
	r.logf("%s %s is edited", u.GetKind(), u.GetName())
	return retry(ctx, "editing an object", func() error {
		return client.IgnoreNotFound(r.client().
			Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)),
				client.FieldOwner("somebody")))
	})
}

func (r *run) deleteLive(ctx context.Context) error {
	u, err := r.live()
	if err != nil {
		return err
	}
	r.logf("%s %s is deleted", u.GetKind(), u.GetName())
	return r.delete(ctx, u)
}

func (r *run) delete(ctx context.Context, o client.Object) error {
	return retry(ctx, "deleting an object", func() error { return client.IgnoreNotFound(r.client().Delete(ctx, o)) })
}

func (r *run) deleteInstall(ctx context.Context) error {
	isDependency := func(in *install) bool {
		return slices.ContainsFunc(r.installs, func(x *install) bool {
			return !x.deleted && slices.Contains(x.dependsOn, in)
		})
	}
	in, err := r.any(func(in *install) bool { return !in.deleted && !isDependency(in) })
	if err != nil {
		return err
	}
	in.deleted = true
	r.logf("%s is deleted", in.name)
	return r.delete(ctx, &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: in.name}})
}

// restoreInstall creates a deleted install again once it is gone.
func (r *run) restoreInstall(ctx context.Context) error {
	in, err := r.any(func(in *install) bool {
		return in.deleted && !slices.ContainsFunc(in.dependsOn, func(d *install) bool { return d.deleted })
	})
	if err != nil {
		return err
	}
	var x appsv1.KsctlInstall
	err = retry(ctx, "reading an install", func() error {
		return client.IgnoreNotFound(r.client().Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: in.name}, &x))
	})
	if err != nil {
		return err
	}
	if x.UID != "" {
		return errNothing // its removal is in progress
	}
	in.deleted, in.suspended = false, false
	r.logf("%s is created again", in.name)
	return r.createInstall(ctx, in)
}

func (r *run) changeDependencies(ctx context.Context) error {
	in, err := r.any(existing)
	if err != nil {
		return err
	}
	i := slices.Index(r.installs, in)
	in.dependsOn = nil
	if i > 0 && r.random.IntN(2) == 0 {
		if d := r.installs[r.random.IntN(i)]; !d.deleted {
			in.dependsOn = []*install{d}
		}
	}
	r.logf("%s: %d dependencies", in.name, len(in.dependsOn))
	return r.patchInstall(ctx, in)
}

// patchInstall writes the dependencies of an install, and whether it is suspended.
func (r *run) patchInstall(ctx context.Context, in *install) error {
	return retry(ctx, "changing an install", func() error {
		var x appsv1.KsctlInstall
		if err := r.client().Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: in.name}, &x); err != nil {
			return client.IgnoreNotFound(err)
		}
		x.Spec.DependsOn, x.Spec.Suspend = dependencies(in), in.suspended
		return r.client().Update(ctx, &x)
	})
}

func (r *run) suspendInstall(ctx context.Context) error {
	in, err := r.any(func(in *install) bool { return !in.deleted && !in.suspended })
	if err != nil {
		return err
	}
	in.suspended = true
	r.logf("%s is suspended", in.name)
	return r.patchInstall(ctx, in)
}

func (r *run) resumeInstall(ctx context.Context) error {
	in, err := r.any(func(in *install) bool { return in.suspended })
	if err != nil {
		return err
	}
	in.suspended = false
	r.logf("%s is resumed", in.name)
	return r.patchInstall(ctx, in)
}

// in returns a random namespace that is, or is not, in a set.
func (r *run) in(set map[string]bool, is bool) (string, error) {
	all := slices.DeleteFunc(r.namespaces(), func(ns string) bool { return set[ns] != is })
	if len(all) == 0 {
		return "", errNothing
	}
	return all[r.random.IntN(len(all))], nil
}

func (r *run) deleteAccount(ctx context.Context) error {
	ns, err := r.in(r.lost, false)
	if err != nil {
		return err
	}
	r.lost[ns] = true
	r.logf("%s: the account is deleted", ns)
	return r.delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: harness.Deployer}})
}

func (r *run) createAccount(ctx context.Context) error {
	ns, err := r.in(r.lost, true)
	if err != nil {
		return err
	}
	delete(r.lost, ns)
	r.logf("%s: the account is created", ns)
	return r.create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: harness.Deployer}})
}

func (r *run) create(ctx context.Context, o client.Object) error {
	return retry(ctx, "creating an object", func() error {
		o.SetResourceVersion("")
		if err := r.client().Create(ctx, o); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

func binding(ns string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + harness.Deployer},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: harness.Deployer}}}
}

func (r *run) revokeRights(ctx context.Context) error {
	ns, err := r.in(r.denied, false)
	if err != nil {
		return err
	}
	r.denied[ns] = true
	r.logf("%s: the rights are revoked", ns)
	return r.delete(ctx, binding(ns))
}

func (r *run) grantRights(ctx context.Context) error {
	ns, err := r.in(r.denied, true)
	if err != nil {
		return err
	}
	delete(r.denied, ns)
	r.logf("%s: the rights are granted", ns)
	return r.create(ctx, binding(ns))
}

func (r *run) killController(ctx context.Context) error {
	r.logf("the controller is killed")
	r.process.Kill()
	r.recordLog()
	r.pause(ctx, time.Second)
	return r.startController(ctx)
}

func (r *run) killAPIServer(ctx context.Context) error {
	r.logf("the API server is killed")
	if err := r.h.ControlPlane.KillAPIServer(); err != nil {
		return err
	}
	r.pause(ctx, 3*time.Second)
	return r.h.ControlPlane.StartAPIServer(ctx)
}

func (r *run) killEtcd(ctx context.Context) error {
	r.logf("etcd is killed")
	if err := r.h.ControlPlane.KillEtcd(); err != nil {
		return err
	}
	r.pause(ctx, 3*time.Second)
	return r.h.ControlPlane.StartEtcd(ctx)
}

// pause waits for a random time.
func (r *run) pause(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r.random.Int64N(int64(most)))):
	}
}

// heal undoes all faults: what is desired can be reached now.
func (r *run) heal(ctx context.Context) error {
	for _, in := range r.installs {
		in.broken = false
		if in.suspended {
			in.suspended = false
			if err := r.patchInstall(ctx, in); err != nil {
				return err
			}
		}
	}
	for i := range r.repos {
		if err := r.commit(ctx, i); err != nil {
			return err
		}
	}
	for ns := range r.lost {
		if err := r.create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: harness.Deployer}}); err != nil {
			return err
		}
	}
	for ns := range r.denied {
		if err := r.create(ctx, binding(ns)); err != nil {
			return err
		}
	}
	return nil
}
