package helm

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// helmVersion is the .Capabilities.HelmVersion of charts. It is a constant, because the Helm
// version that this program is linked with is not an input of a render.
const helmVersion = "v4.3.1"

// Options are the options of a render.
type Options struct {
	Release   string
	Namespace string
	// Values override the chart's own values.
	Values      map[string]any
	KubeVersion string
	APIVersions []string
	// Seed of random functions. The digest of the chart and the name of the template are part of
	// the seed, too.
	Seed []byte
}

// Render renders the chart to objects. warnings are for the user.
func (c *Chart) Render(ctx context.Context, o Options) (objects []*manifest.Object, warnings []string, err error) {
	kube, err := common.ParseKubeVersion(o.KubeVersion)
	if err != nil {
		return nil, nil, c.errorf("", "the target's Kubernetes version %q is not a version", o.KubeVersion)
	}
	if want := c.pristine.Metadata.KubeVersion; want != "" && !util.IsCompatibleRange(want, kube.String()) {
		return nil, nil, c.errorf("Chart.yaml", "the chart requires Kubernetes %s, but the target has %s", want, o.KubeVersion)
	}
	loaded, vals, err := c.prepare(o.Values)
	if err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, problem.Newf("the render was stopped: %w", err)
	}
	f := &templateFuncs{seed: append(slices.Clone(o.Seed), c.Digest...), used: map[string][]string{}}
	f.begin("")
	instrument(loaded)
	rendered, err := c.execute(ctx, loaded, vals, kube, o, f)
	if err != nil {
		return nil, nil, err
	}
	if objects, warnings, err = c.collectObjects(loaded, rendered); err != nil {
		return nil, nil, err
	}
	if loaded.Metadata.Deprecated {
		warnings = append(warnings, fmt.Sprintf("%s: the chart is deprecated", c.Path))
	}
	return objects, append(warnings, c.randomWarnings(loaded, f)...), nil
}

// instrument prepends to every template a call that sets the current template of templateFuncs.
func instrument(ch *chart.Chart) {
	for i, t := range ch.Templates {
		name := path.Join(ch.ChartFullPath(), t.Name)
		ch.Templates[i] = &common.File{Name: t.Name, Data: slices.Concat([]byte("{{"+beginFunc+" "+strconv.Quote(name)+"}}"), t.Data)}
	}
	for _, sub := range ch.Dependencies() {
		instrument(sub)
	}
}

func (c *Chart) execute(ctx context.Context, loaded *chart.Chart, vals map[string]any, kube *common.KubeVersion, o Options, f *templateFuncs) (map[string]string, error) {
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = *kube
	caps.APIVersions = common.VersionSet(o.APIVersions)
	caps.HelmVersion.Version = helmVersion
	caps.HelmVersion.GitCommit, caps.HelmVersion.GitTreeState, caps.HelmVersion.GoVersion = "", "clean", ""
	release := common.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}
	top, err := commonutil.ToRenderValuesWithSchemaValidation(loaded, vals, release, caps, true)
	if err != nil {
		return nil, &problem.Error{File: c.Path, Message: "the values cannot be merged with the chart's values", Err: err}
	}
	rendered, err := engine.Engine{CustomTemplateFuncs: f.funcMap()}.RenderWithContext(ctx, loaded, top)
	if err != nil {
		return nil, c.templateError(loaded, f, err)
	}
	return rendered, nil
}

// templateFile converts the name of a template in the engine to its path below the root of the
// source.
func (c *Chart) templateFile(loaded *chart.Chart, template string) string {
	return path.Join(c.Path, strings.TrimPrefix(template, loaded.Name()+"/"))
}

var (
	// The engine has no typed errors. These patterns extract file and line from their text, only
	// for the message.
	simplePlace = regexp.MustCompile(`^(?:execution|parse) error (?:at|in) \(([^():]+)(?::(\d+))?(?::\d+)?\): ((?s).*)$`)
	tracePlace  = regexp.MustCompile(`(?m)^\s*([^\s:]+):(\d+):\d+$`)
	chainPlace  = regexp.MustCompile(`template: ([^\s:]+/[^\s:]+):(\d+):\d+: `)
)

func (c *Chart) templateError(loaded *chart.Chart, f *templateFuncs, err error) error {
	text := err.Error()
	out := &problem.Error{File: c.Path, Message: "the template failed: " + oneLine(text), Err: err}
	locate := func(template, line, message string) {
		out.File, out.Message = c.templateFile(loaded, template), "the template failed: "+oneLine(message)
		out.Line, _ = strconv.Atoi(line)
	}
	if m := simplePlace.FindStringSubmatch(text); m != nil {
		locate(m[1], m[2], m[3])
	} else if all := tracePlace.FindAllStringSubmatch(text, -1); all != nil {
		last := all[len(all)-1]
		locate(last[1], last[2], tracePlace.ReplaceAllString(text, ""))
	}
	if all := chainPlace.FindAllStringSubmatchIndex(text, -1); all != nil && out.Line == 0 {
		last := all[len(all)-1]
		locate(text[last[2]:last[3]], text[last[4]:last[5]], text[last[1]:])
	}
	if f.refused != "" {
		out.Message = fmt.Sprintf("the template uses %s, which is not allowed: the function depends on %s, so that each render would differ; %s", f.refused, cmp.Or(refusedFuncs[f.refused], "the clock"), refusalAdvice(f.refused))
	}
	return out
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// randomWarnings returns a warning for every template that uses random functions.
func (c *Chart) randomWarnings(loaded *chart.Chart, f *templateFuncs) []string {
	var out []string
	for template, names := range f.used {
		slices.Sort(names)
		out = append(out, fmt.Sprintf("%s uses %s: what it makes is derived from the install and the chart, and changes when the chart does; better give it a value",
			c.templateFile(loaded, template), strings.Join(names, ", ")))
	}
	slices.Sort(out)
	return out
}
