package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// maxRecoveryRounds bounds the renders with values from Secrets in the cluster: an authority, a
// certificate of it, a hash of that, and their checks.
const maxRecoveryRounds = 5

// recovery finds the values that Secrets in the cluster have where templates generate new ones.
type recovery struct {
	o *owner
	c *engine.Client
	// known are the values that the cluster has from earlier renders, by component.
	known map[string]*generated.Values
	// found are the places of the values that were found, and refused the calls whose value cannot
	// be rendered, by component and call.
	found   map[string]map[string]secretPlace
	refused map[string]map[string]bool
	// secrets are those that were read; nil for one that does not exist. versions are theirs, by
	// component.
	secrets  map[stacks.Ref]*corev1.Secret
	versions map[string]map[stacks.Ref]string
}

// secretPlace is a key of a Secret.
type secretPlace struct {
	secret stacks.Ref
	key    string
}

// recoverValues renders again with the values that Secrets in the cluster have where the templates
// of res generate new ones, and adds them to the request. Where a value cannot be recovered,
// because only a part of a key is generated, or because the key of an authority is not stored, the
// fields that have it stay as they are in the cluster. known are the values that the cluster has
// from earlier renders, by component.
func recoverValues(ctx context.Context, o *owner, c *engine.Client, known map[string]*generated.Values,
	req *stacks.Request, res stacks.Result,
	render func(context.Context, stacks.Request) (stacks.Result, error)) (stacks.Result, error) {
	r := &recovery{o: o, c: c, known: known, found: map[string]map[string]secretPlace{},
		refused: map[string]map[string]bool{}, secrets: map[stacks.Ref]*corev1.Secret{},
		versions: map[string]map[stacks.Ref]string{}}
	for range maxRecoveryRounds {
		before, changed := maps.Clone(r.found), map[string]*generated.Values{}
		for i := range res.Components {
			rc := &res.Components[i]
			values, err := r.recover(ctx, rc, valuesOf(req, &res)[rc.Name])
			if err != nil {
				return res, fmt.Errorf("looking for generated values of component %q: %w", rc.Name, err)
			}
			if values != nil {
				changed[rc.Name] = values
			}
		}
		if len(changed) == 0 {
			break
		}
		again := *req
		again.Generate = req.Generate.With(changed)
		next, err := render(ctx, again)
		_, inTemplate := errors.AsType[*stacks.Error](err)
		if err != nil && !inTemplate {
			return res, err
		}
		if err != nil { // the templates do not take these values
			r.refuseSince(before)
			continue
		}
		*req, res = again, next
	}
	o.reportLost(valuesOf(req, &res), known, r.found)
	res, err := r.keepLive(ctx, req, res, render)
	o.comparedSecrets = r.versions
	return res, err
}

// valuesOf returns the values of a render: a result has only those that are not in the request.
func valuesOf(req *stacks.Request, res *stacks.Result) map[string]*generated.Values {
	return req.Generate.With(res.Generated).Values
}

// recover returns the values of a component with those from Secrets; nil if nothing changes. A
// value that was stored before is compared only in a new release: until then, a change of it is
// drift. A value that was found, and that is not rendered as it is in the cluster, is given back.
func (r *recovery) recover(ctx context.Context, rc *stacks.RenderedComponent,
	created *generated.Values) (*generated.Values, error) {
	if created == nil {
		return nil, nil
	}
	unknown := r.unknown(rc.Name, created)
	last, installed := r.o.releases[rc.Name]
	upgraded := installed && last.Revision < rc.Record.Revision && !r.rotates(rc.Name, created)
	if len(unknown) == 0 && !upgraded && len(r.found[rc.Name]) == 0 {
		return nil, nil
	}
	places, same := maps.Clone(r.found[rc.Name]), map[secretPlace]bool{}
	if places == nil {
		places = map[string]secretPlace{}
	}
	out, changed := created.Clone(), false
	err := r.eachKey(ctx, rc, created, func(k secretKey) {
		same[k.place] = k.value == k.live
		for call, v := range created.Calls {
			own, ok := k.valueOf(v)
			if !ok || r.refused[rc.Name][call] || !unknown[call] && (!upgraded || v.PrivateKey != "") {
				continue
			}
			if _, twice := places[call]; twice && own != out.Calls[call] { // two keys that differ now
				r.refuse(rc.Name, call)
				continue
			}
			places[call], changed = k.place, changed || own != v
			out.Calls[call] = own
		}
	})
	if err != nil {
		return nil, err
	}
	for call, place := range places {
		if _, earlier := r.found[rc.Name][call]; earlier && !same[place] {
			r.refuse(rc.Name, call)
		}
		if !r.refused[rc.Name][call] {
			continue
		}
		changed = true
		delete(places, call)
		delete(out.Calls, call)
		if known := r.known[rc.Name]; known != nil && known.Calls[call] != (generated.Value{}) {
			out.Calls[call] = known.Calls[call]
		}
	}
	r.found[rc.Name] = places
	if !changed {
		return nil, nil
	}
	return out, nil
}

