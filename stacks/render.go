package stacks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"

	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Render renders a stack for one install. It is a function of the request and of
// the files below Root and below those of its Charts, and touches nothing else.
func Render(ctx context.Context, req Request) (Result, error) {
	digest, err := Digest(req)
	if err != nil {
		return Result{}, err
	}
	tree, err := source.Open(req.Root)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = tree.Close() }()
	tree.Decrypt(req.Decrypted)
	result, err := renderFrom(ctx, tree, req)
	// What was met encrypted comes first: whatever else is wrong may follow from it.
	if files := encryptedIn(tree, &req); len(files) > 0 {
		return Result{}, &EncryptedError{Stack: req.Stack, Files: files}
	}
	if err != nil {
		return Result{}, err
	}
	if len(result.Warnings) > 0 {
		maskOf(tree, &req).warnings(result.Warnings)
	}
	result.Digest, result.Trace, result.Decrypted = digest, tree.Trace(), tree.Opened()
	return result, nil
}

func renderFrom(ctx context.Context, tree *source.Tree, req Request) (Result, error) {
	def, err := loadFrom(tree, req.Root, req.Path, req.Stack, req.ChartLimits)
	if err != nil && len(req.Decrypted) > 0 {
		err = maskOf(tree, &req).err(err) // of what the install chose nothing was read yet
	}
	if err != nil {
		return Result{}, err
	}
	if err := checkKubernetes(def, req.Capabilities.KubeVersion); err != nil {
		return Result{}, err
	}
	plan, err := resolve(ctx, tree, def, req)
	if err != nil {
		return Result{}, maskOf(tree, &req).err(err)
	}
	r := &renderer{ctx: ctx, req: req, tree: tree, def: def, plan: plan}
	result, err := r.render()
	if err != nil {
		return Result{}, maskOf(tree, &req).err(err)
	}
	return result, nil
}

// checkKubernetes compares the target's version, without what a vendor appended,
// with the range of the stack.
func checkKubernetes(def *Definition, version string) error {
	if def.Spec.Kubernetes == "" {
		return nil
	}
	at := def.at("spec", "kubernetes")
	have, err := semver.NewVersion(version)
	if err != nil {
		return at.fail("the stack is for Kubernetes %s, and the target's version %q is not one", def.Spec.Kubernetes, version)
	}
	wanted, err := semver.NewConstraint(def.Spec.Kubernetes)
	if err != nil {
		return at.must("must be a range of versions")
	}
	plain := semver.New(have.Major(), have.Minor(), have.Patch(), "", "")
	if !wanted.Check(plain) {
		return at.fail("the stack is for Kubernetes %s, and the target has %s", def.Spec.Kubernetes, version)
	}
	return nil
}

// renderer renders one plan.
type renderer struct {
	ctx      context.Context
	req      Request
	tree     *source.Tree
	def      *Definition
	plan     *Plan
	warnings []string
}

func (r *renderer) render() (Result, error) {
	rendered := make([][]*manifest.Object, len(r.plan.Components))
	for i := range r.plan.Components {
		p := &r.plan.Components[i]
		if r.tries() && p.Component.Helm != nil {
			continue // all that it reads was read
		}
		objects, err := r.guarded(p, func() ([]*manifest.Object, error) { return r.content(p) })
		if err != nil && !r.tries() {
			return Result{}, err
		}
		rendered[i] = objects
	}
	if r.tries() {
		return Result{}, nil
	}
	if err := r.place(rendered); err != nil {
		return Result{}, err
	}
	changed := false
	for i := range r.plan.Components {
		p := &r.plan.Components[i]
		o := kustomizeOverride(p)
		if o.Empty() {
			continue
		}
		changed = true
		objects, err := r.guarded(p, func() ([]*manifest.Object, error) { return kustomize.Apply(r.ctx, rendered[i], o) })
		if err != nil {
			return Result{}, err
		}
		rendered[i] = objects
	}
	if changed {
		if err := r.place(rendered); err != nil {
			return Result{}, err
		}
	}
	for i, objects := range rendered {
		if err := r.suspend(&r.plan.Components[i], objects); err != nil {
			return Result{}, err
		}
		for _, o := range objects {
			manifest.Normalise(o)
		}
		manifest.Sort(objects)
	}
	return r.result(rendered)
}

// guarded runs one step of a component; a panic in a renderer is an error of this render only.
func (r *renderer) guarded(p *PlannedComponent, step func() ([]*manifest.Object, error)) (objects []*manifest.Object, err error) {
	defer func() {
		if v := recover(); v != nil {
			objects, err = nil, r.blame(p, &Error{Message: fmt.Sprintf("the renderer gave up: %v", v)})
		}
	}()
	if err = r.ctx.Err(); err != nil {
		return nil, r.blame(p, &Error{Message: "the render was stopped: " + err.Error(), Err: err})
	}
	if objects, err = step(); err != nil {
		return nil, r.blame(p, err)
	}
	return objects, nil
}

