package scriptsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// managedByLabel is on the Secrets that this API makes. Others are never changed.
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "worker-api"
	// plainAnnotation lists the keys that are bindings of type plain_text, as JSON.
	plainAnnotation = "workers.ksctl.com/plain-text"
)

// bindings are the environment variables of a script, by name. They are the keys of the Secret of
// the script, which its worker reads without a build.
type bindings map[string]binding

// sorted returns the bindings by name.
func (b bindings) sorted() []binding {
	out := make([]binding, 0, len(b))
	for _, name := range slices.Sorted(maps.Keys(b)) {
		out = append(out, b[name])
	}
	return out
}

// merge returns the bindings after an upload. Those of type secret_text stay unless the upload
// sets them: clients have no texts of secrets.
func (b bindings) merge(m *metadata) (bindings, error) {
	out := bindings{}
	for name, have := range b {
		if have.Type == bindingSecret || slices.Contains(m.KeepBindings, have.Type) {
			out[name] = have
		}
	}
	for _, set := range m.Bindings {
		have, exists := b[set.Name]
		switch {
		case set.Type == bindingInherit:
			from := set.Name
			if set.OldName != "" {
				from = set.OldName
			}
			inherited, ok := b[from]
			if !ok {
				return nil, failf(http.StatusBadRequest, codeBindingNotFound,
					"binding %s inherits %q, which the script does "+
						"not have: remove it", set.Name, clip(from))
			}
			if from != set.Name && inherited.Type != bindingSecret {
				delete(out, from)
			}
			inherited.Name = set.Name
			set = inherited
		case set.Type == bindingText && exists && have.Type == bindingSecret:
			return nil, invalidf("binding %s is a secret: delete the secret first, or rename the binding", set.Name)
		}
		out[set.Name] = binding{Type: set.Type, Name: set.Name, Text: set.Text}
	}
	if len(out) > maxBindings {
		return nil, failf(http.StatusBadRequest, codeTooManyBindings, "the script has %d bindings: use at most %d",
			len(out), maxBindings)
	}
	return out, nil
}

// secrets reads and writes the Secrets with bindings.
type secrets struct {
	client    client.Client
	namespace string
	// disabled refuses all bindings.
	disabled bool
}

// checkUse returns an error if bindings of a script can't be set.
func (s *secrets) checkUse(o *deployment, account, script string) error {
	if s.disabled {
		return invalidf("bindings are turned off (--secrets=false): remove them, and set spec.template.secretRef of " +
			"the WorkerDeployment to a Secret")
	}
	if o == nil {
		return nil
	}
	t := o.template()
	if name := t.secretName(); name != "" && name != objectName(account, script) {
		return invalidf("WorkerDeployment %s/%s refers to Secret %s, which this API does not write: set the keys "+
			"there, or remove spec.template.secretRef", s.namespace, o.GetName(), name)
	}
	return nil
}

// uses reports whether a script has the Secret of this API.
func (s *secrets) uses(o *deployment) bool {
	if o == nil || s.disabled {
		return false
	}
	t := o.template()
	return t.secretName() == o.GetName()
}

// get returns the bindings of a script.
func (s *secrets) get(ctx context.Context, o *deployment) (bindings, error) {
	if !s.uses(o) {
		return bindings{}, nil
	}
	secret, err := s.read(ctx, o.account(), o.script())
	if err != nil || secret == nil {
		return bindings{}, err
	}
	return parseSecret(secret), nil
}

func parseSecret(secret *corev1.Secret) bindings {
	var plain []string
	_ = json.Unmarshal([]byte(secret.Annotations[plainAnnotation]), &plain) // without it, all are secret
	out := bindings{}
	for name, text := range secret.Data {
		b := binding{Type: bindingSecret, Name: name, Text: string(text)}
		if slices.Contains(plain, name) {
			b.Type = bindingText
		}
		out[name] = b
	}
	return out
}

// read returns the Secret of a script, or nil if there is none.
func (s *secrets) read(ctx context.Context, account, script string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.namespace, Name: objectName(account, script)}
	err := s.client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	if secret.Labels[managedByLabel] != managedBy || secret.Labels[accountLabel] != account {
		return nil, failf(http.StatusConflict, codeInvalid, "Secret %s was not made by this API: delete or rename it",
			key)
	}
	return secret, nil
}

// set writes the bindings of a script, and returns the name of the Secret. The WorkerDeployment of
// the script owns it, if there is one already. Nothing is written if nothing changes.
func (s *secrets) set(ctx context.Context, account, script string, all bindings, owner *deployment) (string, error) {
	desired, err := newSecret(account, all, owner)
	if err != nil {
		return "", err
	}
	desired.Namespace, desired.Name = s.namespace, objectName(account, script)
	return desired.Name, retry.OnError(backoff, retriable, func() error {
		have, err := s.read(ctx, account, script)
		if err != nil {
			return err
		}
		if have == nil {
			return s.client.Create(ctx, desired.DeepCopy())
		}
		changed := have.DeepCopy()
		changed.Data, changed.OwnerReferences = desired.Data, desired.OwnerReferences
		changed.Annotations = maps.Clone(have.Annotations)
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[plainAnnotation] = desired.Annotations[plainAnnotation]
		if equality.Semantic.DeepEqual(have, changed) {
			return nil
		}
		return s.client.Update(ctx, changed)
	})
}

// newSecret returns a Secret with bindings.
func newSecret(account string, all bindings, owner *deployment) (*corev1.Secret, error) {
	plain := []string{}
	data := map[string][]byte{}
	for _, b := range all.sorted() {
		data[b.Name] = []byte(b.Text)
		if b.Type == bindingText {
			plain = append(plain, b.Name)
		}
	}
	list, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{managedByLabel: managedBy, accountLabel: account},
		Annotations: map[string]string{plainAnnotation: string(list)}}, Data: data}
	if owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(),
			Name: owner.GetName(), UID: owner.GetUID()}}
	}
	return out, nil
}
