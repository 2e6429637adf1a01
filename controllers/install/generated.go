package install

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// generateOptions returns how the charts of an install generate values. c is for the target
// cluster.
func (s *Steps) generateOptions(ctx context.Context, o *owner, c *engine.Client) (generated.Options, error) {
	in := o.req.Object
	if stacks.RefusesGenerated(in) {
		o.generated = nil
		return generated.Options{}, nil
	}
	if o.generated == nil {
		var err error
		if o.generated, err = readGenerated(ctx, o, c); err != nil {
			return generated.Options{}, err
		}
	}
	if err := o.compareSecretsAgain(ctx, c); err != nil {
		return generated.Options{}, err
	}
	return generated.Options{Policy: generated.Keep, Owner: o.key.String(), Values: o.generated,
		Rotate: in.Annotations[appsv1.RotateAnnotation], Now: s.Clock.Now()}, nil
}

// generatedSecrets returns the Secrets in the inventory that have generated values, by component.
func (o *owner) generatedSecrets() map[string]stacks.Ref {
	out := map[string]stacks.Ref{}
	for id, e := range o.inv.All() {
		if e.State == appsv1.EntryIntended || !strings.Contains(id, generated.SecretNamePrefix) {
			continue // findGenerated looks for one that may not exist
		}
		if ref, err := stacks.ParseID(id); err == nil && ref.Group == "" && ref.Kind == "Secret" &&
			ref.Name == generated.SecretName(o.key.String(), e.Component) {
			out[e.Component] = ref
		}
	}
	return out
}

// readGenerated reads the values that were generated before this process started.
func readGenerated(ctx context.Context, o *owner, c *engine.Client) (map[string]*generated.Values, error) {
	out := map[string]*generated.Values{}
	for component, ref := range o.generatedSecrets() {
		v, err := readGeneratedSecret(ctx, o, c, component, ref)
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[component] = v
		}
	}
	return out, nil
}

// readGeneratedSecret returns the generated values in a Secret, or nil if it does not exist or has
// the mark of another owner. It has none if it was left in the cluster.
func readGeneratedSecret(ctx context.Context, o *owner, c *engine.Client, component string,
	ref stacks.Ref) (*generated.Values, error) {
	secret, err := readSecret(ctx, c, ref)
	if err != nil {
		return nil, fmt.Errorf("reading the generated values of component %q: %w", component, err)
	}
	if secret == nil {
		return nil, nil
	}
	if mark, err := live.ParseMark(secret.Annotations[live.MarkAnnotation]); err == nil &&
		mark.Owner != o.key.String() && ref.Name == generated.SecretName(o.key.String(), component) {
		return nil, nil
	}
	v, err := generated.FromSecret(secret)
	if err != nil {
		return nil, reconcile.NewTerminalError(appsv1.InvalidStackReason, "component %q: %v", component, err)
	}
	return v, nil
}

// readSecret returns a Secret of the target cluster, or nil.
func readSecret(ctx context.Context, c *engine.Client, ref stacks.Ref) (*corev1.Secret, error) {
	var secret corev1.Secret
	found, err := engine.GetInto(ctx, c, corev1.SchemeGroupVersion.WithResource("secrets"), ref.Namespace, ref.Name,
		&secret)
	if err != nil || !found {
		return nil, err
	}
	return &secret, nil
}

// renderGenerating renders a request, and adds the generated values to it. Before new values are
// used, it looks in the cluster for earlier ones, and for what the templates look up.
func renderGenerating(ctx context.Context, o *owner, c *engine.Client, req *stacks.Request, render func(context.Context,
	stacks.Request) (stacks.Result, error)) (stacks.Result, error) {
	if req.Generate.Policy == generated.Keep {
		o.forgetGenerated()
		req.Generate.Values, req.Generate.Derive = o.generated, o.derivedComponents()
	}
	res, err := render(ctx, *req)
	if err != nil {
		return res, err
	}
	found, err := findGenerated(ctx, o, c, &res)
	if err != nil {
		return stacks.Result{}, err
	}
	records, warnings, err := o.formerReleases(ctx, c, &res, found)
	if err != nil {
		return stacks.Result{}, err
	}
	if len(found) > 0 || len(records) > 0 {
		if *req, err = o.withFormer(ctx, c, *req, &res, found, records, render); err != nil {
			return stacks.Result{}, err
		}
		if res, err = render(ctx, *req); err != nil {
			return stacks.Result{}, err
		}
	}
	if res, err = renderWithLookups(ctx, o, c, req, res, render); err != nil {
		return stacks.Result{}, err
	}
	if req.Generate.Policy == generated.Keep && !publishesOnly(o.req.Object) {
		known := maps.Clone(o.generated)
		maps.Copy(known, found)
		maps.DeleteFunc(known, func(component string, _ *generated.Values) bool { return o.compareAgain[component] })
		if res, err = recoverValues(ctx, o, c, known, req, res, render); err != nil {
			return stacks.Result{}, err
		}
		if res, err = renderWithLookups(ctx, o, c, req, res, render); err != nil {
			return stacks.Result{}, err
		}
	}
	if len(res.Generated) > 0 {
		req.Generate = req.Generate.With(res.Generated)
	}
	res.Warnings = append(res.Warnings, warnings...)
	return res, nil
}

