package helm

import (
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

// helmVersion is what charts see as .Capabilities.HelmVersion; fixed, because
// what a build of this program was linked with is no input of a render.
const helmVersion = "v4.3.1"

// Options of a render.
type Options struct {
	Release   string
	Namespace string
	// Values above those of the chart.
	Values      map[string]any
	KubeVersion string
	APIVersions []string
	// Seed of random functions, together with the chart and the template.
	Seed []byte
}

// Render renders the chart into objects. Warnings are for the user.
func (c *Chart) Render(ctx context.Context, o Options) (objects []*manifest.Object, warnings []string, err error) {
	kube, err := common.ParseKubeVersion(o.KubeVersion)
	if err != nil {
		return nil, nil, c.fail("", "the target's Kubernetes version %q is not a version", o.KubeVersion)
	}
	if want := c.pristine.Metadata.KubeVersion; want != "" && !util.IsCompatibleRange(want, kube.String()) {
		return nil, nil, c.fail("Chart.yaml", "the chart is for Kubernetes %s, and the target has %s", want, o.KubeVersion)
	}
	loaded, vals, err := c.prepare(o.Values)
	if err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, &problem.Error{Message: "the render was stopped: " + err.Error(), Err: err}
	}
	f := &functions{seed: append(slices.Clone(o.Seed), c.Digest...), used: map[string][]string{}}
	f.begin("")
	instrument(loaded)
	rendered, err := c.execute(ctx, loaded, vals, kube, o, f)
	if err != nil {
		return nil, nil, err
	}
	if objects, warnings, err = c.collect(loaded, rendered); err != nil {
		return nil, nil, err
	}
	if loaded.Metadata.Deprecated {
		warnings = append(warnings, fmt.Sprintf("%s: the chart says that it is deprecated", c.Path))
	}
	return objects, append(warnings, c.randomWarnings(loaded, f)...), nil
}

// instrument puts a call in front of every template that tells our functions its name.
func instrument(ch *chart.Chart) {
	for i, t := range ch.Templates {
		name := path.Join(ch.ChartFullPath(), t.Name)
		ch.Templates[i] = &common.File{Name: t.Name, Data: slices.Concat([]byte("{{"+beginFunc+" "+strconv.Quote(name)+"}}"), t.Data)}
	}
	for _, sub := range ch.Dependencies() {
		instrument(sub)
	}
}

func (c *Chart) execute(ctx context.Context, loaded *chart.Chart, vals map[string]any, kube *common.KubeVersion, o Options, f *functions) (map[string]string, error) {
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = *kube
	caps.APIVersions = common.VersionSet(o.APIVersions)
	caps.HelmVersion.Version = helmVersion
	caps.HelmVersion.GitCommit, caps.HelmVersion.GitTreeState, caps.HelmVersion.GoVersion = "", "clean", ""
	release := common.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}
	top, err := commonutil.ToRenderValuesWithSchemaValidation(loaded, vals, release, caps, true)
	if err != nil {
		return nil, &problem.Error{File: c.Path, Message: "the values cannot be laid over those of the chart", Err: err}
	}
	rendered, err := engine.Engine{CustomTemplateFuncs: f.funcMap()}.RenderWithContext(ctx, loaded, top)
	if err != nil {
		return nil, c.templateError(loaded, f, err)
	}
	return rendered, nil
}

// file is the path below the root of the source of a template as the engine names it.
func (c *Chart) file(loaded *chart.Chart, template string) string {
	return path.Join(c.Path, strings.TrimPrefix(template, loaded.Name()+"/"))
}

var (
	// The engine's errors are text; the place is taken from it for the message only.
	simplePlace = regexp.MustCompile(`^(?:execution|parse) error (?:at|in) \(([^():]+)(?::(\d+))?(?::\d+)?\): ((?s).*)$`)
	tracePlace  = regexp.MustCompile(`(?m)^\s*([^\s:]+):(\d+):\d+$`)
	chainPlace  = regexp.MustCompile(`template: ([^\s:]+/[^\s:]+):(\d+):\d+: `)
)

func (c *Chart) templateError(loaded *chart.Chart, f *functions, err error) error {
	out := &problem.Error{File: c.Path, Message: "the template failed: " + oneLine(err.Error()), Err: err}
	if m := simplePlace.FindStringSubmatch(err.Error()); m != nil {
		out.File = c.file(loaded, m[1])
		out.Line, _ = strconv.Atoi(m[2])
		out.Message = "the template failed: " + oneLine(m[3])
	} else if all := tracePlace.FindAllStringSubmatch(err.Error(), -1); all != nil {
		last := all[len(all)-1]
		out.File = c.file(loaded, last[1])
		out.Line, _ = strconv.Atoi(last[2])
		out.Message = "the template failed: " + oneLine(tracePlace.ReplaceAllString(err.Error(), ""))
	}
	if all := chainPlace.FindAllStringSubmatchIndex(err.Error(), -1); all != nil && out.Line == 0 {
		text, last := err.Error(), all[len(all)-1]
		out.File = c.file(loaded, text[last[2]:last[3]])
		out.Line, _ = strconv.Atoi(text[last[4]:last[5]])
		out.Message = "the template failed: " + oneLine(text[last[1]:])
	}
	if f.refused != "" {
		out.Message = fmt.Sprintf("the template uses %s, which is not allowed: it takes %s, and each render would differ; %s", f.refused, whence(f.refused), advice(f.refused))
	}
	return out
}

func whence(name string) string {
	if what, ok := instead[name]; ok {
		return what
	}
	return "the clock"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// randomWarnings names templates whose output rests on random functions.
func (c *Chart) randomWarnings(loaded *chart.Chart, f *functions) []string {
	var out []string
	for template, names := range f.used {
		slices.Sort(names)
		out = append(out, fmt.Sprintf("%s uses %s: what it makes is derived from the install and the chart, and changes when the chart does; better give it a value",
			c.file(loaded, template), strings.Join(names, ", ")))
	}
	slices.Sort(out)
	return out
}
