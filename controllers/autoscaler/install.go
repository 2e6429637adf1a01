package autoscaler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/pki"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// OwnerAnnotation is an annotation of the Secret with Cluster Autoscaler's client certificate. Its
// value is <namespace>/<name> of the KsctlAutoScaler.
const OwnerAnnotation = "cluster.ksctl.com/autoscaler-of"

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// autoscalerHealth is the observed state of Cluster Autoscaler.
type autoscalerHealth struct {
	// servingErr is why it cannot be served, installErr why it is not installed, healthErr why it
	// is unhealthy; nil if there is no problem. lastRequest is the time of its last request.
	servingErr, installErr, healthErr error
	lastRequest                       time.Time
	// expected is true if it should run and poll. pollDeadline is the time by which
	// it must poll.
	expected     bool
	pollDeadline time.Time
	// warnings are messages for users about its version.
	warnings []string
	// renewAt is the time at which its certificate must be renewed.
	renewAt time.Time
}

// installAutoscaler issues the client certificate of Cluster Autoscaler, installs it, and reads its
// health.
func (s *Steps) installAutoscaler(ctx context.Context, obj *clusterv1.KsctlAutoScaler, localClient *engine.Client,
	seen *observation) (autoscalerHealth, error) {
	var out autoscalerHealth
	if out.servingErr = s.Certificates.ServingError(); out.servingErr != nil {
		return out, nil //nolint:nilerr // the status reports the error
	}
	out.lastRequest = s.Published.LastRequest(client.ObjectKeyFromObject(obj))
	if ref := seen.cluster.Spec.KubeConfigRef; ref != nil && ref.Context != "" && settings.InstallRequested(&obj.Spec) {
		out.installErr = reconcile.NewTerminalError(clusterv1.KubeConfigContextReason,
			"KsctlCluster %s selects a kubeconfig context, but Cluster Autoscaler uses the current context: provide "+
				"a kubeconfig with only that context, or set spec.autoscaler.install to false", seen.cluster.Name)
		return out, nil
	}
	version, versionErr := settings.Version(&obj.Spec, seen.cluster.Status.KubernetesVersion)
	if versionErr != nil {
		out.installErr = reconcile.NewTerminalError(clusterv1.NoSuchVersionReason, "%w", versionErr)
		return out, nil //nolint:nilerr // the status reports the error
	}
	in := settings.Inputs{Version: version, Address: s.Certificates.Address,
		KubeConfigSecret: seen.cluster.Status.KubeConfigSecret, KubeConfigKey: seen.cluster.Status.KubeConfigKey,
		ClientSecret: settings.ClientSecretName(obj.Name)}
	in.KubeConfigRevision = s.secretVersion(ctx,
		types.NamespacedName{Namespace: obj.Namespace, Name: in.KubeConfigSecret})
	var err error
	if in.Certificates, out.renewAt, err = s.ensureClientCertificate(ctx, obj, localClient); err != nil {
		return out, err
	}
	out.warnings = settings.Warnings(&obj.Spec, version, seen.cluster.Status.KubernetesVersion)
	want, err := settings.DesiredInstalls(obj, in)
	if err != nil {
		return out, err
	}
	obj.Status.Autoscaler = &clusterv1.AutoscalerStatus{Version: version,
		ConfigHash: settings.ConfigHash(&obj.Spec, in)}
	if settings.InstallRequested(&obj.Spec) {
		obj.Status.Autoscaler.Deployment = settings.DeploymentName(obj.Name)
	} else {
		obj.Status.Autoscaler.Flags = settings.Flags(&obj.Spec, in)
	}
	if out.installErr, err = s.syncInstalls(ctx, obj, want); err != nil {
		return out, err
	}
	if effectiveMode(obj) != clusterv1.ScalingOff {
		out.expected, out.healthErr = true, s.checkHealth(ctx, obj, seen)
	}
	return out, nil
}

func tlsSecretName(obj *clusterv1.KsctlAutoScaler) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.Namespace, Name: settings.ClientSecretName(obj.Name)}
}

