package checkout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/problem"
)

// Report is the result of Validate.
type Report struct {
	// Stacks and Installs are the numbers of checked stacks and installs.
	Stacks, Installs int
	// Definitions are the valid stacks, sorted by file.
	Definitions []*stacks.Definition
	// InOtherSources is the number of installs that were not checked, because their stack is in
	// another source or missing in the catalog.
	InOtherSources int
	Problems       stacks.Errors
	Warnings       []string
}

// String returns a summary in one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s", pluralize(r.Stacks, "stack"), pluralize(r.Installs, "install"))
	if r.InOtherSources > 0 {
		fmt.Fprintf(&b, " (%d more of other sources)", r.InOtherSources)
	}
	if len(r.Problems) == 0 {
		return b.String() + ": ok"
	}
	return b.String() + ": " + pluralize(len(r.Problems), "problem")
}

func pluralize(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Validate checks all stacks of a checkout, and all installs by rendering them as the controller
// would. If caps has no Kubernetes version, each stack is rendered with the version from
// stacks.NewestKubernetesVersion.
func (c *Checkout) Validate(ctx context.Context, caps stacks.Capabilities) Report {
	v := &validation{c: c, ctx: ctx, caps: caps, definitions: map[string]*stacks.Definition{}, used: map[string]bool{}}
	v.addProblems(c.problems)
	v.addProblems(c.checkSyncedPaths())
	for _, file := range c.Stacks {
		v.checkStack(file)
	}
	for i := range c.Installs {
		v.checkInstall(&c.Installs[i])
	}
	for _, file := range c.Stacks {
		v.checkUnusedStack(file)
	}
	v.report.Problems = problem.Flatten(v.report.Problems.Err())
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

func (v *validation) addProblems(errs stacks.Errors) {
	v.report.Problems = append(v.report.Problems, errs...)
}

func (v *validation) checkStack(file string) {
	v.report.Stacks++
	def, err := stacks.LoadFile(v.c.root, file)
	if v.warnEncrypted(err, file) {
		return
	}
	if err != nil {
		v.addProblems(problem.Flatten(err))
		return
	}
	v.definitions[file] = def
	v.report.Definitions = append(v.report.Definitions, def)
}

// warnEncrypted returns true if err is a *stacks.EncryptedError. It then adds a warning that the
// encrypted content is not checked.
func (v *validation) warnEncrypted(err error, what string) bool {
	met, ok := errors.AsType[*stacks.EncryptedError](err)
	if ok {
		v.warn("%s: %s encrypted with SOPS, so the rendered objects are not checked", what, met.Subject())
	}
	return ok
}

// checkInstall renders an install whose stack is in this checkout or in the catalog.
func (v *validation) checkInstall(i *Install) {
	if i.FromCatalog() {
		v.checkCatalogInstall(i)
		return
	}
	if !v.c.contains(i) {
		v.report.InOtherSources++
		return
	}
	v.report.Installs++
	file, err := stacks.FindFile(v.c.root, i.Spec.Path, i.Spec.Stack)
	if err != nil {
		v.addProblems(i.locate(err))
		return
	}
	v.used[file] = true
	def := v.definitions[file]
	if def == nil {
		return // checkStack has reported the problems
	}
	v.render(i, v.c.root, def)
}

// checkCatalogInstall renders an install whose stack is in the catalog. If the catalog does not
// have the stack, it only adds a warning.
func (v *validation) checkCatalogInstall(i *Install) {
	root, remove, err := i.UnpackCatalogStack()
	if absent, ok := errors.AsType[*catalog.NotFoundError](err); ok {
		v.report.InOtherSources++
		v.warn("%s:%d: %v; the install was not checked", i.File, i.lines.Of("spec.stackVersion"), absent)
		return
	}
	if err != nil {
		v.addProblems(i.locate(err))
		return
	}
	defer remove()
	v.report.Installs++
	def, err := stacks.LoadFile(root, stacks.FileName)
	if err != nil {
		v.addProblems(i.locate(err))
		return
	}
	v.render(i, root, def)
}

// render renders an install of the stack def below root.
func (v *validation) render(i *Install, root string, def *stacks.Definition) {
	req, missing, err := i.RenderRequest(root, v.capabilities(def), v.c.configData(i))
	if err != nil {
		v.addProblems(i.locate(err))
		return
	}
	req.WithoutCharts = true // validation fetches no charts
	result, err := stacks.Render(v.ctx, req)
	if v.warnEncrypted(err, fmt.Sprintf("%s:%d", i.File, i.Line)) {
		return
	}
	found := i.locate(err)
	for _, ref := range missing {
		v.warn("%s:%d: %s is not in this checkout; %q was checked without it", i.File, i.lines.Of(ref.Field),
			ref.Source, i.Name)
	}
	if len(missing) > 0 {
		for _, e := range found {
			v.warn("%s", e)
		}
		return
	}
	v.addProblems(found)
	for _, w := range result.Warnings {
		v.warn("%s:%d: %s", i.File, i.Line, w)
	}
}

// checkUnusedStack renders a stack that no install uses. Errors of charts are only warnings,
// because a chart may need choices; manifests and kustomizations must render.
func (v *validation) checkUnusedStack(file string) {
	def := v.definitions[file]
	if def == nil || v.used[file] {
		return
	}
	_, err := stacks.Render(v.ctx, stacks.Request{
		Root: v.c.root, Path: def.Dir(), Stack: def.Metadata.Name, Capabilities: v.capabilities(def),
		Install: stacks.Identity{Namespace: "default", Name: def.Metadata.Name}, WithoutCharts: true,
		Generate: generated.Options{Policy: generated.Placeholders},
	})
	if v.warnEncrypted(err, file) {
		return
	}
	for _, e := range problem.Flatten(err) {
		isChart := slices.ContainsFunc(def.Spec.Components, func(c stacks.Component) bool {
			return c.Name == e.Component && c.Helm != nil
		})
		if e.File != "" && !isChart {
			v.addProblems(stacks.Errors{e})
			continue
		}
		v.warn("no install uses this stack, and it does not render without choices: %s", e)
	}
}

func (v *validation) warn(format string, args ...any) {
	v.report.Warnings = append(v.report.Warnings, fmt.Sprintf(format, args...))
}

func (v *validation) capabilities(def *stacks.Definition) stacks.Capabilities {
	caps := v.caps
	caps.KubeVersion = cmp.Or(caps.KubeVersion, stacks.NewestKubernetesVersion(def))
	return caps
}
