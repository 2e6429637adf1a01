package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// publish writes the Secrets that are wanted, and takes away those that are not any more.
// Their names stand in the status before they are written.
func (s *Steps) publish(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], c dynamic.Interface, k known, labels map[string]string) error {
	obj := req.Object
	list, err := wantedSecrets(obj, k, labels)
	if err != nil {
		return err
	}
	if err := s.retire(ctx, obj, c, list, k.secret); err != nil {
		return err
	}
	before := secretsOf(obj)
	report(obj, k, list)
	if !slices.Equal(before, secretsOf(obj)) {
		if err := req.Persist(ctx, "writing its Secrets"); err != nil {
			return err
		}
	}
	kept, err := s.written.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (map[types.NamespacedName]record, error) {
		return map[types.NamespacedName]record{}, nil
	})
	if err != nil {
		return err
	}
	for _, w := range list {
		if err := s.write(ctx, req, c, w, kept); err != nil {
			return err
		}
	}
	return nil
}

// report writes into the status which Secrets there are.
func report(obj *clusterv1.KsctlCluster, k known, list []wanted) {
	st := &obj.Status
	st.KubeConfigSecret, st.KubeConfigKey, st.ArgoCDSecret, st.KubeConfigExpires = k.secret, k.key, "", nil
	if k.secret == "" {
		st.KubeConfigSecret, st.KubeConfigKey = obj.Name+secretSuffix, secretKey
	}
	if at := k.access.Expires; !at.IsZero() {
		st.KubeConfigExpires = &metav1.Time{Time: at.UTC().Truncate(time.Second)}
	}
	for _, w := range list {
		if w.argocd {
			st.ArgoCDSecret = w.name.String()
		}
	}
}

// write makes one Secret as it is wanted, unless it is known to be.
func (s *Steps) write(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], c dynamic.Interface, w wanted, kept map[types.NamespacedName]record) error {
	sum, err := w.sum()
	if err != nil {
		return err
	}
	if was := kept[w.name]; was.sum == sum && was.version != "" && s.version(ctx, w.name) == was.version {
		return nil
	}
	did, err := ensure(ctx, c, w, of(req.Object))
	if err != nil {
		return err
	}
	kept[w.name] = record{version: did.version, sum: sum}
	if did.did != "" {
		req.Event(corev1.EventTypeNormal, "KubeConfigWritten", fmt.Sprintf("%s Secret %s", did.did, w.name))
	}
	return nil
}

// version of a Secret as the cache has it; "" if it has none.
func (s *Steps) version(ctx context.Context, name types.NamespacedName) string {
	meta := reconcile.Metadata("", "Secret")
	if err := s.Client.Get(ctx, name, meta); err != nil {
		return "" // it is looked at by a request then
	}
	return meta.ResourceVersion
}

// retire deletes what was written before and is in no list. The kubeconfig that somebody
// else wrote is none of ours.
func (s *Steps) retire(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface, list []wanted, theirs string) error {
	for _, name := range secretsOf(obj) {
		stays := name.Namespace == obj.Namespace && name.Name == theirs ||
			slices.ContainsFunc(list, func(w wanted) bool { return w.name == name })
		if stays {
			continue
		}
		if err := engine.DropSecret(ctx, c, name, OfAnnotation, of(obj)); err != nil {
			return err
		}
	}
	return nil
}

// secretsOf are the Secrets that the status says were written, or were about to be.
func secretsOf(obj *clusterv1.KsctlCluster) []types.NamespacedName {
	var out []types.NamespacedName
	if name := obj.Status.KubeConfigSecret; name == obj.Name+secretSuffix {
		out = append(out, types.NamespacedName{Namespace: obj.Namespace, Name: name})
	}
	if name, ok := parseName(obj.Status.ArgoCDSecret); ok {
		out = append(out, name)
	}
	return out
}

// parseName reads <namespace>/<name>.
func parseName(s string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
