package install

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
)

type valuesKey struct{ kind, name string }

// cachedValues are the data of a ConfigMap or Secret of one resourceVersion, read with one service
// account.
type cachedValues struct {
	version, account string
	data             map[string][]byte
}

// configReader returns the data of a ConfigMap or Secret, see readValues. It reads each object once
// per reconcile.
type configReader func(kind, name string) (cachedValues, error)

var valuesResources = map[string]schema.GroupVersionResource{
	"ConfigMap": {Version: "v1", Resource: "configmaps"},
	"Secret":    {Version: "v1", Resource: "secrets"},
}

// inputs reads the ConfigMaps and Secrets of an install. Existence and version come from a watch of
// the metadata. The data is read with the install's service account, and only if the version has
// changed.
func (s *Steps) inputs(ctx context.Context, o *owner, c dynamic.Interface) (stacks.Choices, chartSecrets,
	*content.Keys, error) {
	in, seen := o.req.Object, map[valuesKey]cachedValues{}
	read := func(kind, name string) (cachedValues, error) {
		key := valuesKey{kind, name}
		if v, ok := seen[key]; ok {
			return v, nil
		}
		v, err := s.readValues(ctx, o, c, key)
		if err == nil {
			seen[key] = v
		}
		return v, err
	}
	choices, err := s.choicesFor(ctx, in, read)
	if err != nil {
		return stacks.Choices{}, nil, nil, err
	}
	secrets, err := chartSecretsFor(in, read)
	if err != nil {
		return stacks.Choices{}, nil, nil, err
	}
	keys, err := s.decryptionKeys(in, read)
	if err != nil {
		return stacks.Choices{}, nil, nil, err
	}
	o.values = seen
	return choices, secrets, keys, nil
}

// choicesFor returns the choices of an install, with what it reads from ConfigMaps and Secrets.
func (s *Steps) choicesFor(ctx context.Context, in *appsv1.KsctlInstall, read configReader) (stacks.Choices, error) {
	values, err := s.valuesFor(ctx, in, read)
	if err != nil {
		return stacks.Choices{}, err
	}
	choices, err := stacks.ChoicesFromInstall(in, values)
	if err != nil {
		return stacks.Choices{}, err
	}
	choices.ParametersFrom, err = parametersFor(in, read)
	return choices, err
}

// parametersFor reads the parameters of spec.parametersFrom.
func parametersFor(in *appsv1.KsctlInstall, read configReader) ([]stacks.ParametersInput, error) {
	var out []stacks.ParametersInput
	for _, ref := range in.Spec.ParametersFrom {
		v, err := read(ref.Kind, ref.Name)
		if err != nil {
			return nil, fmt.Errorf("parametersFrom %s %q: %w", ref.Kind, ref.Name, err)
		}
		input, ok := stacks.NewParametersInput(ref, v.data)
		switch {
		case ok:
			out = append(out, input)
		case !ref.Optional:
			missing := "the object"
			if v.version != "" {
				missing = fmt.Sprintf("key %q", ref.Key)
			}
			if ref.TargetPath != "" {
				missing = fmt.Sprintf("parameter %q: %s", ref.TargetPath, missing)
			}
			return nil, reconcile.NewTransientError(appsv1.ValuesNotFoundReason,
				"parametersFrom %s %q: %s does not exist", ref.Kind, ref.Name, missing)
		}
	}
	return out, nil
}

