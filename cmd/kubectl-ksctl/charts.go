package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/chart"
	"github.com/ksctl/gitops/stacks/checkout"
)

// fetchCharts fetches the charts from chart repositories that a render needs, like the controller.
// The caller must call cleanup after the render.
func (o *renderOptions) fetchCharts(ctx context.Context, install *checkout.Install,
	req *stacks.Request) (cleanup func(), err error) {
	given, err := parseSecrets(o.secrets)
	if err != nil {
		return nil, err
	}
	refs, err := stacks.RequiredCharts(*req)
	if err != nil || len(refs) == 0 {
		return func() {}, err
	}
	if o.offline {
		var errs []error
		for _, ref := range refs {
			errs = append(errs, fmt.Errorf("component %q: %s must be fetched, which --offline forbids", ref.Component,
				ref))
		}
		return nil, errors.Join(errs...)
	}
	dir, err := os.MkdirTemp("", "kubectl-ksctl-charts-")
	if err != nil {
		return nil, err
	}
	clean := func() { _ = os.RemoveAll(dir) }
	fetcher, err := chart.NewFetcher(chart.Options{Dir: dir})
	if err != nil {
		clean()
		return nil, err
	}
	release, err := fetcher.FetchAll(ctx, req, func(repository string) (*chart.Access, error) {
		return chartAccess(install, repository, given)
	})
	if err != nil {
		clean()
		return nil, err
	}
	return func() { release(); clean() }, nil
}

// chartAccess returns the access to a chart repository that the install configures, with the
// content of Secrets from flags; nil if spec.charts does not list the repository.
func chartAccess(install *checkout.Install, repository string,
	given map[string]map[string][]byte) (*chart.Access, error) {
	repo := chart.FindRepository(install.Spec.Charts, repository)
	if repo == nil {
		return nil, nil
	}
	secrets, err := chart.ReadSecrets(repo, func(name string) (map[string][]byte, error) {
		if given[name] == nil {
			return nil, fmt.Errorf("spec.charts of the install uses Secret %s for %s; set --secret %s/KEY=FILE for "+
				"each of its keys", name, repository, name)
		}
		return given[name], nil
	})
	if err != nil {
		return nil, err
	}
	return chart.NewAccess(repo, secrets)
}

// parseSecrets parses flags of the form name/key=file. It returns the contents of the files by name
// and key.
func parseSecrets(flags []string) (map[string]map[string][]byte, error) {
	out := map[string]map[string][]byte{}
	for _, flag := range flags {
		ref, file, ok := strings.Cut(flag, "=")
		name, key, _ := strings.Cut(ref, "/")
		if !ok || name == "" || key == "" {
			return nil, fmt.Errorf("--secret %s: name/key=file is expected", flag)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if out[name] == nil {
			out[name] = map[string][]byte{}
		}
		out[name][key] = data
	}
	return out, nil
}