// ensureClientCertificate creates the Secret with Cluster Autoscaler's client certificate, or
// renews it.
func (s *Steps) ensureClientCertificate(ctx context.Context, obj *clusterv1.KsctlAutoScaler,
	localClient *engine.Client) (certificates [2][]byte, renewAt time.Time, err error) {
	name := tlsSecretName(obj)
	current, found, err := s.readSecret(ctx, localClient, client.ObjectKeyFromObject(obj), name)
	if err != nil {
		return certificates, renewAt, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if found && current.Annotations[OwnerAnnotation] != ownerName(obj) {
		return certificates, renewAt, reconcile.NewTerminalError(clusterv1.NameTakenReason,
			"Secret %s exists, but is not owned by this KsctlAutoScaler: delete it, or rename the KsctlAutoScaler",
			name)
	}
	authority := s.Certificates.Authority()
	pair, changed, err := authority.EnsureKeyPair(current.Data, pki.ClientSubject(client.ObjectKeyFromObject(obj)),
		s.Clock.Now())
	if err != nil {
		return certificates, renewAt, err
	}
	data := current.Data
	if changed || !found {
		if data, err = authority.KeyPairSecretData(pair); err != nil {
			return certificates, renewAt, err
		}
		if err := writeSecret(ctx, localClient, name, found, data, current, ownerName(obj)); err != nil {
			return certificates, renewAt, err
		}
	}
	return [2][]byte{data[pki.BundleKey], data[pki.CertificateKey]}, pair.RenewAt(), nil
}

// writeSecret creates or updates a Secret. It fails if the Secret has changed since it was read.
func writeSecret(ctx context.Context, c *engine.Client, name types.NamespacedName, found bool, data map[string][]byte,
	current *corev1.Secret, owner string) error {
	if found {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": current.ResourceVersion},
			"data": data})
		if err != nil {
			return err
		}
		if _, err := c.Resource(secretsResource).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType,
			body, metav1.PatchOptions{FieldManager: live.FieldManager}); err != nil {
			return fmt.Errorf("patching Secret %s: %w", name, err)
		}
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{TypeMeta: metav1.TypeMeta{
		APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name,
			Annotations: map[string]string{OwnerAnnotation: owner}}, Type: corev1.SecretTypeTLS, Data: data})
	if err != nil {
		return err
	}
	if _, err := c.Resource(secretsResource).Namespace(name.Namespace).
		Create(ctx, &unstructured.Unstructured{Object: object},
			metav1.CreateOptions{FieldManager: live.FieldManager}); err != nil {
		return fmt.Errorf("creating Secret %s: %w", name, err)
	}
	return nil
}

// syncInstalls creates and updates the KsctlInstalls of Cluster Autoscaler, and deletes those that
// are no longer needed. notReady is why they are not ready; nil if they are.
func (s *Steps) syncInstalls(ctx context.Context, obj *clusterv1.KsctlAutoScaler,
	want []*appsv1.KsctlInstall) (notReady, err error) {
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Name] = true
		reason, err := s.ensureInstall(ctx, obj, w)
		if err != nil {
			return nil, err
		}
		notReady = cmp.Or(notReady, reason)
	}
	_, err = s.deleteInstalls(ctx, obj, wanted)
	return notReady, err
}

// deleteInstalls deletes the KsctlInstalls that the object controls, except those to keep. It
// returns those that still exist.
func (s *Steps) deleteInstalls(ctx context.Context, obj *clusterv1.KsctlAutoScaler,
	keep map[string]bool) (remaining []string, err error) {
	var all appsv1.KsctlInstallList
	err = s.Client.List(ctx, &all, client.InNamespace(obj.Namespace),
		client.MatchingLabels{settings.Label: settings.DeploymentName(obj.Name)})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		x := &all.Items[i]
		if keep[x.Name] || !metav1.IsControlledBy(x, obj) {
			continue
		}
		remaining = append(remaining, "KsctlInstall "+x.Name)
		if x.DeletionTimestamp != nil {
			continue
		}
		if err := s.Client.Delete(ctx, x, client.Preconditions{UID: &x.UID}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("deleting KsctlInstall %s: %w", x.Name, err)
		}
	}
	return remaining, nil
}

// ensureInstall creates or updates one KsctlInstall. notReady is why it is not ready; nil if it is.
func (s *Steps) ensureInstall(ctx context.Context, obj *clusterv1.KsctlAutoScaler,
	want *appsv1.KsctlInstall) (notReady, err error) {
	var current appsv1.KsctlInstall
	err = s.Client.Get(ctx, client.ObjectKeyFromObject(want), &current)
	switch {
	case apierrors.IsNotFound(err):
		err = s.Client.Create(ctx, want, client.FieldOwner(s.FieldOwner))
		current = *want
	case err != nil:
	case !metav1.IsControlledBy(&current, obj):
		return nil, reconcile.NewTerminalError(clusterv1.NameTakenReason,
			"KsctlInstall %s exists, but is not owned by this KsctlAutoScaler: delete it, or rename the "+
				"KsctlAutoScaler", want.Name)
	case !apiequality.Semantic.DeepEqual(current.Spec, want.Spec) ||
		current.Labels[settings.Label] != want.Labels[settings.Label]:
		current.Spec, current.Labels = want.Spec, want.Labels
		err = s.Client.Update(ctx, &current, client.FieldOwner(s.FieldOwner))
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("writing KsctlInstall %s of Cluster Autoscaler: %w", want.Name, err)
	}
	ready := apimeta.FindStatusCondition(current.Status.Conditions, appsv1.ReadyCondition)
	if ready != nil && ready.Status == metav1.ConditionTrue && current.Status.ObservedGeneration == current.Generation {
		return nil, nil
	}
	message := "not reconciled yet"
	if ready != nil {
		message = reconcile.QuotedMessage(current.Status.Conditions)
	}
	return reconcile.NewWaitingError(clusterv1.AutoscalerNotReadyReason,
		appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: appsv1.KsctlInstallKind, Namespace: want.Namespace,
			Name: want.Name}, "KsctlInstall %s is not ready: %s", want.Name, truncate(message)), nil
}

// maxQuotedBytes bounds the messages of other components that are quoted in the status.
const maxQuotedBytes = 256

func truncate(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxQuotedBytes)], "") }
