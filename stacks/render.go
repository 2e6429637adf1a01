package stacks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Render renders a stack for one install. The result depends only on the request, on the files
// below its Root and on the files of its Charts. The error is a *MissingChartsError if further
// charts are needed.
func Render(ctx context.Context, req Request) (Result, error) {
	return NewChartCache(DefaultChartCacheBytes).Render(ctx, req)
}

func renderWith(ctx context.Context, req Request, loader helm.Loader) (Result, error) {
	digest, err := Digest(req)
	if err != nil {
		return Result{}, err
	}
	tree, err := source.Open(req.Root)
	if err != nil {
		return Result{}, err
	}
	defer tree.Close()
	tree.SetDecrypted(req.Decrypted)
	result, err := renderFrom(ctx, tree, req, loader)
	// Report encrypted inputs first: other errors may be a consequence.
	if files := encryptedInputs(tree, &req); len(files) > 0 {
		return Result{}, &EncryptedError{Stack: req.Stack, Files: files}
	}
	if err != nil {
		return Result{}, err
	}
	redactTexts(tree, &req, &result)
	result.Digest, result.Trace, result.Decrypted = digest, tree.Trace(), tree.DecryptedFiles()
	return result, nil
}

// redactTexts removes values that are not public from the texts of a result.
func redactTexts(tree *source.Tree, req *Request, result *Result) {
	hasNotes := slices.ContainsFunc(result.Components, func(c RenderedComponent) bool { return c.Notes != "" })
	if len(result.Warnings) == 0 && !hasNotes {
		return
	}
	secrets := redactorFor(tree, req, result.Generated)
	for i, w := range result.Warnings {
		result.Warnings[i] = secrets.redact(w)
	}
	for i := range result.Components {
		notes := &result.Components[i].Notes
		if *notes = secrets.redact(*notes); *notes == withheldMessage {
			*notes = ""
		}
	}
}

func renderFrom(ctx context.Context, tree *source.Tree, req Request, loader helm.Loader) (Result, error) {
	def, err := loadFrom(tree, req.Root, req.Path, req.Stack, loader)
	if err != nil && len(req.Decrypted) > 0 {
		err = redactorFor(tree, &req, nil).redactError(err) // the choices of the install are not read yet
	}
	if err != nil {
		return Result{}, err
	}
	if err := checkFacts(def, &req); err != nil {
		return Result{}, err
	}
	if err := checkKubernetesVersion(def, req.Capabilities.KubeVersion); err != nil {
		return Result{}, err
	}
	resolved, err := resolve(ctx, tree, def, req)
	if missing, ok := errors.AsType[*MissingChartsError](err); ok {
		missing.Trace = tree.Trace()
		return Result{}, missing
	}
	if err != nil {
		return Result{}, redactorFor(tree, &req, nil).redactError(err)
	}
	r := &renderRun{ctx: ctx, req: req, tree: tree, def: def, resolved: resolved,
		generated: map[string]*generated.Values{}, notes: map[string]string{}, readsCluster: map[string]bool{},
		releases: map[string]ReleaseRecord{}}
	result, err := r.render()
	if err != nil {
		return Result{}, redactorFor(tree, &req, r.generated).redactError(err)
	}
	return result, nil
}

// checkKubernetesVersion checks the target's Kubernetes version, without a vendor suffix, against
// the range of the stack.
func checkKubernetesVersion(def *Definition, version string) error {
	if def.Spec.Kubernetes == "" {
		return nil
	}
	at := def.fieldAt("spec.kubernetes")
	have, err := semver.NewVersion(version)
	if err != nil {
		return at.errorf("the stack requires Kubernetes %s, but the target's version %q is not a version",
			def.Spec.Kubernetes, version)
	}
	wanted, err := semver.NewConstraint(def.Spec.Kubernetes)
	if err != nil {
		return at.fieldErrorf("must be a range of versions")
	}
	plain := semver.New(have.Major(), have.Minor(), have.Patch(), "", "")
	if !wanted.Check(plain) {
		return at.errorf("the stack requires Kubernetes %s, but the target has %s", def.Spec.Kubernetes, version)
	}
	return nil
}

// renderRun renders one resolved stack.
type renderRun struct {
	ctx      context.Context
	req      Request
	tree     *source.Tree
	def      *Definition
	resolved *ResolvedStack
	warnings []string
	// generated are the generated values of the rendered components, new and old ones.
	generated map[string]*generated.Values
	// notes are those of the charts, and releases the records of their releases, by component.
	notes    map[string]string
	releases map[string]ReleaseRecord
	// readsCluster are the components with a kustomization whose charts may depend on the cluster.
	readsCluster map[string]bool
}