// findGenerated returns values of earlier renders for components that have none: those in a Secret
// that the inventory does not have, because the status was lost or the install takes over from
// another one.
func findGenerated(ctx context.Context, o *owner, c *engine.Client,
	res *stacks.Result) (map[string]*generated.Values, error) {
	out := map[string]*generated.Values{}
	for _, rc := range res.Components {
		i := slices.IndexFunc(rc.Objects, func(obj stacks.Object) bool { return obj.Generated })
		if res.Generated[rc.Name] == nil || o.generated[rc.Name] != nil || i < 0 {
			continue
		}
		ref := rc.Objects[i].Ref
		if publishesOnly(o.req.Object) {
			ref.Namespace = o.req.Object.Namespace
		}
		v, err := readGeneratedSecret(ctx, o, c, rc.Name, ref)
		if from := o.req.Object.Spec.TakeOver; err == nil && v == nil && from != nil {
			former := o.key
			former.Name = from.Name
			ref.Name = generated.SecretName(former.String(), rc.Name)
			v, err = readGeneratedSecret(ctx, o, c, rc.Name, ref)
		}
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[rc.Name] = v
		}
	}
	return out, nil
}

// reportLost emits events for the components whose Secret with the generated values is gone:
// found are the calls whose values other Secrets have.
func (o *owner) reportLost(values, known map[string]*generated.Values, found map[string]map[string]secretPlace) {
	lost := o.generatedSecrets()
	for component, created := range values {
		if _, installed := lost[component]; !installed || known[component] != nil || len(created.Calls) == 0 {
			continue
		}
		var others []string
		for call := range created.Calls {
			if _, ok := found[component][call]; !ok {
				others = append(others, call)
			}
		}
		slices.Sort(others)
		o.req.Event(corev1.EventTypeWarning, appsv1.GeneratedValuesLostReason,
			reconcile.Truncate(fmt.Sprintf("the Secret with the generated values of component %q is gone: "+
				"%d values are taken from other Secrets; unknown values: %d (%s)", component,
				len(created.Calls)-len(others), len(others), strings.Join(others, ", ")), maxComponentMessage))
	}
}

// forgetGenerated drops the values of components that are neither rendered nor installed anymore.
func (o *owner) forgetGenerated() {
	installed := o.generatedSecrets()
	kept := map[string]*generated.Values{} // the old map is part of an earlier request
	for component, v := range o.generated {
		_, there := installed[component]
		if there || slices.ContainsFunc(o.rendered.components, func(c stacks.RenderedComponent) bool {
			return c.Name == component
		}) {
			kept[component] = v
		}
	}
	o.generated = kept
}

// derivedComponents returns the components with objects that were rendered without kept values.
func (o *owner) derivedComponents() []string {
	kept := o.generatedSecrets()
	out := map[string]bool{}
	if st := &o.req.Object.Status; publishesOnly(o.req.Object) && st.LastAppliedRevision != "" {
		for _, c := range st.Components {
			out[c.Name] = o.generated[c.Name] == nil
		}
		maps.DeleteFunc(out, func(_ string, derived bool) bool { return !derived })
	}
	for _, e := range o.inv.All() {
		if _, there := kept[e.Component]; !there && o.generated[e.Component] == nil && e.Component != "" &&
			e.State != appsv1.EntryIntended {
			out[e.Component] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// expiringCertificates returns a warning for each generated certificate that is in the last third
// of its life, and ends within 30 days.
func (o *owner) expiringCertificates(now time.Time) []string {
	var out []string
	for component, v := range o.generated {
		for call, value := range v.Calls {
			block, _ := pem.Decode([]byte(value.Text))
			if value.PrivateKey == "" || value.StaysLive || block == nil {
				continue
			}
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			left := cert.NotAfter.Sub(now)
			if left > 30*24*time.Hour || left > cert.NotAfter.Sub(cert.NotBefore)/3 {
				continue
			}
			out = append(out, fmt.Sprintf("component %q: the generated certificate %s ends at %s: to generate all "+
				"values of the component again, set the annotation %s: %s@%s",
				component, call, cert.NotAfter.UTC().Format(time.RFC3339), appsv1.RotateAnnotation, component,
				cert.NotAfter.UTC().Format(time.DateOnly)))
		}
	}
	slices.Sort(out)
	return out
}

// redactGenerated returns a function that removes generated values, and those of Secrets, from
// messages; nil without values.
func redactGenerated(values map[string]*generated.Values, secrets map[valuesKey]cachedValues) func(string) string {
	if len(values) == 0 && len(secrets) == 0 {
		return nil
	}
	replacer := sync.OnceValue(func() *strings.Replacer {
		texts := secretTexts(secrets)
		for _, v := range values {
			texts = append(texts, v.Secrets()...)
		}
		var encodings []string
		for _, text := range texts {
			if len(text) >= generated.ShortestRecognized {
				encodings = append(encodings, text, base64.StdEncoding.EncodeToString([]byte(text)))
			}
		}
		// The longest first: one may begin with another.
		slices.SortFunc(encodings, func(a, b string) int { return len(b) - len(a) })
		var pairs []string
		for _, encoding := range encodings {
			pairs = append(pairs, encoding, "***")
		}
		return strings.NewReplacer(pairs...)
	})
	return func(message string) string { return replacer().Replace(message) }
}
