package checkout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/problem"
)

// Report is the outcome of Validate.
type Report struct {
	// Stacks and Installs are how many were checked.
	Stacks, Installs int
	// Elsewhere is how many installs were not: their stack is in another source.
	Elsewhere int
	Problems  stacks.Errors
	Warnings  []string
}

// String is the summary in one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s", count(r.Stacks, "stack"), count(r.Installs, "install"))
	if r.Elsewhere > 0 {
		fmt.Fprintf(&b, " (%d more of other sources)", r.Elsewhere)
	}
	if len(r.Problems) == 0 {
		return b.String() + ": ok"
	}
	return b.String() + ": " + count(len(r.Problems), "problem")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Validate checks every stack of a checkout, and every install against its stack: it
// renders it, as the controller would. caps may name no Kubernetes version; then each
// stack gets the newest that it is for.
func (c *Checkout) Validate(ctx context.Context, caps stacks.Capabilities) Report {
	v := &validation{c: c, ctx: ctx, caps: caps, definitions: map[string]*stacks.Definition{}, used: map[string]bool{}}
	v.problems(c.problems)
	v.problems(c.checkSyncs())
	for _, file := range c.Stacks {
		v.stack(file)
	}
	for i := range c.Installs {
		v.install(&c.Installs[i])
	}
	for _, file := range c.Stacks {
		v.unused(file)
	}
	v.report.Problems = problem.All(v.report.Problems.Err())
	return v.report
}

type validation struct {
	c           *Checkout
	ctx         context.Context
	caps        stacks.Capabilities
	definitions map[string]*stacks.Definition
	used        map[string]bool
	report      Report
}

func (v *validation) problems(errs stacks.Errors) {
	v.report.Problems = append(v.report.Problems, errs...)
}

func (v *validation) stack(file string) {
	v.report.Stacks++
	def, err := stacks.LoadFile(v.c.root, file)
	if v.encrypted(err, file) {
		return
	}
	if err != nil {
		v.problems(problem.All(err))
		return
	}
	v.definitions[file] = def
}

// encrypted warns of what can't be checked here because it is encrypted; false: that is
// not what an error says.
func (v *validation) encrypted(err error, what string) bool {
	met, ok := errors.AsType[*stacks.EncryptedError](err)
	if ok {
		v.warn("%s: %s encrypted with SOPS, so that what is made of it is not checked here", what, met.Named())
	}
	return ok
}

// install renders an install whose stack is here.
func (v *validation) install(i *Install) {
	if i.OfCatalog() {
		v.shipped(i)
		return
	}
	if !v.c.holds(i) {
		v.report.Elsewhere++
		return
	}
	v.report.Installs++
	file, err := stacks.Find(v.c.root, i.Spec.Path, i.Spec.Stack)
	if err != nil {
		v.problems(i.place(problem.All(err)))
		return
	}
	v.used[file] = true
	def := v.definitions[file]
	if def == nil {
		return // its problems are told already
	}
	v.render(i, v.c.root, def)
}

// shipped renders an install whose stack is in the catalogue. Of one that is not
// shipped nothing is known here.
func (v *validation) shipped(i *Install) {
	root, remove, err := i.Unpack()
	var absent *catalog.Error
	if errors.As(err, &absent) {
		v.report.Elsewhere++
		v.warn("%s:%d: %v; it was not checked", i.File, i.lines.Of("spec.stackVersion"), absent)
		return
	}
	if err != nil {
		v.problems(i.place(problem.All(err)))
		return
	}
	defer remove()
	v.report.Installs++
	def, err := stacks.LoadFile(root, stacks.FileName)
	if err != nil {
		v.problems(i.place(problem.All(err)))
		return
	}
	v.render(i, root, def)
}

// render tries an install on the tree of its stack.
func (v *validation) render(i *Install, root string, def *stacks.Definition) {
	req, missing, err := i.Request(root, v.capabilities(def), v.c.values(i))
	if err != nil {
		v.problems(i.place(problem.All(err)))
		return
	}
	req.WithoutCharts = true // nothing is fetched here
	result, err := stacks.Render(v.ctx, req)
	if v.encrypted(err, fmt.Sprintf("%s:%d", i.File, i.Line)) {
		return
	}
	found := i.place(problem.All(err))
	for _, ref := range missing {
		v.warn("%s:%d: %s is not in this checkout; %q was checked without it", i.File, i.lines.Of("spec.valuesFrom"), stacks.ValuesSource(ref), i.Name)
	}
	if len(missing) > 0 {
		for _, e := range found {
			v.warn("%s", e)
		}
		return
	}
	v.problems(found)
	for _, w := range result.Warnings {
		v.warn("%s:%d: %s", i.File, i.Line, w)
	}
}

// unused tries a stack that no install uses. Without choices a chart may well not
// render; plain manifests and kustomizations must.
func (v *validation) unused(file string) {
	def := v.definitions[file]
	if def == nil || v.used[file] {
		return
	}
	_, err := stacks.Render(v.ctx, stacks.Request{
		Root: v.c.root, Path: def.Dir(), Stack: def.Metadata.Name, Capabilities: v.capabilities(def),
		Install: stacks.Identity{Namespace: "default", Name: def.Metadata.Name}, WithoutCharts: true,
	})
	if v.encrypted(err, file) {
		return
	}
	for _, e := range problem.All(err) {
		if e.File != "" && !isChart(def, e.Component) {
			v.problems(stacks.Errors{e})
			continue
		}
		v.warn("no install uses this stack, and without choices it doesn't render: %s", e)
	}
}

func isChart(def *stacks.Definition, component string) bool {
	for i := range def.Spec.Components {
		if c := &def.Spec.Components[i]; c.Name == component {
			return c.Helm != nil
		}
	}
	return false
}

func (v *validation) warn(format string, args ...any) {
	v.report.Warnings = append(v.report.Warnings, fmt.Sprintf(format, args...))
}

func (v *validation) capabilities(def *stacks.Definition) stacks.Capabilities {
	caps := v.caps
	if caps.KubeVersion == "" {
		caps.KubeVersion = stacks.NewestKubernetes(def)
	}
	return caps
}