func (r *renderRun) render() (Result, error) {
	rendered := make([][]*manifest.Object, len(r.resolved.Components))
	for i := range r.resolved.Components {
		p := &r.resolved.Components[i]
		if r.discoveryPass() && p.Component.Helm != nil {
			continue // a chart component has already read all of its files
		}
		objects, err := r.runStep(p, func() ([]*manifest.Object, error) { return r.renderComponent(p) })
		if err != nil && !r.discoveryPass() {
			return Result{}, err
		}
		rendered[i] = objects
	}
	if r.discoveryPass() {
		return Result{}, nil
	}
	if err := r.changeObjects(rendered); err != nil {
		return Result{}, err
	}
	if err := r.rehashNames(rendered); err != nil {
		return Result{}, err
	}
	for i, objects := range rendered {
		if err := r.checkContributions(&r.resolved.Components[i], objects); err != nil {
			return Result{}, err
		}
		if err := r.suspendPreRemoveJobs(&r.resolved.Components[i], objects); err != nil {
			return Result{}, err
		}
		for _, o := range objects {
			manifest.Normalize(o)
		}
		manifest.Sort(objects)
	}
	return r.buildResult(rendered)
}

// runStep runs one step for a component. It returns a panic of the renderer as an error.
func (r *renderRun) runStep(p *ResolvedComponent,
	step func() ([]*manifest.Object, error)) (objects []*manifest.Object, err error) {
	defer func() {
		if v := recover(); v != nil {
			objects, err = nil, r.withComponent(p, problem.Newf("the renderer panicked: %v", v))
		}
	}()
	if err = r.ctx.Err(); err != nil {
		return nil, r.withComponent(p, problem.Newf("the render was stopped: %w", err))
	}
	if objects, err = step(); err != nil {
		return nil, r.withComponent(p, err)
	}
	return objects, nil
}

func (r *renderRun) warn(c *Component, warnings []string) {
	for _, w := range warnings {
		r.warnings = append(r.warnings, fmt.Sprintf("component %q: %s", c.Name, w))
	}
}

// renderComponent renders one component without its overrides.
func (r *renderRun) renderComponent(p *ResolvedComponent) ([]*manifest.Object, error) {
	c := p.Component
	r.tree.SetComponent(c.Name)
	switch {
	case c.Helm != nil && p.chart == nil:
		return nil, nil // Resolve added a warning
	case c.Helm != nil:
		return withNames(c)(r.renderChart(p))
	case c.Kustomize != nil:
		dir, err := source.Clean(r.def.dir, c.Kustomize.Path)
		if err != nil {
			return nil, err
		}
		return withNames(c)(kustomize.Build(r.ctx, r.tree, dir, p.kustomizeComponents,
			func(release kustomize.Release) ([]*manifest.Object, error) {
				return r.renderRelease(p, release)
			}))
	}
	return r.readManifests(c)
}

func (r *renderRun) renderChart(p *ResolvedComponent) ([]*manifest.Object, error) {
	c, generate := p.Component, &r.req.Generate
	stored := generate.Values[c.Name]
	switch {
	case stored != nil:
	case generate.Policy == generated.Keep:
		stored = generated.NewValues(nil)
	default:
		stored = generated.NewValues(append([]byte{}, r.req.SecretKey...)) // not random
	}
	stored = stored.ForRotation(c.Name, generate.Rotate)
	readsRelease := p.chart.ReadsRelease(p.Values)
	storesRelease := generate.Policy == generated.Keep && r.req.Releases != nil &&
		(readsRelease || p.hooks != appsv1.HooksSkip && p.chart.HasHooks(p.Values))
	record, storedRecord, err := r.release(p, stored)
	if err != nil {
		return nil, err
	}
	options := helm.Options{
		Release: p.releaseName, Namespace: p.Namespace, Revision: record.Revision, Values: p.Values,
		KubeVersion: r.req.Capabilities.KubeVersion, APIVersions: r.req.Capabilities.APIVersions,
		Seed: r.randomSeed(c),
		Generation: helm.Generation{Policy: generate.Policy, Stored: stored,
			Derive: slices.Contains(generate.Derive, c.Name), Now: generate.Now},
		SkipHooks: p.hooks == appsv1.HooksSkip, WithoutCRDs: p.crds == appsv1.CRDsSkip,
		CreateOnlyCRDs: p.crds == appsv1.CRDsCreateOnly,
	}
	rendered, err := r.renderRevision(p, options)
	r.warn(c, rendered.Warnings)
	r.notes[c.Name], r.releases[c.Name] = rendered.Notes, record
	if values := rendered.Generated; values != nil {
		values.Release = nil
		if storesRelease && err == nil { // where the status is lost, no hook runs again
			values.Release = storedRecord
		}
		if generate.Policy != generated.Refuse && !values.IsEmpty() {
			r.generated[c.Name] = values
		}
	}
	if readsRelease && record.Revision == 1 && err == nil {
		r.addInitialFields(p, options, rendered)
	}
	return rendered.Objects, err
}