func (r *recovery) refuse(component, call string) {
	if r.refused[component] == nil {
		r.refused[component] = map[string]bool{}
	}
	r.refused[component][call] = true
}

// refuseSince refuses the values that were found since.
func (r *recovery) refuseSince(before map[string]map[string]secretPlace) {
	for component, places := range r.found {
		for call := range places {
			if _, earlier := before[component][call]; !earlier {
				r.refuse(component, call)
			}
		}
	}
	r.found = before
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
		_, found := r.found[component][call]
		if v.Derived || found {
			continue
		}
		if known == nil || r.refused[component][call] {
			out[call] = true
		} else if _, stored := known.Calls[call]; !stored && !known.HasOtherArguments(call) {
			out[call] = true
		}
	}
	return out
}

// secretKey is a key of a Secret that a component has and that is in the cluster.
type secretKey struct {
	place secretPlace
	// value is what is rendered, and written is its text in the manifest.
	value, written, live string
	// rendered and stored are the data of the Secret.
	rendered map[string]string
	stored   map[string][]byte
}

// valueOf returns a value as it is in the cluster, if it is the whole value of the key. Text that
// JSON does not have, and that is too short to be found again, is not returned.
func (k secretKey) valueOf(v generated.Value) (generated.Value, bool) {
	out := generated.Value{Text: k.live, Arguments: v.Arguments}
	switch v.Text {
	case k.value:
	case k.written: // in data, without b64enc
		out.Text = base64.StdEncoding.EncodeToString([]byte(k.live))
	default:
		return out, false
	}
	if min(len(v.Text), len(out.Text)) < generated.ShortestRecognized || !utf8.ValidString(out.Text) || v.Derived {
		return out, false
	}
	if v.PrivateKey == "" {
		return out, true
	}
	for name, value := range k.rendered {
		if value == v.PrivateKey {
			out.PrivateKey = string(k.stored[name])
		}
	}
	_, err := tls.X509KeyPair([]byte(out.Text), []byte(out.PrivateKey))
	return out, err == nil
}

// eachKey calls visit for each key of the Secrets of a component that has generated values, and
// that the cluster has, too.
func (r *recovery) eachKey(ctx context.Context, rc *stacks.RenderedComponent, created *generated.Values,
	visit func(secretKey)) error {
	isGenerated := created.Finder()
	for i := range rc.Objects {
		obj := &rc.Objects[i]
		if obj.Group != "" || obj.Kind != "Secret" || obj.Generated || !isGenerated(obj.Manifest) {
			continue
		}
		secret, err := r.read(ctx, rc.Name, obj.Ref)
		if err != nil {
			return err
		}
		if secret == nil {
			continue
		}
		rendered := secretData(obj.Manifest)
		for _, name := range slices.Sorted(maps.Keys(rendered)) {
			if stored, ok := secret.Data[name]; ok && len(stored) > 0 {
				visit(secretKey{place: secretPlace{obj.Ref, name}, value: rendered[name], live: string(stored),
					written:  base64.StdEncoding.EncodeToString([]byte(rendered[name])),
					rendered: rendered, stored: secret.Data})
			}
		}
	}
	return nil
}

// read returns a Secret for a component; nil if it does not exist or may not be read.
func (r *recovery) read(ctx context.Context, component string, ref stacks.Ref) (*corev1.Secret, error) {
	secret, known := r.secrets[ref]
	if !known {
		var err error
		if secret, err = readSecret(ctx, r.c, ref); err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		r.secrets[ref] = secret
	}
	if r.versions[component] == nil {
		r.versions[component] = map[stacks.Ref]string{}
	}
	r.versions[component][ref] = versionOf(secret)
	return secret, nil
}

