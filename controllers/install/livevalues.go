package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// maxRecoveryRounds bounds the renders with values from Secrets in the cluster: an authority, a
// certificate of it, and what is made from that.
const maxRecoveryRounds = 3

// recovery finds the values that Secrets in the cluster have where templates generate new ones.
type recovery struct {
	o *owner
	c *engine.Client
	// known are the values of earlier renders, by component.
	known map[string]*generated.Values
	// found are the calls whose values were found, by component.
	found map[string]map[string]bool
	// secrets are those that were read; nil for one that does not exist.
	secrets map[stacks.Ref]*corev1.Secret
}

// recoverValues renders again with the values that Secrets in the cluster have where the templates
// of res generate new ones, and adds them to the request. Where a value cannot be recovered,
// because only a part of a key is generated, or because the key of an authority is not stored, the
// fields that have it stay as they are in the cluster. known are the values of earlier renders, by
// component.
func recoverValues(ctx context.Context, o *owner, c *engine.Client, known map[string]*generated.Values,
	req *stacks.Request, res stacks.Result,
	render func(context.Context, stacks.Request) (stacks.Result, error)) (stacks.Result, error) {
	r := &recovery{o, c, known, map[string]map[string]bool{}, map[stacks.Ref]*corev1.Secret{}}
	for range maxRecoveryRounds {
		found := map[string]*generated.Values{}
		for i := range res.Components {
			rc := &res.Components[i]
			values, err := r.recover(ctx, rc, valuesOf(req, &res)[rc.Name])
			if err != nil {
				return res, fmt.Errorf("looking for generated values of component %q: %w", rc.Name, err)
			}
			if values != nil {
				found[rc.Name] = values
			}
		}
		if len(found) == 0 {
			break
		}
		req.Generate = req.Generate.With(found)
		var err error
		if res, err = render(ctx, *req); err != nil {
			return res, err
		}
	}
	o.reportLost(valuesOf(req, &res), known, r.found)
	return r.keepLive(ctx, req, res, render)
}

// valuesOf returns the values of a render: a result has only those that are not in the request.
func valuesOf(req *stacks.Request, res *stacks.Result) map[string]*generated.Values {
	return req.Generate.With(res.Generated).Values
}