// randomSeed returns the seed of a component's random functions. It is keyed, so that generated
// passwords cannot be derived from the source.
func (r *renderRun) randomSeed(c *Component) []byte {
	mac := hmac.New(sha256.New, r.req.SecretKey)
	for _, part := range []string{r.req.Install.Namespace, r.req.Install.Name, c.Name} {
		_, _ = fmt.Fprintf(mac, "%d %s\n", len(part), part)
	}
	return mac.Sum(nil)
}

// withComponent sets the component of errors.
func (r *renderRun) withComponent(p *ResolvedComponent, err error) error {
	out := errorsOf(p.Component, err)
	for _, e := range out {
		if e.File == "" {
			e.Stack = r.def.Metadata.Name
		}
	}
	return out.Err()
}

func (r *renderRun) buildResult(rendered [][]*manifest.Object) (Result, error) {
	namespaces, err := r.namespacesToCreate(rendered)
	if err != nil {
		return Result{}, err
	}
	applied, err := r.storeRemovalHooks(rendered)
	if err != nil {
		return Result{}, err
	}
	taken := map[string]bool{}
	for _, o := range slices.Concat(applied...) {
		taken[o.ID()] = true
	}
	out := Result{StackVersion: r.def.Spec.Version}
	for name, v := range r.generated {
		if !v.Equal(r.req.Generate.Values[name]) {
			if out.Generated == nil {
				out.Generated = map[string]*generated.Values{}
			}
			out.Generated[name] = v
		}
	}
	for i, objects := range rendered {
		p := &r.resolved.Components[i]
		if err := r.checkRetained(p, applied[i]); err != nil {
			return Result{}, err
		}
		c := r.newComponent(p)
		c.Objects, c.CreateNamespace = make([]Object, 0, len(objects)), namespaces[i]
		values := r.generated[p.Component.Name]
		contains := keyedBy(p, values)
		for _, o := range applied[i] {
			object, err := r.buildObject(o, contains)
			if err != nil {
				return Result{}, r.withComponent(p, err)
			}
			object.Sensitive = p.sensitive
			object.InitialFields = append(object.InitialFields, values.LiveFields(isSecret(o), o.Value)...)
			c.Objects = append(c.Objects, object)
		}
		linkWebhooks(c.Objects)
		if c.Tests, err = r.tests(p, objects, contains, taken); err != nil {
			return Result{}, r.withComponent(p, err)
		}
		if c.Objects, err = r.addGeneratedSecret(p, c.Objects); err != nil {
			return Result{}, r.withComponent(p, err)
		}
		out.Components = append(out.Components, c)
	}
	out.Warnings = slices.Concat(r.resolved.Warnings, r.warnings)
	return out, nil
}

// newComponent returns a rendered component without its objects.
func (r *renderRun) newComponent(p *ResolvedComponent) RenderedComponent {
	name := p.Component.Name
	c := RenderedComponent{Name: name, Version: p.Version, DependsOn: p.Component.DependsOn, Wave: p.Wave,
		Retain:    p.retain,
		ReadyExpr: p.Component.ReadyExpr, Contribute: p.Component.Contribute, Chart: p.fetched,
		ChartDependencies: p.dependencies, ReadsCluster: r.readsCluster[name], Notes: r.notes[name],
		Record: r.releases[name]}
	if p.Component.Helm != nil {
		c.Release = &Release{Namespace: p.Namespace, Name: p.releaseName}
		c.ReadsCluster = p.chart != nil && p.chart.ReadsCluster(p.Values)
	}
	return c
}

