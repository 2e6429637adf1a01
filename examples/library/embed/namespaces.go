package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// stackLabel is the label of a namespace that names its stack.
const stackLabel = "example.com/stack"

// installLabels are the labels of the installs that this program creates. It reconciles only
// installs with these labels.
var installLabels = labels.Set{"example.com/made-by": "library"}

// namespaces is the reconciler of namespaces.
type namespaces struct {
	client  client.Client
	options options
}

func addNamespaces(mgr ctrl.Manager, o options) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Namespace{}).
		Complete(&namespaces{client: mgr.GetClient(), options: o})
}

// Reconcile implements reconcile.Reconciler. It creates the install for the label of a namespace.
func (n *namespaces) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var ns corev1.Namespace
	if err := n.client.Get(ctx, req.NamespacedName, &ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	stack := ns.Labels[stackLabel]
	if stack == "" || ns.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	in := &appsv1.KsctlInstall{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: stack, Labels: installLabels},
		Spec: appsv1.KsctlInstallSpec{
			SourceRef: appsv1.SourceRef{Kind: n.options.sourceKind, Name: n.options.source},
			Path:      "./stacks",
			Stack:     stack,
		},
	}
	return ctrl.Result{}, client.IgnoreAlreadyExists(n.client.Create(ctx, in))
}
