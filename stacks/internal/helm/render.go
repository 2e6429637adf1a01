package helm

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/ksctl/gitops/stacks/generated"
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
	// Revision of the release: above 1, the render is that of an upgrade. 0 means 1.
	Revision int
	// Values override the chart's own values.
	Values      map[string]any
	KubeVersion string
	APIVersions []string
	// Seed of what is derived. The digest of the chart is part of the seed, too.
	Seed []byte
	// Generation is how templates generate values.
	Generation Generation
	// WithoutHooks leaves out all hooks, with a warning, and SkipHooks without one.
	WithoutHooks, SkipHooks bool
	// WithoutCRDs leaves out the folder crds/. CreateOnlyCRDs marks its objects as CreateOnly.
	WithoutCRDs, CreateOnlyCRDs bool
}

func (o *Options) isUpgrade() bool { return o.Revision > 1 }

// Rendered is a rendered chart.
type Rendered struct {
	Objects []*manifest.Object
	// Notes is what the chart tells its users: its NOTES.txt, without those of subcharts.
	Notes string
	// Warnings are for the user.
	Warnings []string
	// Generated has the values that the templates generated, now or earlier. It is also set if the
	// render failed, because messages may contain them.
	Generated *generated.Values
}

// Render renders the chart to objects.
func (c *Chart) Render(ctx context.Context, o Options) (Rendered, error) {
	kube, err := common.ParseKubeVersion(o.KubeVersion)
	if err != nil {
		return Rendered{}, c.errorf("", "the target's Kubernetes version %q is not a version", o.KubeVersion)
	}
	if want := c.chart.Metadata.KubeVersion; want != "" && !util.IsCompatibleRange(want, kube.String()) {
		return Rendered{}, c.errorf("Chart.yaml", "the chart requires Kubernetes %s, but the target has %s", want,
			o.KubeVersion)
	}
	o.Generation.last = o.Generation.Stored
	out, moved, err := c.renderOnce(ctx, kube, o)
	// What is made from a value that moved follows it: a checksum, a salted hash, a certificate of
	// an authority.
	for round := 1; err == nil && len(moved) > 0 && round < maxRounds; round++ {
		o.Generation.Stored = move(out.Generated, moved)
		out, moved, err = c.renderOnce(ctx, kube, o)
	}
	return out, err
}

// maxRounds bounds the executions of the templates of one render.
const maxRounds = 4

// renderOnce also returns the values that moved to other calls, see generator.place.
func (c *Chart) renderOnce(ctx context.Context, kube *common.KubeVersion,
	o Options) (Rendered, map[string]generated.Value, error) {
	p, err := c.prepare(o.Values)
	if err != nil {
		return Rendered{}, nil, err
	}
	loaded := p.chart
	if err := ctx.Err(); err != nil {
		return Rendered{}, nil, problem.Newf("the render was stopped: %w", err)
	}
	g := newGenerator(o.Generation, c.Name(), append(slices.Clone(o.Seed), c.digest...),
		o.Generation.Stored.Hash(c.digest, string(p.json)))
	out := Rendered{Generated: g.out}
	instrument(loaded)
	files, err := c.execute(ctx, p, kube, o, g)
	out.Notes = strings.TrimSpace(files[loaded.Name()+"/templates/NOTES.txt"])
	if refused := g.refusal(func(function, file string) []problem.Error {
		return c.findCalls(loaded, function, file)
	}); refused != nil {
		return out, nil, refused
	}
	if err != nil {
		return out, nil, err
	}
	if out.Objects, out.Warnings, err = c.collectObjects(loaded, files, o); err != nil {
		return out, nil, err
	}
	if loaded.Metadata.Deprecated {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s: the chart is deprecated", c.Path))
	}
	out.Warnings = append(out.Warnings, g.warnings(func(file string) string { return c.templateFile(loaded, file) })...)
	moved := g.place(out.Objects)
	g.forgetUnused()
	return out, moved, nil
}