// tests returns the objects that test a component on request. One with the name of another object
// is left out with a warning, because both would be there at the same time; taken has their ids.
func (r *renderRun) tests(p *ResolvedComponent, objects []*manifest.Object, isGenerated func(manifest []byte) bool,
	taken map[string]bool) (out []Object, err error) {
	for _, o := range objects {
		if o.Hook == nil || !o.Hook.Test || !o.Hook.NotApplied {
			continue
		}
		if taken[o.ID()] {
			r.warn(p.Component, []string{fmt.Sprintf("%s: the test %s is left out: another object has its name",
				o.Location(), o)})
			continue
		}
		taken[o.ID()] = true
		test, err := r.buildObject(o, isGenerated)
		if err != nil {
			return nil, err
		}
		test.Hook.Phase, test.Sensitive = HookTest, p.sensitive
		out = append(out, test)
	}
	return out, nil
}

// addGeneratedSecret adds the Secret with the generated values of a component, if it has some,
// after its Namespaces.
func (r *renderRun) addGeneratedSecret(p *ResolvedComponent, objects []Object) ([]Object, error) {
	values := r.generated[p.Component.Name]
	if values == nil || r.req.Generate.Owner == "" || r.req.Generate.Policy != generated.Keep {
		return objects, nil
	}
	namespace := p.Namespace
	if !p.Component.CreateNamespace && !slices.ContainsFunc(objects, func(o Object) bool {
		return o.Namespace == namespace
	}) {
		// The component may not have a namespace of its own.
		if i := slices.IndexFunc(objects, func(o Object) bool { return o.Namespace != "" }); i >= 0 {
			namespace = objects[i].Namespace
		}
	}
	name := generated.SecretName(r.req.Generate.Owner, p.Component.Name)
	value, err := generated.Secret(namespace, name, values)
	if err != nil {
		return nil, err
	}
	o := &manifest.Object{Version: "v1", Kind: "Secret", Namespace: namespace, Name: name, Component: p.Component.Name,
		Value: value}
	secret, err := r.buildObject(o, func([]byte) bool { return true })
	if err != nil {
		return nil, err
	}
	secret.Generated = true
	first := slices.IndexFunc(objects, func(o Object) bool {
		return o.Group != "" || o.Kind != "Namespace" || o.Hook != nil
	})
	if first < 0 {
		first = len(objects)
	}
	return slices.Insert(objects, first, secret), nil
}

// buildObject returns the object of a result. isGenerated reports whether a manifest contains a
// generated value.
func (r *renderRun) buildObject(o *manifest.Object, isGenerated func(manifest []byte) bool) (Object, error) {
	raw, err := manifest.Canonical(o.Value)
	if err != nil {
		return Object{}, &Error{File: o.File, Line: o.Line, Message: fmt.Sprintf("%s cannot be encoded as JSON", o),
			Err: err}
	}
	out := Object{
		Ref:     Ref{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
		Version: o.Version, NamespaceDefaulted: o.NamespaceDefaulted,
		Manifest: raw, File: o.File, Line: o.Line,
		Hash:          contentHash(o, raw, r.req.SecretKey, isGenerated(raw)),
		InitialFields: o.InitialPointers(),
	}
	policy := ObjectPolicyOf(o.Value)
	out.CreateOnly, out.Recreate, out.IgnoreHealth = policy.CreateOnly || o.CreateOnly, policy.Recreate,
		policy.IgnoreHealth
	out.Serves = ServedKindOf(out.GroupKind(), o.Value)
	if o.Hook != nil {
		out.Hook = hookOf(o)
	}
	return out, nil
}

// hookOf returns the hook of an object of a result.
func hookOf(o *manifest.Object) *Hook {
	out := &Hook{Phase: HookPre, AlsoPost: o.Hook.AlsoPost, Weight: o.Hook.Weight,
		DeletePolicies: o.Hook.DeletePolicies, Stays: o.Hook.Stays}
	switch {
	case o.Hook.PreRemove:
		out.Phase = HookPreRemove
	case o.Hook.Inactive:
		out.Phase = HookInactive
	case o.Hook.Post:
		out.Phase = HookPost
	}
	if !manifest.Runs(o) {
		if o.Hook.PreDelete { // the removal needs it
			out.DeletePolicies = []string{"before-hook-creation"}
		}
		return out
	}
	spec, _ := o.Value["spec"].(map[string]any)
	switch ttl := spec["ttlSecondsAfterFinished"].(type) {
	case int64:
		out.TTLSeconds = &ttl
	case float64:
		out.TTLSeconds = new(int64(ttl))
	case int:
		out.TTLSeconds = new(int64(ttl))
	}
	return out
}
