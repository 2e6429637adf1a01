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

// Reasons about charts of repositories, beside those of package chart.
const (
	// ChartChangedReason: a repository has another chart under a version that is installed.
	ChartChangedReason = "ChartChanged"
)

// ChartChangedError says that a repository has another chart than the one that is
// installed, under the same version.
type ChartChangedError struct {
	Ref       stacks.ChartRef
	Installed string
}

func (e *ChartChangedError) Error() string {
	accept := "pin the digest with helm.digest in the stack, or with digest beside the version in the install"
	if e.Ref.DependencyOf != "" {
		accept = "vendor it (helm dependency build) and commit it"
	}
	return fmt.Sprintf("component %q: %s: the repository has %s under this version now, and %s is installed: a version must not change; "+
		"look at what changed, then %s", e.Ref.Component, e.Ref, e.Ref.Digest, e.Installed, accept)
}

// chartSecrets are what the Secrets of spec.charts hold, by repository.
type chartSecrets map[string]chart.Secrets

// chartSecretsFor reads the Secrets of spec.charts as the install's account, as values are.
func (s *Steps) chartSecretsFor(ctx context.Context, o *owner, c dynamic.Interface, seen map[valuesKey]cachedValues) (chartSecrets, error) {
	out := chartSecrets{}
	for i := range o.req.Object.Spec.Charts {
		repo := &o.req.Object.Spec.Charts[i]
		secrets, err := chart.ReadSecrets(repo, func(name string) (map[string][]byte, error) {
			return s.secret(ctx, o, c, repo.Repository, name, seen)
		})
		if err != nil {
			return nil, err
		}
		out[repo.Repository] = secrets
	}
	return out, nil
}

func (s *Steps) secret(ctx context.Context, o *owner, c dynamic.Interface, repository, name string, seen map[valuesKey]cachedValues) (map[string][]byte, error) {
	key := valuesKey{"Secret", name}
	v, ok := seen[key]
	if !ok {
		var err error
		if v, err = s.readValues(ctx, o, c, key); err != nil {
			return nil, fmt.Errorf("spec.charts: Secret %q for the repository %s: %w", name, repository, err)
		}
		seen[key] = v
	}
	if v.version == "" {
		return nil, &content.ChartSecretError{Repository: repository, Namespace: o.req.Object.Namespace, Name: name}
	}
	return v.data, nil
}

// fingerprint of how charts are reached: another one may be refused what this one got.
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

// access is how an install reaches a repository; nil: as anybody.
func (cs chartSecrets) access(in *appsv1.KsctlInstall) func(string) (*chart.Access, error) {
	return func(repository string) (*chart.Access, error) {
		repo := chart.For(in.Spec.Charts, repository)
		if repo == nil {
			return nil, nil
		}
		return chart.NewAccess(repo, cs[repo.Repository])
	}
}

// unchanged refuses a chart that is not the one that was used before under the same
// version, unless its digest is pinned.
func unchanged(in *appsv1.KsctlInstall, req *stacks.Request) error {
	if len(req.Charts) == 0 {
		return nil
	}
	pinned, err := stacks.Charts(*req)
	if err != nil {
		return err
	}
	for i, f := range req.Charts {
		if pinned[i].Digest != "" {
			continue
		}
		for _, was := range usedBefore(in, f.Component) {
			if was.Repository == f.Repository && was.Name == f.Name && was.Version == f.Version && was.Digest != f.Digest {
				return &ChartChangedError{Ref: f.ChartRef, Installed: was.Digest}
			}
		}
	}
	return nil
}

// usedBefore are the charts of repositories that a component was rendered from.
func usedBefore(in *appsv1.KsctlInstall, component string) (out []appsv1.ChartStatus) {
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

// chartStatus is which charts of repositories a component was rendered from.
func chartStatus(c *stacks.RenderedComponent) (own *appsv1.ChartStatus, dependencies []appsv1.ChartStatus) {
	status := func(r *stacks.ChartRef) appsv1.ChartStatus {
		return appsv1.ChartStatus{Repository: r.Repository, Name: r.Name, Version: r.Version, Digest: r.Digest}
	}
	if c.Chart != nil {
		of := status(c.Chart)
		own = &of
	}
	for i := range c.ChartDependencies {
		dependencies = append(dependencies, status(&c.ChartDependencies[i]))
	}
	return own, dependencies
}
