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

// renderFetching renders, and fetches the charts from chart repositories that the render needs,
// like the controller.
func (o *renderOptions) renderFetching(ctx context.Context, install *checkout.Install,
	req stacks.Request) (result stacks.Result, err error) {
	given, err := parseSecrets(o.secrets)
	if err != nil {
		return result, err
	}
	cluster, err := o.cluster(install)
	if err != nil {
		return result, err
	}
	render := func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		return o.renderWithFacts(ctx, install, cluster, req)
	}
	if o.offline {
		return renderOffline(ctx, req, render)
	}
	dir, err := os.MkdirTemp("", "kubectl-ksctl-charts-")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fetcher, err := chart.NewFetcher(chart.Options{Dir: dir})
	if err != nil {
		return result, err
	}
	return fetcher.Render(ctx, req, func(repository string) (*chart.Access, error) {
		return chartAccess(install, repository, given)
	}, render)
}

// renderOffline renders. It fails if charts must be fetched.
func renderOffline(ctx context.Context, req stacks.Request,
	render func(context.Context, stacks.Request) (stacks.Result, error)) (result stacks.Result, err error) {
	refs, err := stacks.RequiredCharts(req)
	if err == nil && len(refs) == 0 {
		result, err = render(ctx, req)
		if missing, ok := errors.AsType[*stacks.MissingChartsError](err); ok {
			refs, err = missing.Charts, nil
		}
	}
	errs := []error{err}
	for _, ref := range refs {
		errs = append(errs, fmt.Errorf("component %q: %s must be fetched, which --offline forbids", ref.Component, ref))
	}
	return result, errors.Join(errs...)
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
