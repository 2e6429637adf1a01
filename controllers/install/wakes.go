package install

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/depend"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/sourceref"
	"github.com/ksctl/gitops/stacks/chart"
)

// Fields by which installs are found.
const (
	bySource   = "spec.sourceRef"
	byValues   = "what is read"
	byAccount  = "spec.serviceAccountName"
	byUnserved = "waits for a kind"
	// byDependency are the installs that depend on one, and those that depend on objects.
	byDependency = "spec.dependsOn"
	onObjects    = "objects"
	// byTakeOver are the installs that take over from one, in its namespace.
	byTakeOver = "spec.takeOver"
	// byInstallRef are the KsctlRemoves that name an install, in its namespace.
	byInstallRef = "spec.installRef of an install"
)

// wakes finds the installs that an event concerns.
type wakes struct {
	client client.Reader
	setup  *Setup
	queue  reconcile.Queue
}

func (w *wakes) index(ctx context.Context, ix client.FieldIndexer) error {
	fields := map[string]func(*appsv1.KsctlInstall) []string{
		bySource: func(in *appsv1.KsctlInstall) []string {
			return []string{sourceField(in)}
		},
		byValues: func(in *appsv1.KsctlInstall) (out []string) {
			for _, v := range in.Spec.ValuesFrom {
				out = append(out, reconcile.FieldValue(v.Kind, in.Namespace, v.Name))
			}
			for i := range in.Spec.Charts {
				for _, name := range chart.SecretNames(&in.Spec.Charts[i]) {
					out = append(out, reconcile.FieldValue("Secret", in.Namespace, name))
				}
			}
			return out
		},
		byAccount: func(in *appsv1.KsctlInstall) []string {
			name := in.Spec.ServiceAccountName
			if name == "" {
				name = w.setup.DefaultServiceAccount
			}
			return []string{reconcile.FieldValue("ServiceAccount", in.Namespace, name)}
		},
		byDependency: func(in *appsv1.KsctlInstall) (out []string) {
			for _, d := range dependencyNames(in) {
				out = append(out, reconcile.FieldValue(Kind, d.Namespace, d.Name))
			}
			if len(depend.Objects(in)) > 0 {
				out = append(out, onObjects)
			}
			return out
		},
		byTakeOver: takesOver,
		byUnserved: func(in *appsv1.KsctlInstall) []string {
			if !isReady(in) || unpublished(in) {
				return []string{"true"}
			}
			return nil
		},
	}
	err := ix.IndexField(ctx, &appsv1.KsctlRemove{}, byInstallRef, func(o client.Object) []string {
		if ref := o.(*appsv1.KsctlRemove).Spec.InstallRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index of KsctlRemove: %w", err)
	}
	for field, values := range fields {
		err := ix.IndexField(ctx, &appsv1.KsctlInstall{}, field, func(o client.Object) []string {
			return values(o.(*appsv1.KsctlInstall))
		})
		if err != nil {
			return fmt.Errorf("index %q of %s: %w", field, Kind, err)
		}
	}
	return nil
}

// takesOver names the install that one takes over from.
func takesOver(in *appsv1.KsctlInstall) []string {
	if t := in.Spec.TakeOver; t != nil {
		return []string{t.Name}
	}
	return nil
}

func isReady(in *appsv1.KsctlInstall) bool {
	for _, c := range in.Status.Conditions {
		if c.Type == appsv1.ReadyCondition {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == in.Generation
		}
	}
	return false
}

// installs wakes the installs whose field names an object of a kind.
func (w *wakes) installs(field, kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		return w.find(ctx, field, reconcile.FieldValue(kind, o.GetNamespace(), o.GetName()))
	})
}

// published wakes the install that an ExternalArtifact is of, or would be.
func (w *wakes) published() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		var in appsv1.KsctlInstall
		name := client.ObjectKeyFromObject(o)
		if err := w.client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy); err != nil || in.Spec.Publish == nil {
			return nil
		}
		return []crreconcile.Request{request(name)}
	})
}

func (w *wakes) find(ctx context.Context, field, value string) []crreconcile.Request {
	return reconcile.Find(ctx, w.client, &appsv1.KsctlInstallList{}, nil, client.MatchingFields{field: value})
}

// unserved wakes the installs that are not ready: one may wait for the kind
// that a CustomResourceDefinition or an APIService brought.
func (w *wakes) unserved(sources *sourceref.Watches) handler.EventHandler {
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		w.setup.KindsChanged(o.GetName())
		if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
			sources.Changed()
		}
		return w.find(ctx, byUnserved, "true")
	})
	// What was there at the start is one change: who asks after the first of them
	// is told of all.
	var listed atomic.Bool
	create := func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
		switch {
		case !e.IsInInitialList:
			h.Create(ctx, e, q)
		case !listed.Swap(true):
			w.setup.KindsListed()
			sources.Changed()
		}
	}
	return handler.Funcs{CreateFunc: create, UpdateFunc: h.Update, DeleteFunc: h.Delete, GenericFunc: h.Generic}
}

// wakeUnready wakes the installs that are not ready without an event.
func (w *wakes) wakeUnready(ctx context.Context) {
	w.queue.Add(w.find(ctx, byUnserved, "true")...)
}

// liveObjects wakes the owner of objects that changed.
func (w *wakes) liveObjects(ctx context.Context, queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	if err := w.queue.Start(ctx, queue); err != nil {
		return err
	}
	stop := w.setup.Index.Subscribe(func(ownerKey string) {
		k, ok := engine.ParseOwnerKey(ownerKey)
		if ok && k.Kind == Kind && k.Installation == w.setup.Installation {
			queue.Add(crreconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
		}
	})
	context.AfterFunc(ctx, stop)
	wake := func(install types.NamespacedName) { queue.Add(request(install)) }
	w.setup.Depends.Subscribe(wake)
	w.setup.Plans.Subscribe(wake)
	return nil
}
