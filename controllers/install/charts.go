package install

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/chart"
)

// chartChangedError is the error if a repository serves another chart than the installed one for
// the same version.
func chartChangedError(ref stacks.ChartRef, installed string) error {
	accept := "pin the digest with helm.digest in the stack, or with digest next to the version in the install"
	if ref.DependencyOf != "" {
		accept = "vendor it (helm dependency build) and commit it"
	}
	return reconcile.NewTerminalError(appsv1.ChartChangedReason, "component %q: %s has changed: the repository now "+
		"serves %s for this version, but %s is installed; "+
		"review the change, then %s", ref.Component, ref, ref.Digest, installed, accept)
}

// chartSecrets are the contents of the Secrets of spec.charts, by repository.
type chartSecrets map[string]chart.Secrets

// chartSecretsFor reads the Secrets of spec.charts.
func chartSecretsFor(in *appsv1.KsctlInstall, read configReader) (chartSecrets, error) {
	out := chartSecrets{}
	for i := range in.Spec.Charts {
		repo := &in.Spec.Charts[i]
		secrets, err := chart.ReadSecrets(repo, func(name string) (map[string][]byte, error) {
			v, err := read("Secret", name)
			switch {
			case err != nil:
				return nil, fmt.Errorf("spec.charts: reading Secret %q for the repository %s: %w", name,
					repo.Repository, err)
			case v.version == "":
				return nil, content.NewChartSecretError(repo.Repository, in.Namespace, name)
			}
			return v.data, nil
		})
		if err != nil {
			return nil, err
		}
		out[repo.Repository] = secrets
	}
	return out, nil
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

// checkChartDigests returns an error if a fetched chart differs from the installed chart
// of the same version. A pinned digest permits the difference.
func checkChartDigests(in *appsv1.KsctlInstall, req *stacks.Request) error {
	if len(req.Charts) == 0 {
		return nil
	}
	pinned, err := stacks.RequiredCharts(*req)
	if err != nil {
		return err
	}
	for _, f := range req.Charts {
		if slices.ContainsFunc(pinned, func(p stacks.ChartRef) bool {
			hasDigest := p.Digest != ""
			p.Digest = f.Digest
			return hasDigest && p == f.ChartRef
		}) {
			continue
		}
		for _, installed := range installedCharts(in, f.Component) {
			if installed.Repository == f.Repository && installed.Name == f.Name && installed.Version == f.Version &&
				installed.Digest != f.Digest {
				return chartChangedError(f.ChartRef, installed.Digest)
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

func chartStatus(r *stacks.ChartRef) appsv1.ChartStatus {
	return appsv1.ChartStatus{Repository: r.Repository, Name: r.Name, Version: r.Version, Digest: r.Digest}
}
