package convert

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/Masterminds/semver/v3"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// chartOfRelease sets the chart of the component, from the source of the release.
func (c *converter) chartOfRelease(v *conversion, r *helmRelease) {
	spec, field := &r.Spec, "spec.chart.spec"
	var chart chartTemplate
	switch {
	case spec.Chart != nil:
		chart = spec.Chart.Spec
	case spec.ChartRef == nil:
		v.refuse("spec.chart", "there is neither chart nor chartRef")
		return
	case spec.ChartRef.Kind == "OCIRepository":
		c.chartOfOCIRepository(v, spec.ChartRef.within(v.ref.namespace), r)
		return
	default:
		field = "spec.chartRef"
		ref := spec.ChartRef.within(v.ref.namespace)
		o := c.lookup(v, sourceGroup, ref)
		if o == nil || ref.kind != "HelmChart" {
			v.refuse(field, fmt.Sprintf("%s is not among the objects; add its file with -f", ref))
			return
		}
		var own struct {
			Spec chartTemplate `json:"spec"`
		}
		if err := convertValue(o.Value, &own); err != nil {
			v.refuse(field, err.Error())
			return
		}
		chart = own.Spec
	}
	if chart.Verify != nil {
		v.note(field+".verify", "set verify of the repository in spec.charts of the install")
	}
	source := chart.SourceRef.within(v.ref.namespace)
	if source.kind != "HelmRepository" {
		c.chartInSource(v, field, source, &chart)
		return
	}
	if len(chart.ValuesFiles) > 0 {
		v.refuse(field+".valuesFiles", "files of a chart in a repository can't be selected; copy their values to "+
			"values "+
			"of the HelmRelease")
	}
	c.chartOfRepository(v, r, field, source, &chart)
}

// chartInSource sets a chart in this repository.
func (c *converter) chartInSource(v *conversion, field string, source reference, chart *chartTemplate) {
	if !c.sources[source.String()] {
		v.refuse(field+".sourceRef", fmt.Sprintf("%s is not this repository; copy the chart into it, or name the "+
			"source "+
			"with --source", source))
		return
	}
	dir, err := pathInRepository(chart.Chart)
	if err == nil {
		_, err = os.Stat(filepath.Join(c.work, dir))
	}
	if err != nil {
		v.refuse(field+".chart", fmt.Sprintf("%q can't be used: %s", chart.Chart, pathReason(err)))
		return
	}
	helm := v.components[0].Helm
	helm.Chart = path.Join("../..", dir)
	v.setChartRoot(v.components[0].Name, filepath.Join(c.work, dir))
	v.spec.SourceRef = appsv1.SourceRef{Kind: source.kind, Name: source.name}
	if source.namespace != v.namespace {
		v.spec.SourceRef.Namespace = source.namespace
	}
	own := path.Join(dir, "values.yaml")
	for i, file := range chart.ValuesFiles {
		clean, err := pathInRepository(file)
		switch {
		case err != nil:
			v.refuse(fmt.Sprintf("%s.valuesFiles[%d]", field, i), err.Error())
		case i == 0 && clean != own:
			v.refuse(field+".valuesFiles", "the values.yaml of the chart is always read first; list it first, too")
		case clean != own:
			helm.ValuesFiles = append(helm.ValuesFiles, path.Join("../..", clean))
			v.valuesFiles = append(v.valuesFiles, filepath.Join(c.work, clean))
		}
	}
}

// chartOfRepository sets a chart in a chart repository.
func (c *converter) chartOfRepository(v *conversion, r *helmRelease, field string, source reference,
	chart *chartTemplate) {
	var repository struct {
		Spec struct {
			URL             string   `json:"url"`
			SecretRef       *nameRef `json:"secretRef"`
			CertSecretRef   *nameRef `json:"certSecretRef"`
			PassCredentials bool     `json:"passCredentials"`
			Insecure        bool     `json:"insecure"`
		} `json:"spec"`
	}
	o := c.lookup(v, sourceGroup, source)
	if o == nil {
		v.refuse(field+".sourceRef", fmt.Sprintf("%s is not among the objects; add its file with -f", source))
		return
	}
	if err := convertValue(o.Value, &repository); err != nil {
		v.refuse(field+".sourceRef", err.Error())
		return
	}
	v.sourceSettings(field+".sourceRef", o)
	from := &repository.Spec
	v.fromRepository(strings.TrimSuffix(from.URL, "/"), chart.Chart)
	v.version(field+".version", chart.Version, c.statusOf(v, r))
	if from.SecretRef != nil || from.CertSecretRef != nil || from.PassCredentials || from.Insecure {
		access := appsv1.ChartRepository{Repository: v.components[0].Helm.Repository,
			PassCredentials: from.PassCredentials, Insecure: from.Insecure}
		access.SecretRef, access.CertSecretRef = localRef(from.SecretRef), localRef(from.CertSecretRef)
		v.spec.Charts = append(v.spec.Charts, access)
		if source.namespace != v.namespace && (from.SecretRef != nil || from.CertSecretRef != nil) {
			v.note(field+".sourceRef", fmt.Sprintf("copy the Secrets of %s to the namespace %s, where the install "+
				"reads them",
				source, v.namespace))
		}
	}
	c.ownSource(v)
}

