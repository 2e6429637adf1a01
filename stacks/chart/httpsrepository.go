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

// resolveFromIndex finds a chart in an HTTPS repository, which has an index.yaml.
func (f *Fetcher) resolveFromIndex(ctx context.Context, client *http.Client, ref stacks.ChartRef,
	access *Access) (*resolvedChart, error) {
	base, err := url.Parse(strings.TrimSuffix(ref.Repository, "/") + "/")
	if err != nil {
		return nil, terminalError(RepositoryInvalid, "the address of the repository is not a valid URL")
	}
	auth := &credentialTransport{hosts: []string{hostOf(base)}, auth: access.auth}
	auth.next, client.Transport = client.Transport, auth
	entry, err := f.findIndexEntry(ctx, client, base, ref)
	if err != nil {
		return nil, err
	}
	out := &resolvedChart{client: client}
	if out.digest, err = expectedDigest(entry, ref); err != nil {
		return nil, err
	}
	at, err := archiveURL(base, entry, ref)
	if err != nil {
		return nil, err
	}
	if access.repo.PassCredentials {
		auth.hosts = append(auth.hosts, hostOf(at))
	}
	out.url, out.fileName = at.String(), path.Base(at.Path)
	out.fetchProvenance = func(ctx context.Context) ([]byte, bool, error) {
		prov := *at
		prov.Path, prov.RawPath = at.Path+".prov", ""
		data, gone, err := fetchURL(ctx, client, prov.String(), "the .prov file of the chart", maxProvenance)
		return data, !gone, err
	}
	return out, nil
}

// findIndexEntry downloads the index and returns the entry of one chart version. It reads one index
// at a time, because a parsed index takes many times its size in memory.
func (f *Fetcher) findIndexEntry(ctx context.Context, client *http.Client, base *url.URL,
	ref stacks.ChartRef) (*indexEntry, error) {
	select {
	case f.indexSlot <- struct{}{}:
		defer func() { <-f.indexSlot }()
	case <-ctx.Done():
		return nil, transientError(Unreachable, context.Cause(ctx), "interrupted while waiting to read the index")
	}
	data, gone, err := fetchURL(ctx, client, base.JoinPath("index.yaml").String(), "the index of the repository",
		f.indexBytes)
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, transientError(Unreachable, nil, "the repository has no index.yaml at this address")
	}
	versions, names, err := readIndex(data, ref.Name)
	if err != nil {
		return nil, &Error{Reason: RepositoryInvalid, Message: "the index of the repository can't be read", Err: err}
	}
	if names != nil {
		e := terminalError(NotFound, "the repository has no chart of that name")
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
	return nil, terminalError(NotFound, "the repository does not have this version%s", nearestHint(ref.Version, have))
}

// expectedDigest returns the digest that the archive must have: that of the index, or the pinned
// one if the index has none. If both exist, they must be equal.
func expectedDigest(entry *indexEntry, ref stacks.ChartRef) (string, error) {
	if entry.Digest == "" {
		if ref.Digest == "" {
			return "", terminalError(RepositoryInvalid,
				"the index of the repository has no digest for this version; %s", pinAdvice(ref))
		}
		return ref.Digest, nil
	}
	digest := "sha256:" + strings.ToLower(strings.TrimPrefix(entry.Digest, "sha256:"))
	if _, err := artifact.ParseDigest(digest); err != nil {
		return "", terminalError(RepositoryInvalid, "the digest in the index of the repository is not a SHA-256 digest")
	}
	if ref.Digest != "" && ref.Digest != digest {
		return "", pinMismatchError(ref, digest)
	}
	return digest, nil
}

// pinAdvice is the advice for a chart that has no digest in its repository.
func pinAdvice(ref stacks.ChartRef) string {
	if ref.DependencyOf != "" {
		return "vendor the chart (helm dependency build) and commit it"
	}
	return "pin a digest with helm.digest in the stack"
}

// referencingFile names the file that references the repository of a chart.
func referencingFile(ref stacks.ChartRef) string {
	if ref.DependencyOf != "" {
		return "Chart.yaml"
	}
	return "the stack"
}

func pinMismatchError(ref stacks.ChartRef, digest string) *Error {
	return terminalError(DigestMismatch, "the repository has digest %s for this version, but %s is pinned; if the "+
		"version was published again, review the change and pin the new digest", digest, ref.Digest)
}

// archiveURL returns the first usable URL of an index entry. It must be https.
func archiveURL(base *url.URL, entry *indexEntry, ref stacks.ChartRef) (*url.URL, error) {
	for _, raw := range entry.URLs {
		u, err := base.Parse(raw)
		if err != nil || u.Host == "" {
			continue
		}
		switch u.Scheme {
		case "https":
			u.User, u.Fragment = nil, "" // only the install provides credentials
			return u, nil
		case "oci":
			return nil, terminalError(RepositoryInvalid,
				"the index lists the archive at oci://%s%s; set that repository in %s", u.Host, path.Dir(u.Path),
				referencingFile(ref))
		}
	}
	return nil, terminalError(RepositoryInvalid, "the index of the repository has no https URL for this version")
}
