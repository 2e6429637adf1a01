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

// stackLabel on a namespace names the stack that it gets.
const stackLabel = "example.com/stack"

// made is the label of the installs that this program makes, and the only ones that it reconciles.
var made = labels.Set{"example.com/made-by": "library"}

// namespaces is the part that is this program's own.
type namespaces struct {
	client  client.Client
	options options
}

func addNamespaces(mgr ctrl.Manager, o options) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Namespace{}).Complete(&namespaces{client: mgr.GetClient(), options: o})
}

// Reconcile implements reconcile.Reconciler: it makes the install that the label asks for.
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
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: stack, Labels: made},
		Spec: appsv1.KsctlInstallSpec{
			SourceRef: appsv1.SourceRef{Kind: n.options.sourceKind, Name: n.options.source},
			Path:      "./stacks",
			Stack:     stack,
		},
	}
	return ctrl.Result{}, client.IgnoreAlreadyExists(n.client.Create(ctx, in))
}