// valuesFor reads the values of spec.valuesFrom.
func (s *Steps) valuesFor(ctx context.Context, in *appsv1.KsctlInstall,
	read configReader) ([]stacks.ValuesInput, error) {
	var out []stacks.ValuesInput
	for _, ref := range in.Spec.ValuesFrom {
		if ref.Kind == appsv1.ClusterValues {
			data, err := s.clusterValues(ctx, in, &ref)
			if err != nil {
				return nil, err
			}
			out = append(out, stacks.ValuesInput{Component: ref.Component, Source: stacks.ValuesSource(ref), Data: data,
				Public: true})
			continue
		}
		v, err := read(ref.Kind, ref.Name)
		if err != nil {
			return nil, fmt.Errorf("valuesFrom %s %q: %w", ref.Kind, ref.Name, err)
		}
		data, ok := v.data[stacks.ValuesKey(ref)]
		switch {
		case ok:
			out = append(out, stacks.ValuesInput{Component: ref.Component, Source: stacks.ValuesSource(ref), Data: data,
				Public: ref.Kind == "ConfigMap", TargetPath: ref.TargetPath})
		case !ref.Optional:
			missing := "the object"
			if v.version != "" {
				missing = fmt.Sprintf("key %q", stacks.ValuesKey(ref))
			}
			return nil, reconcile.NewTransientError(appsv1.ValuesNotFoundReason,
				"valuesFrom %s %q for component %q: %s does not exist", ref.Kind, ref.Name, ref.Component, missing)
		}
	}
	return out, nil
}

// readValues returns the data of a ConfigMap or Secret, from the previous reconcile if possible.
// The version of the result is empty if the object does not exist.
func (s *Steps) readValues(ctx context.Context, o *owner, c dynamic.Interface, key valuesKey) (cachedValues, error) {
	if s.Served != nil && key.kind == "Secret" {
		if data := s.Served.Secret(o.req.Object, key.name); data != nil {
			return cachedValues{version: "in memory", data: data}, nil
		}
	}
	ns, account := o.req.Object.Namespace, o.req.Object.Spec.ServiceAccountName
	meta := reconcile.PartialMetadata("", key.kind)
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: key.name}, meta)
	if apierrors.IsNotFound(err) && !s.ConfigsSelected {
		return cachedValues{}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return cachedValues{}, err
	}
	if v := o.values[key]; err == nil && v.version == meta.ResourceVersion && v.account == account {
		return v, nil
	}
	u, err := c.Resource(valuesResources[key.kind]).Namespace(ns).Get(ctx, key.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return cachedValues{}, nil
	}
	if err != nil {
		return cachedValues{}, err
	}
	data, err := decodeData(u)
	if err != nil {
		return cachedValues{}, err
	}
	return cachedValues{version: u.GetResourceVersion(), account: account, data: data}, nil
}

// decodeData returns the decoded data of a ConfigMap or Secret.
func decodeData(u *unstructured.Unstructured) (map[string][]byte, error) {
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(data))
	for k, v := range data {
		if u.GetKind() != "Secret" {
			out[k] = []byte(v)
			continue
		}
		if out[k], err = base64.StdEncoding.DecodeString(v); err != nil {
			return nil, fmt.Errorf("key %q is not base64", k)
		}
	}
	return out, nil
}

// clientFor returns a client of the local cluster that impersonates the install's service account.
func (s *Steps) clientFor(ctx context.Context, in *appsv1.KsctlInstall) (*engine.Client, error) {
	return reconcile.AccountClient(ctx, s.Client, s.Targets.Local,
		types.NamespacedName{Namespace: in.Namespace, Name: s.serviceAccountName(in)})
}

// serviceAccountName returns the name of the service account that an install acts as. It is empty
// if neither the install nor the controller configures one.
func (s *Steps) serviceAccountName(in *appsv1.KsctlInstall) string {
	return cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount)
}

// decryptionKeys reads the Secret of spec.decryption. It returns nil if spec.decryption is not set.
func (s *Steps) decryptionKeys(in *appsv1.KsctlInstall, read configReader) (*content.Keys, error) {
	if in.Spec.Decryption == nil {
		return nil, nil
	}
	name := in.Spec.Decryption.SecretRef.Name
	v, err := read("Secret", name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("spec.decryption: reading Secret %s/%s: %w", in.Namespace, name, err)
	case v.version == "":
		return nil, content.NewKeysNotFoundError(in.Namespace, name)
	}
	return content.NewKeys(v.data, s.SecretKey)
}