// recover returns the values of a component with those from Secrets; nil if there are no others. A
// value that was stored before is compared only in a new release: until then, a change of it is
// drift.
func (r *recovery) recover(ctx context.Context, rc *stacks.RenderedComponent,
	created *generated.Values) (*generated.Values, error) {
	unknown := r.unknown(rc.Name, created)
	last, installed := r.o.releases[rc.Name]
	upgraded := installed && last.Revision < rc.Record.Revision && !r.rotates(rc.Name, created)
	found := map[string]generated.Value{}
	err := r.eachKey(ctx, rc, created, func(k secretKey) {
		for call, v := range created.Calls {
			switch {
			case !unknown[call] && (!upgraded || v.PrivateKey != ""), v.Derived, k.value != v.Text:
			case v.PrivateKey == "":
				found[call] = generated.Value{Text: k.live, Arguments: v.Arguments}
			default:
				if key := k.privateKeyOf(v); key != "" {
					found[call] = generated.Value{Text: k.live, PrivateKey: key}
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(found, func(call string, v generated.Value) bool { return v == created.Calls[call] })
	if len(found) == 0 {
		return nil, nil
	}
	out := created.Clone()
	maps.Copy(out.Calls, found)
	if r.found[rc.Name] == nil {
		r.found[rc.Name] = map[string]bool{}
	}
	for call := range found {
		r.found[rc.Name][call] = true
	}
	return out, nil
}

// rotates reports whether the values of a component were generated again by request.
func (r *recovery) rotates(component string, created *generated.Values) bool {
	known := r.known[component]
	return known != nil && known.Rotated != created.Rotated
}

// unknown returns the calls of a component whose values are new, and that Secrets may have. A
// certificate or a salted hash with other arguments is new on purpose.
func (r *recovery) unknown(component string, created *generated.Values) map[string]bool {
	out, known := map[string]bool{}, r.known[component]
	if created == nil || r.rotates(component, created) {
		return out
	}
	for call, v := range created.Calls {
		if known != nil {
			_, stored := known.Calls[call]
			if stored || known.Replaces(call) {
				continue
			}
		}
		if !v.Derived && !r.found[component][call] {
			out[call] = true
		}
	}
	return out
}

// secretKey is a key of a Secret that a component has and that is in the cluster.
type secretKey struct {
	value, live string
	// rendered and stored are the data of the Secret.
	rendered map[string]string
	stored   map[string][]byte
}

// privateKeyOf returns the private key of a certificate that the key has in the cluster; empty if
// the Secret does not have it.
func (k secretKey) privateKeyOf(v generated.Value) string {
	for name, value := range k.rendered {
		if value != v.PrivateKey {
			continue
		}
		if _, err := tls.X509KeyPair([]byte(k.live), k.stored[name]); err == nil {
			return string(k.stored[name])
		}
	}
	return ""
}

// eachKey calls visit for each key of the Secrets of a component that has generated values, and
// that the cluster has, too.
func (r *recovery) eachKey(ctx context.Context, rc *stacks.RenderedComponent, created *generated.Values,
	visit func(secretKey)) error {
	if created == nil || len(created.Calls) == 0 {
		return nil
	}
	isGenerated := created.Finder()
	for i := range rc.Objects {
		obj := &rc.Objects[i]
		if obj.Group != "" || obj.Kind != "Secret" || obj.Generated || !isGenerated(obj.Manifest) {
			continue
		}
		secret, err := r.read(ctx, obj.Ref)
		if err != nil {
			return err
		}
		if secret == nil {
			continue
		}
		rendered := secretData(obj.Manifest)
		for _, name := range slices.Sorted(maps.Keys(rendered)) {
			if stored, ok := secret.Data[name]; ok && len(stored) > 0 {
				visit(secretKey{rendered[name], string(stored), rendered, secret.Data})
			}
		}
	}
	return nil
}

// read returns a Secret; nil if it does not exist or may not be read.
func (r *recovery) read(ctx context.Context, ref stacks.Ref) (*corev1.Secret, error) {
	if secret, known := r.secrets[ref]; known {
		return secret, nil
	}
	secret, err := readSecret(ctx, r.c, ref)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	r.secrets[ref] = secret
	return secret, nil
}

// secretData returns the data of the manifest of a Secret, decoded.
func secretData(manifest []byte) map[string]string {
	var secret corev1.Secret
	if json.Unmarshal(manifest, &secret) != nil { // the API server reports it
		return nil
	}
	out := maps.Clone(secret.StringData)
	if out == nil {
		out = map[string]string{}
	}
	for name, value := range secret.Data {
		if _, both := out[name]; !both {
			out[name] = string(value)
		}
	}
	return out
}

// keepLive renders again so that fields with values that are new, and that the cluster has already,
// stay as they are in the cluster. It reports them.
func (r *recovery) keepLive(ctx context.Context, req *stacks.Request, res stacks.Result,
	render func(context.Context, stacks.Request) (stacks.Result, error)) (stacks.Result, error) {
	kept, others := map[string]*generated.Values{}, map[string]*generated.Values{}
	for i := range res.Components {
		rc := &res.Components[i]
		created := valuesOf(req, &res)[rc.Name]
		calls, err := r.liveCalls(ctx, rc, created)
		if err != nil {
			return res, fmt.Errorf("looking for generated values of component %q: %w", rc.Name, err)
		}
		if len(calls) == 0 {
			continue
		}
		kept[rc.Name], others[rc.Name] = created.Clone(), created.Clone()
		for call := range calls {
			v := created.Calls[call]
			v.Live = true
			kept[rc.Name].Calls[call] = v
			delete(others[rc.Name].Calls, call)
		}
	}
	if len(kept) == 0 {
		return res, nil
	}
	again := *req
	again.Generate = req.Generate.With(others)
	other, err := render(ctx, again)
	if err != nil {
		return res, err
	}
	req.Generate = req.Generate.With(kept)
	if res, err = render(ctx, *req); err != nil {
		return res, err
	}
	for i := range res.Components {
		if rc := &res.Components[i]; kept[rc.Name] != nil {
			r.reportKept(rc, &other.Components[i])
		}
	}
	return res, nil
}

// liveCalls returns the calls of a component whose values are new, and that are in keys of Secrets
// which the cluster has already. The certificates of a component stay together: an authority may be
// only in a webhook configuration.
func (r *recovery) liveCalls(ctx context.Context, rc *stacks.RenderedComponent,
	created *generated.Values) (map[string]bool, error) {
	out, find := map[string]bool{}, map[string]func([]byte) bool{}
	for call := range r.unknown(rc.Name, created) {
		one := generated.Values{Calls: map[string]generated.Value{call: created.Calls[call]}}
		find[call] = one.Finder()
	}
	if len(find) == 0 {
		return nil, nil
	}
	certificates := false
	for call := range r.found[rc.Name] {
		certificates = certificates || created.Calls[call].PrivateKey != ""
	}
	err := r.eachKey(ctx, rc, created, func(k secretKey) {
		for call, has := range find {
			if raw, err := json.Marshal(k.value); err == nil && has(raw) {
				out[call] = true
				certificates = certificates || created.Calls[call].PrivateKey != ""
			}
		}
	})
	for call := range find {
		out[call] = out[call] || certificates && created.Calls[call].PrivateKey != ""
	}
	maps.DeleteFunc(out, func(_ string, live bool) bool { return !live })
	return out, err
}

// reportKept emits an event with the fields of a component that stay as they are in the cluster,
// and the objects that are made from the values of these fields. other is a render with other
// values, in which no field stays.
func (r *recovery) reportKept(rc, other *stacks.RenderedComponent) {
	var fields, made []string
	for i := range rc.Objects {
		obj := &rc.Objects[i]
		at := slices.IndexFunc(other.Objects, func(o stacks.Object) bool { return o.Ref == obj.Ref })
		if at < 0 || obj.Generated {
			continue
		}
		stay := slices.DeleteFunc(slices.Clone(obj.InitialFields), func(p string) bool {
			return slices.Contains(other.Objects[at].InitialFields, p)
		})
		switch {
		case len(stay) > 0:
			fields = append(fields, obj.Ref.String()+" "+strings.Join(stay, ", "))
		case obj.Kind != "Secret" && !bytes.Equal(obj.Manifest, other.Objects[at].Manifest):
			made = append(made, obj.Ref.String())
		}
	}
	message := fmt.Sprintf("component %q: these fields stay as they are in the cluster, because what their chart "+
		"generated is not known: %s", rc.Name, strings.Join(fields, "; "))
	if len(made) > 0 {
		message += "; made from other values: " + strings.Join(made, ", ")
	}
	r.o.req.Event(corev1.EventTypeWarning, appsv1.LiveValuesKeptReason,
		reconcile.Truncate(message, maxComponentMessage))
}
