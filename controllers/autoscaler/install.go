package autoscaler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

// OfAnnotation is on the Secret by which Cluster Autoscaler says who it is: <namespace>/<name> of
// the KsctlAutoScaler.
const OfAnnotation = "cluster.ksctl.com/autoscaler-of"

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// running is how Cluster Autoscaler stands.
type running struct {
	// serving is why it is not answered, installed why it does not run, healthy why it is not
	// well; nil: all is as it should be. asked is when it asked last.
	serving, installed, healthy error
	asked                       time.Time
	// wanted is true where it should run, and ask; silent is when it has not asked for too long.
	wanted bool
	silent time.Time
	// notes are what people should know of its version.
	notes []string
	// renew is when its certificate is renewed.
	renew time.Time
}

// run has Cluster Autoscaler run, and says how it stands.
func (s *Steps) run(ctx context.Context, obj *clusterv1.KsctlAutoScaler, here *engine.Client, seen *sight) (running, error) {
	out, err := s.bring(ctx, obj, here, seen)
	if err == nil {
		s.listen(obj, &out)
	}
	return out, err
}

// bring has it installed.
func (s *Steps) bring(ctx context.Context, obj *clusterv1.KsctlAutoScaler, here *engine.Client, seen *sight) (running, error) {
	var out running
	if out.serving = s.Provider.Serving(); out.serving != nil {
		return out, nil //nolint:nilerr // it is said in the status
	}
	out.asked = s.Published.LastAsked(client.ObjectKeyFromObject(obj))
	if ref := seen.cluster.Spec.KubeConfigRef; ref != nil && ref.Context != "" && settings.Installed(&obj.Spec) {
		out.installed = reconcile.Fail(KubeConfigContextReason, "KsctlCluster %s names a context of its kubeconfig, and Cluster Autoscaler takes the current one: give it a kubeconfig with that context alone, or set spec.autoscaler.install to false", seen.cluster.Name)
		return out, nil
	}
	version, none := settings.Version(specVersion(&obj.Spec), seen.cluster.Status.KubernetesVersion)
	if none != nil {
		out.installed = reconcile.Fail(VersionReason, "%w", none)
		return out, nil //nolint:nilerr // it is said in the status
	}
	in := settings.Inputs{Version: version, Address: s.Provider.Address, KubeConfigSecret: seen.cluster.Status.KubeConfigSecret, KubeConfigKey: seen.cluster.Status.KubeConfigKey,
		ClientSecret: settings.ClientSecretName(obj.Name)}
	in.KubeConfigRevision = s.revision(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: in.KubeConfigSecret})
	var err error
	if in.Certificates, out.renew, err = s.certify(ctx, obj, here); err != nil {
		return out, err
	}
	out.notes = settings.Notes(&obj.Spec, version, seen.cluster.Status.KubernetesVersion)
	want, err := settings.Installs(obj, in)
	if err != nil {
		return out, err
	}
	obj.Status.Autoscaler = &clusterv1.AutoscalerStatus{Version: version, ConfigHash: settings.Hash(&obj.Spec, in)}
	if settings.Installed(&obj.Spec) {
		obj.Status.Autoscaler.Deployment = settings.DeploymentName(obj.Name)
	} else {
		obj.Status.Autoscaler.Flags = settings.Flags(&obj.Spec, in)
	}
	if out.installed, err = s.install(ctx, obj, want); err != nil {
		return out, err
	}
	if mode(obj) != clusterv1.ScalingOff {
		out.wanted, out.healthy = true, s.health(ctx, obj, seen)
	}
	return out, nil
}

func specVersion(spec *clusterv1.KsctlAutoScalerSpec) string {
	if spec.Autoscaler == nil {
		return ""
	}
	return spec.Autoscaler.Version
}

func tlsSecret(obj *clusterv1.KsctlAutoScaler) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.Namespace, Name: settings.ClientSecretName(obj.Name)}
}

// certify keeps the Secret by which Cluster Autoscaler says who it is.
func (s *Steps) certify(ctx context.Context, obj *clusterv1.KsctlAutoScaler, here *engine.Client) (certificates [2][]byte, renew time.Time, err error) {
	name := tlsSecret(obj)
	have, found, err := s.secret(ctx, here, client.ObjectKeyFromObject(obj), name)
	if err != nil {
		return certificates, renew, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if found && have.Annotations[OfAnnotation] != of(obj) {
		return certificates, renew, reconcile.Fail(NameTakenReason, "Secret %s exists, and is not this KsctlAutoScaler's: delete it, or rename the KsctlAutoScaler", name)
	}
	authority := s.Provider.Authority()
	pair, changed, err := authority.Renew(have.Data, pki.Client(client.ObjectKeyFromObject(obj)), s.Clock.Now())
	if err != nil {
		return certificates, renew, err
	}
	data := have.Data
	if changed || !found {
		if data, err = authority.PairData(pair); err != nil {
			return certificates, renew, err
		}
		if err := keep(ctx, here, name, found, data, have, of(obj)); err != nil {
			return certificates, renew, err
		}
	}
	return [2][]byte{data[pki.BundleKey], data[pki.CertificateKey]}, pair.RenewAt(), nil
}

// keep writes a Secret, if nobody has meanwhile.
func keep(ctx context.Context, c *engine.Client, name types.NamespacedName, found bool, data map[string][]byte, have *corev1.Secret, owner string) error {
	if found && maps.EqualFunc(have.Data, data, bytes.Equal) {
		return nil
	}
	if found {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": have.ResourceVersion}, "data": data})
		if err != nil {
			return err
		}
		if _, err := c.Resource(secretsResource).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: live.FieldManager}); err != nil {
			return fmt.Errorf("changing Secret %s: %w", name, err)
		}
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Annotations: map[string]string{OfAnnotation: owner}}, Type: corev1.SecretTypeTLS, Data: data})
	if err != nil {
		return err
	}
	if _, err := c.Resource(secretsResource).Namespace(name.Namespace).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: live.FieldManager}); err != nil {
		return fmt.Errorf("creating Secret %s: %w", name, err)
	}
	return nil
}