// place gives every object its namespace; then none may be there twice.
func (r *renderer) place(rendered [][]*manifest.Object) error {
	scopes := manifest.ScopesOf(slices.Concat(rendered...))
	var placed []manifest.Placed
	for i, objects := range rendered {
		p := &r.plan.Components[i]
		for _, o := range objects {
			scopes.Place(o, p.Namespace)
			placed = append(placed, manifest.Placed{Object: o, Component: p.Component.Name})
		}
	}
	return manifest.Duplicates(placed).Err()
}

// content renders one component, before overrides.
func (r *renderer) content(p *PlannedComponent) ([]*manifest.Object, error) {
	c := p.Component
	r.tree.For(c.Name)
	switch {
	case c.Helm != nil && p.chart == nil:
		return nil, nil // left out, with a warning
	case c.Helm != nil:
		objects, warnings, err := p.chart.Render(r.ctx, helm.Options{
			Release: releaseName(c), Namespace: p.Namespace, Values: p.Values,
			KubeVersion: r.req.Capabilities.KubeVersion, APIVersions: r.req.Capabilities.APIVersions,
			Seed: r.seed(c),
		})
		for _, w := range warnings {
			r.warnings = append(r.warnings, fmt.Sprintf("component %q: %s", c.Name, w))
		}
		return objects, err
	case c.Kustomize != nil:
		dir, err := source.Clean(r.def.dir, c.Kustomize.Path)
		if err != nil {
			return nil, err
		}
		return kustomize.Build(r.ctx, r.tree, dir)
	}
	return r.manifests(c)
}

// seed of random functions. It is keyed, so that who reads the source can't tell a
// password that a chart makes up.
func (r *renderer) seed(c *Component) []byte {
	mac := hmac.New(sha256.New, r.req.SecretKey)
	for _, part := range []string{r.req.Install.Namespace, r.req.Install.Name, c.Name} {
		_, _ = fmt.Fprintf(mac, "%d %s\n", len(part), part)
	}
	return mac.Sum(nil)
}

// blame says which component errors are about.
func (r *renderer) blame(p *PlannedComponent, err error) error {
	var out Errors
	for _, e := range problem.All(err) {
		own := *e
		own.Component = p.Component.Name
		if own.File == "" {
			own.Stack = r.def.Metadata.Name
		}
		out = append(out, &own)
	}
	return out.Err()
}

func (r *renderer) result(rendered [][]*manifest.Object) (Result, error) {
	namespaces, err := r.namespaces(rendered)
	if err != nil {
		return Result{}, err
	}
	out := Result{StackVersion: r.def.Spec.Version, Warnings: append(r.plan.Warnings, r.warnings...)}
	for i, objects := range rendered {
		p := &r.plan.Components[i]
		c := RenderedComponent{
			Name: p.Component.Name, Version: p.Version, DependsOn: p.Component.DependsOn, Wave: p.Wave,
			ReadyExpr: p.Component.ReadyExpr, Objects: make([]Object, 0, len(objects)), CreateNamespace: namespaces[i], Chart: p.fetched,
			ChartDependencies: p.dependencies,
		}
		if p.Component.Helm != nil {
			c.Release = &Release{Namespace: p.Namespace, Name: releaseName(p.Component)}
		}
		for _, o := range objects {
			object, err := r.object(o)
			if err != nil {
				return Result{}, r.blame(p, err)
			}
			c.Objects = append(c.Objects, object)
		}
		out.Components = append(out.Components, c)
	}
	return out, nil
}

func (r *renderer) object(o *manifest.Object) (Object, error) {
	raw, err := manifest.Canonical(o.Value)
	if err != nil {
		return Object{}, &Error{File: o.File, Line: o.Line, Message: fmt.Sprintf("%s cannot be written as JSON", o), Err: err}
	}
	out := Object{
		Ref:     Ref{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
		Version: o.Version, NamespaceDefaulted: o.NamespaceDefaulted,
		Manifest: raw, File: o.File, Line: o.Line,
		Hash: contentHash(o, raw, r.req.SecretKey),
	}
	if o.Hook != nil {
		out.Hook = &Hook{Phase: HookPre, Weight: o.Hook.Weight, DeletePolicies: o.Hook.DeletePolicies}
		switch {
		case o.Hook.PreRemove:
			out.Hook.Phase = HookPreRemove
		case o.Hook.Post:
			out.Hook.Phase = HookPost
		}
	}
	return out, nil
}