// versionOf returns the version of a Secret; empty without one.
func versionOf(secret *corev1.Secret) string {
	if secret == nil {
		return ""
	}
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// compareSecretsAgain finds the components that are not applied yet, and whose Secrets in the
// cluster have changed since they were compared with generated values. They are compared again in
// the next render.
func (o *owner) compareSecretsAgain(ctx context.Context, c *engine.Client) error {
	installed := o.generatedSecrets()
	o.compareAgain = map[string]bool{}
	for component, versions := range o.comparedSecrets {
		if _, applied := installed[component]; applied || publishesOnly(o.req.Object) {
			delete(o.comparedSecrets, component)
			continue
		}
		for ref, version := range versions {
			secret, err := readSecret(ctx, c, ref)
			if err != nil && !apierrors.IsForbidden(err) {
				return fmt.Errorf("looking for generated values of component %q: %w", component, err)
			}
			if versionOf(secret) != version {
				o.compareAgain[component], o.rendered.digest = true, ""
			}
		}
	}
	return nil
}

// secretData returns the data of the manifest of a Secret, decoded.
func secretData(manifest []byte) map[string]string {
	var secret corev1.Secret
	if json.Unmarshal(manifest, &secret) != nil { // the API server reports it
		return nil
	}
	out := map[string]string{}
	for name, value := range secret.Data {
		out[name] = string(value)
	}
	maps.Copy(out, secret.StringData)
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
		calls, err := r.stayingCalls(ctx, rc, created)
		if err != nil {
			return res, fmt.Errorf("looking for generated values of component %q: %w", rc.Name, err)
		}
		if len(calls) == 0 {
			continue
		}
		kept[rc.Name], others[rc.Name] = created.Clone(), created.Clone()
		for call := range calls {
			v := created.Calls[call]
			v.StaysLive = true
			kept[rc.Name].Calls[call] = v
			delete(others[rc.Name].Calls, call)
		}
	}
	if len(kept) == 0 {
		return res, nil
	}
	again := *req
	again.Generate = req.Generate.With(others)
	other, otherErr := render(ctx, again)
	req.Generate = req.Generate.With(kept)
	res, err := render(ctx, *req)
	if err != nil {
		return res, err
	}
	for i := range res.Components {
		if rc := &res.Components[i]; kept[rc.Name] != nil && otherErr == nil {
			r.reportKept(rc, &other.Components[i])
		}
	}
	return res, nil
}

// stayingCalls returns the calls of a component whose values are new, and that are in keys of
// Secrets which the cluster has already. With a certificate, all authorities stay: they may be only
// in a webhook configuration.
func (r *recovery) stayingCalls(ctx context.Context, rc *stacks.RenderedComponent,
	created *generated.Values) (map[string]bool, error) {
	out, find := map[string]bool{}, map[string]func(string) bool{}
	for call := range r.unknown(rc.Name, created) {
		one := generated.Values{Calls: map[string]generated.Value{call: created.Calls[call]}}
		find[call] = one.TextFinder()
	}
	if len(find) == 0 {
		return out, nil
	}
	certificates := false
	for call := range r.found[rc.Name] {
		certificates = certificates || created.Calls[call].PrivateKey != ""
	}
	err := r.eachKey(ctx, rc, created, func(k secretKey) {
		for call, has := range find {
			if has(k.value) || has(k.written) {
				out[call] = true
				certificates = certificates || created.Calls[call].PrivateKey != ""
			}
		}
	})
	for call := range find {
		if certificates && strings.HasPrefix(call, "genCA") {
			out[call] = true
		}
	}
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
		if len(stay) > 0 {
			fields = append(fields, obj.Ref.String()+" "+strings.Join(stay, ", "))
		}
		if r.isMade(obj, &other.Objects[at], stay) {
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

// isMade reports whether fields of an object, apart from those that stay, are made from values that
// the cluster does not have. other is the object with other values.
func (r *recovery) isMade(obj, other *stacks.Object, stay []string) bool {
	secret := r.secrets[obj.Ref]
	if obj.Group == "" && obj.Kind == "Secret" && secret != nil {
		for name, value := range secretData(obj.Manifest) {
			stored, there := secret.Data[name]
			if there && string(stored) != value && !slices.Contains(stay, live.FormatPointer([]string{"data", name})) {
				return true
			}
		}
		return false
	}
	return len(stay) == 0 && !bytes.Equal(obj.Manifest, other.Manifest)
}