// callOfBegin returns the text that instrument puts before a template.
func callOfBegin(name string) []byte {
	return []byte("{{" + beginFunc + " " + strconv.Quote(name) + "}}")
}

// instrument makes every template file call beginFunc and endFunc.
func instrument(ch *chart.Chart) {
	for i, t := range ch.Templates {
		name := path.Join(ch.ChartFullPath(), t.Name)
		ch.Templates[i] = &common.File{Name: t.Name,
			Data: slices.Concat(callOfBegin(name), t.Data, []byte("{{"+endFunc+"}}"))}
	}
	for _, sub := range ch.Dependencies() {
		instrument(sub)
	}
}

// execute executes the templates with the same top-level values as Helm's ToRenderValues.
func (c *Chart) execute(ctx context.Context, p *prepared, kube *common.KubeVersion, o Options,
	g *generator) (map[string]string, error) {
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = *kube
	caps.APIVersions = common.VersionSet(o.APIVersions)
	caps.HelmVersion.Version = helmVersion
	caps.HelmVersion.GitCommit, caps.HelmVersion.GitTreeState, caps.HelmVersion.GoVersion = "", "clean", ""
	top := common.Values{
		"Capabilities": caps,
		"Release": map[string]any{"Name": o.Release, "Namespace": o.Namespace, "IsUpgrade": o.isUpgrade(),
			"IsInstall": !o.isUpgrade(), "Revision": max(o.Revision, 1), "Service": "Helm"},
		"Values": p.coalesced,
	}
	rendered, err := engine.Engine{CustomTemplateFuncs: g.funcMap()}.RenderWithContext(ctx, p.chart, top)
	if err != nil {
		return nil, c.templateError(p.chart, err)
	}
	return rendered, nil
}

// templateFile converts the name of a template in the engine to its path below the root of the
// source.
func (c *Chart) templateFile(loaded *chart.Chart, template string) string {
	return path.Join(c.Path, strings.TrimPrefix(template, loaded.Name()+"/"))
}

// findCalls returns the lines of a template file that name a function; if there are none, those of
// partials, which the file may include; if there are none either, as for a template in a value, the
// file.
func (c *Chart) findCalls(loaded *chart.Chart, function, file string) []problem.Error {
	word := regexp.MustCompile(`\b` + function + `\b`)
	var here, partials []problem.Error
	var walk func(*chart.Chart)
	walk = func(ch *chart.Chart) {
		for _, t := range ch.Templates {
			name := path.Join(ch.ChartFullPath(), t.Name)
			text := bytes.TrimPrefix(t.Data, callOfBegin(name))
			if !word.Match(text) || name != file && !strings.HasPrefix(path.Base(name), "_") {
				continue
			}
			for i, line := range bytes.Split(text, []byte("\n")) {
				found := problem.Error{File: c.templateFile(loaded, name), Line: i + 1}
				switch {
				case !word.Match(line):
				case name == file:
					here = append(here, found)
				default:
					partials = append(partials, found)
				}
			}
		}
		for _, sub := range ch.Dependencies() {
			walk(sub)
		}
	}
	walk(loaded)
	switch {
	case len(here) > 0:
		return here
	case len(partials) > 0:
		return partials
	}
	return []problem.Error{{File: c.templateFile(loaded, file)}}
}

var (
	// The engine has no typed errors. These patterns extract file and line from their text, only
	// for the message.
	simplePlace = regexp.MustCompile(
		`^(?:execution|parse) error (?:at|in) \(([^():]+)(?::(\d+))?(?::\d+)?\): ((?s).*)$`)
	tracePlace = regexp.MustCompile(`(?m)^\s*([^\s:]+):(\d+):\d+$`)
	chainPlace = regexp.MustCompile(`template: ([^\s:]+/[^\s:]+):(\d+):\d+: `)
)

func (c *Chart) templateError(loaded *chart.Chart, err error) error {
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
	return out
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