// chartOfOCIRepository sets the chart that an OCIRepository names.
func (c *converter) chartOfOCIRepository(v *conversion, source reference, r *helmRelease) {
	var repository struct {
		Spec struct {
			URL           string   `json:"url"`
			Insecure      bool     `json:"insecure"`
			SecretRef     *nameRef `json:"secretRef"`
			CertSecretRef *nameRef `json:"certSecretRef"`
			Ref           struct {
				Tag    string `json:"tag"`
				SemVer string `json:"semver"`
				Digest string `json:"digest"`
			} `json:"ref"`
		} `json:"spec"`
	}
	o := c.lookup(v, sourceGroup, source)
	if o == nil {
		v.refuse("spec.chartRef", fmt.Sprintf("%s is not among the objects; add its file with -f", source))
		return
	}
	if err := convertValue(o.Value, &repository); err != nil {
		v.refuse("spec.chartRef", err.Error())
		return
	}
	v.sourceSettings("spec.chartRef", o)
	from := &repository.Spec
	v.fromRepository(path.Dir(strings.Replace(from.URL, "://", "%", 1)), path.Base(from.URL))
	v.components[0].Helm.Repository = strings.Replace(v.components[0].Helm.Repository, "%", "://", 1)
	v.components[0].Helm.Digest = from.Ref.Digest
	v.version("spec.chartRef", cmp.Or(from.Ref.Tag, from.Ref.SemVer), c.statusOf(v, r))
	if from.SecretRef != nil || from.CertSecretRef != nil || from.Insecure {
		v.spec.Charts = append(v.spec.Charts, appsv1.ChartRepository{Repository: v.components[0].Helm.Repository,
			Insecure: from.Insecure, SecretRef: localRef(from.SecretRef), CertSecretRef: localRef(from.CertSecretRef)})
	}
	c.ownSource(v)
}

// sourceSettings lists fields of the source of a chart that the install lacks.
func (v *conversion) sourceSettings(field string, source *Object) {
	fields := []string{"proxySecretRef", "provider"}
	if source.ref().kind == "OCIRepository" {
		fields = append(fields, "verify", "layerSelector", "serviceAccountName")
	}
	for _, name := range fields {
		if value := nested(source.Value, "spec", name); value != nil && value != "generic" && value != "" {
			v.note(field, fmt.Sprintf("spec.%s of %s is not used; set spec.charts of the install if the chart needs "+
				"it", name, source.ref()))
		}
	}
}

func (v *conversion) fromRepository(url, name string) {
	v.components[0].Helm.Repository, v.components[0].Helm.Name = url, text(name)
}

// statusOf returns the status of a release, which only the object in the cluster has.
func (c *converter) statusOf(v *conversion, r *helmRelease) any {
	var found []any
	for i := range c.opts.Objects {
		if o := &c.opts.Objects[i]; r.Status == nil && o.is(helmGroup, "HelmRelease") && o.ref() == v.ref &&
			o.File == "" && o.Value["status"] != nil {
			found = append(found, o.Value["status"])
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return r.Status
}

// version sets the exact version of a chart; for a range, the one that is installed.
func (v *conversion) version(field, version string, status any) {
	if !isExactVersion(version) {
		installed := ""
		if history, _ := nested(status, "history").([]any); len(history) > 0 {
			installed, _ = nested(history[0], "chartVersion").(string)
		}
		if !isExactVersion(installed) {
			v.refuse(field, fmt.Sprintf("%q is not one version; set the version that is installed now", version))
			return
		}
		v.note(field, fmt.Sprintf("%q is not one version: the stack has %s, which is installed "+
			"now", version, installed))
		version = installed
	}
	v.components[0].Version = text(version)
}

func isExactVersion(version string) bool {
	_, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	return err == nil
}

// ownSource sets the source of a stack whose chart is elsewhere: the repository, in which the stack
// is.
func (c *converter) ownSource(v *conversion) {
	v.spec.SourceRef = c.repositorySource(v.namespace)
}