// install makes and changes the installs of Cluster Autoscaler, and deletes those that are not
// needed any more. Its first result is why they are not ready.
func (s *Steps) install(ctx context.Context, obj *clusterv1.KsctlAutoScaler, want []*appsv1.KsctlInstall) (notReady, err error) {
	have, err := s.installs(ctx, obj)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Name] = true
		not, err := s.ensure(ctx, obj, w)
		if err != nil {
			return nil, err
		}
		if notReady == nil {
			notReady = not
		}
	}
	for i := range have {
		x := &have[i]
		if wanted[x.Name] || x.DeletionTimestamp != nil {
			continue
		}
		if err := s.Client.Delete(ctx, x, client.Preconditions{UID: &x.UID}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("deleting KsctlInstall %s: %w", x.Name, err)
		}
	}
	return notReady, nil
}

// installs are those that the object has made.
func (s *Steps) installs(ctx context.Context, obj *clusterv1.KsctlAutoScaler) ([]appsv1.KsctlInstall, error) {
	var all appsv1.KsctlInstallList
	err := s.Client.List(ctx, &all, client.InNamespace(obj.Namespace), client.MatchingLabels{settings.Label: settings.DeploymentName(obj.Name)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var out []appsv1.KsctlInstall
	for i := range all.Items {
		if metav1.IsControlledBy(&all.Items[i], obj) {
			out = append(out, *all.Items[i].DeepCopy())
		}
	}
	return out, nil
}

// ensure makes an install as it is wanted, and says why it is not ready.
func (s *Steps) ensure(ctx context.Context, obj *clusterv1.KsctlAutoScaler, want *appsv1.KsctlInstall) (notReady, err error) {
	var have appsv1.KsctlInstall
	err = s.Client.Get(ctx, client.ObjectKeyFromObject(want), &have)
	switch {
	case apierrors.IsNotFound(err):
		err = s.Client.Create(ctx, want, client.FieldOwner(s.FieldOwner))
		have = *want
	case err != nil:
	case !metav1.IsControlledBy(&have, obj):
		return nil, reconcile.Fail(NameTakenReason, "KsctlInstall %s exists, and is not this KsctlAutoScaler's: delete it, or rename the KsctlAutoScaler", want.Name)
	case !apiequality.Semantic.DeepEqual(have.Spec, want.Spec) || have.Labels[settings.Label] != want.Labels[settings.Label]:
		have.Spec, have.Labels = want.Spec, want.Labels
		err = s.Client.Update(ctx, &have, client.FieldOwner(s.FieldOwner))
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("KsctlInstall %s, which brings Cluster Autoscaler: %w", want.Name, err)
	}
	ready := apimeta.FindStatusCondition(have.Status.Conditions, appsv1.ReadyCondition)
	if ready != nil && ready.Status == metav1.ConditionTrue && have.Status.ObservedGeneration == have.Generation {
		return nil, nil
	}
	message := "it is new"
	if ready != nil {
		message = ready.Message
	}
	return reconcile.Wait(AutoscalerNotReadyReason, "KsctlInstall %s is not ready: %s", want.Name, clip(message)), nil
}

// uninstall deletes what brings Cluster Autoscaler, and says what is left of it.
func (s *Steps) uninstall(ctx context.Context, obj *clusterv1.KsctlAutoScaler) (left string, err error) {
	all, err := s.installs(ctx, obj)
	if err != nil {
		return "", err
	}
	var names []string
	for i := range all {
		names = append(names, "KsctlInstall "+all[i].Name)
		if all[i].DeletionTimestamp != nil {
			continue
		}
		if err := s.Client.Delete(ctx, &all[i], client.Preconditions{UID: &all[i].UID}); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("deleting KsctlInstall %s: %w", all[i].Name, err)
		}
	}
	return strings.Join(names, ", "), nil
}

// maxWords is how much is repeated of others' messages, in bytes.
const maxWords = 256

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxWords)], "") }
