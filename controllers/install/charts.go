package install

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/chart"
)

// Condition reasons for charts from repositories, in addition to those of package chart.
const (
	// ChartChangedReason means that a repository serves another chart for an installed version.
	ChartChangedReason = "ChartChanged"
)

// ChartChangedError is returned if a repository serves another chart than the installed one for the
// same version.
type ChartChangedError struct {
	Ref       stacks.ChartRef
	Installed string
}

func (e *ChartChangedError) Error() string {
	accept := "pin the digest with helm.digest in the stack, or with digest next to the version in the install"
	if e.Ref.DependencyOf != "" {
		accept = "vendor it (helm dependency build) and commit it"
	}
	return fmt.Sprintf("component %q: %s has changed: the repository now serves %s for this version, but %s is installed; "+
		"review the change, then %s", e.Ref.Component, e.Ref, e.Ref.Digest, e.Installed, accept)
}

// chartSecrets are the contents of the Secrets of spec.charts, by repository.
type chartSecrets map[string]chart.Secrets

// chartSecretsFor reads the Secrets of spec.charts with the install's service account, like
// valuesFor does with values.
func (s *Steps) chartSecretsFor(ctx context.Context, o *owner, c dynamic.Interface, seen map[valuesKey]cachedValues) (chartSecrets, error) {
	out := chartSecrets{}
	for i := range o.req.Object.Spec.Charts {
		repo := &o.req.Object.Spec.Charts[i]
		secrets, err := chart.ReadSecrets(repo, func(name string) (map[string][]byte, error) {
			return s.chartSecret(ctx, o, c, repo.Repository, name, seen)
		})
		if err != nil {
			return nil, err
		}
		out[repo.Repository] = secrets
	}
	return out, nil
}

func (s *Steps) chartSecret(ctx context.Context, o *owner, c dynamic.Interface, repository, name string, seen map[valuesKey]cachedValues) (map[string][]byte, error) {
	key := valuesKey{"Secret", name}
	v, ok := seen[key]
	if !ok {
		var err error
		if v, err = s.readValues(ctx, o, c, key); err != nil {
			return nil, fmt.Errorf("spec.charts: reading Secret %q for the repository %s: %w", name, repository, err)
		}
		seen[key] = v
	}
	if v.version == "" {
		return nil, &content.ChartSecretError{Repository: repository, Namespace: o.req.Object.Namespace, Name: name}
	}
	return v.data, nil
}

// fingerprint returns a keyed hash of the chart repositories and their credentials. It is part of
// the render digest, because a chart that was fetched with other credentials may not be accessible
// with these.
func (cs chartSecrets) fingerprint(in *appsv1.KsctlInstall, key []byte) (string, error) {
	if len(in.Spec.Charts) == 0 {
		return "", nil
	}
	raw, err := json.Marshal(struct {
		Charts  []appsv1.ChartRepository
		Secrets chartSecrets
	}{in.Spec.Charts, cs})
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(raw)
	return "+" + hex.EncodeToString(mac.Sum(nil)), nil
}

// access returns a function that returns the credentials for a repository. They are nil for
// anonymous access.
func (cs chartSecrets) access(in *appsv1.KsctlInstall) func(string) (*chart.Access, error) {
	return func(repository string) (*chart.Access, error) {
		repo := chart.FindRepository(in.Spec.Charts, repository)
		if repo == nil {
			return nil, nil
		}
		return chart.NewAccess(repo, cs[repo.Repository])
	}
}

// checkChartDigests returns a ChartChangedError if a fetched chart differs from the installed chart
// of the same version. A pinned digest permits the difference.
func checkChartDigests(in *appsv1.KsctlInstall, req *stacks.Request) error {
	if len(req.Charts) == 0 {
		return nil
	}
	pinned, err := stacks.RequiredCharts(*req)
	if err != nil {
		return err
	}
	for i, f := range req.Charts {
		if pinned[i].Digest != "" {
			continue
		}
		for _, installed := range installedCharts(in, f.Component) {
			if installed.Repository == f.Repository && installed.Name == f.Name && installed.Version == f.Version && installed.Digest != f.Digest {
				return &ChartChangedError{Ref: f.ChartRef, Installed: installed.Digest}
			}
		}
	}
	return nil
}

// installedCharts returns the charts from repositories that the installed component was rendered
// from.
func installedCharts(in *appsv1.KsctlInstall, component string) (out []appsv1.ChartStatus) {
	for _, c := range in.Status.Components {
		if c.Name != component {
			continue
		}
		out = append(out, c.ChartDependencies...)
		if c.Chart != nil {
			out = append(out, *c.Chart)
		}
	}
	return out
}

// chartStatus returns the status of the charts from repositories that a component was rendered
// from.
func chartStatus(c *stacks.RenderedComponent) (own *appsv1.ChartStatus, dependencies []appsv1.ChartStatus) {
	status := func(r *stacks.ChartRef) appsv1.ChartStatus {
		return appsv1.ChartStatus{Repository: r.Repository, Name: r.Name, Version: r.Version, Digest: r.Digest}
	}
	if c.Chart != nil {
		ownStatus := status(c.Chart)
		own = &ownStatus
	}
	for i := range c.ChartDependencies {
		dependencies = append(dependencies, status(&c.ChartDependencies[i]))
	}
	return own, dependencies
}
