package chart

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/problem"
)

// fromIndex finds a chart in a repository with an index.yaml.
func (f *Fetcher) fromIndex(ctx context.Context, client *http.Client, ref stacks.ChartRef, access *Access) (*found, error) {
	base, err := url.Parse(strings.TrimSuffix(ref.Repository, "/") + "/")
	if err != nil {
		return nil, fail(RepositoryInvalid, "the address of the repository can't be read")
	}
	auth := &authorised{hosts: []string{hostOf(base)}, auth: access.auth}
	auth.next, client.Transport = client.Transport, auth
	entry, err := f.lookUp(ctx, client, base, ref)
	if err != nil {
		return nil, err
	}
	out := &found{client: client}
	if out.digest, err = indexDigest(entry, ref); err != nil {
		return nil, err
	}
	at, err := archiveURL(base, entry, ref)
	if err != nil {
		return nil, err
	}
	if access.repo.PassCredentials {
		auth.hosts = append(auth.hosts, hostOf(at))
	}
	out.url, out.file = at.String(), path.Base(at.Path)
	out.provenance = func(ctx context.Context) ([]byte, bool, error) {
		prov := *at
		prov.Path, prov.RawPath = at.Path+".prov", ""
		data, gone, err := read(ctx, client, prov.String(), "its .prov file", maxProvenance)
		return data, !gone, err
	}
	return out, nil
}

// lookUp reads the index and takes one version of one chart from it. One index at a
// time: in memory it is many times as large.
func (f *Fetcher) lookUp(ctx context.Context, client *http.Client, base *url.URL, ref stacks.ChartRef) (*indexEntry, error) {
	select {
	case f.reading <- struct{}{}:
		defer func() { <-f.reading }()
	case <-ctx.Done():
		return nil, retry(Unreachable, context.Cause(ctx), "interrupted while waiting to read the index")
	}
	data, gone, err := read(ctx, client, base.JoinPath("index.yaml").String(), "the index of the repository", f.indexBytes)
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, retry(Unreachable, nil, "there is no index.yaml at this address")
	}
	versions, names, err := readIndex(data, ref.Name)
	if err != nil {
		return nil, &Error{Reason: RepositoryInvalid, Message: "the index of the repository can't be read", Err: err}
	}
	if names != nil {
		e := fail(NotFound, "the repository has no chart of that name")
		if near := problem.Nearest(ref.Name, names); near != "" {
			e.Message += "; did you mean " + near + "?"
		}
		return nil, e
	}
	var have []string
	for i := range versions {
		if v := &versions[i]; v.Version == ref.Version && !v.Removed {
			return v, nil
		}
		have = append(have, versions[i].Version)
	}
	return nil, fail(NotFound, "the repository does not have this version%s", withNearest(ref.Version, have))
}

// indexDigest is what the archive must be: what the index says, and what is pinned.
func indexDigest(entry *indexEntry, ref stacks.ChartRef) (string, error) {
	if entry.Digest == "" {
		if ref.Digest == "" {
			return "", fail(RepositoryInvalid, "the index of the repository gives no digest for it; %s", toPin(ref))
		}
		return ref.Digest, nil
	}
	digest := "sha256:" + strings.ToLower(strings.TrimPrefix(entry.Digest, "sha256:"))
	if _, err := artifact.ParseDigest(digest); err != nil {
		return "", fail(RepositoryInvalid, "the index of the repository gives a digest for it that is not one of SHA-256")
	}
	if ref.Digest != "" && ref.Digest != digest {
		return "", pinMismatch(ref, digest)
	}
	return digest, nil
}

// toPin is what can be done about a chart that nobody else vouches for.
func toPin(ref stacks.ChartRef) string {
	if ref.DependencyOf != "" {
		return "vendor it (helm dependency build) and commit it"
	}
	return "pin one with helm.digest in the stack"
}

// namedIn is where the repository of a chart is written.
func namedIn(ref stacks.ChartRef) string {
	if ref.DependencyOf != "" {
		return "Chart.yaml"
	}
	return "the stack"
}

func pinMismatch(ref stacks.ChartRef, digest string) *Error {
	return fail(DigestMismatch, "the repository has %s under this version, and %s is pinned; if it was published anew, look at what changed and pin the new digest", digest, ref.Digest)
}

// archiveURL is where the index says that an archive is.
func archiveURL(base *url.URL, entry *indexEntry, ref stacks.ChartRef) (*url.URL, error) {
	for _, raw := range entry.URLs {
		at, err := base.Parse(raw)
		if err != nil || at.Host == "" {
			continue
		}
		switch at.Scheme {
		case "https":
			at.User, at.Fragment = nil, "" // credentials are the install's to give
			return at, nil
		case "oci":
			return nil, fail(RepositoryInvalid, "the index says that it is at oci://%s%s; name that repository in %s", at.Host, path.Dir(at.Path), namedIn(ref))
		}
	}
	return nil, fail(RepositoryInvalid, "the index of the repository gives no https address for it")
}
