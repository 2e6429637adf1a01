package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

// Media types of the layers that "helm push" writes.
const (
	contentMediaType    types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	provenanceMediaType types.MediaType = "application/vnd.cncf.helm.chart.provenance.v1.prov"
)

// Maximum sizes, in bytes, of the responses of a registry other than archives.
const (
	maxManifest = 4 << 20
	maxTags     = 4 << 20
)

// ociRepository is one repository of an OCI registry.
type ociRepository struct {
	client *http.Client
	base   url.URL
}

// resolveFromRegistry finds a chart in an OCI registry.
func (f *Fetcher) resolveFromRegistry(ctx context.Context, client *http.Client, ref stacks.ChartRef,
	access *Access) (*resolvedChart, error) {
	r, err := connect(ctx, client, ref, access)
	if err != nil {
		return nil, err
	}
	// A tag can't contain a plus; Helm replaces it with an underscore.
	tag := strings.ReplaceAll(ref.Version, "+", "_")
	data, gone, err := fetchURL(ctx, r.client, r.contentURL("manifests", tag), "the manifest of the chart", maxManifest,
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2))
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, terminalError(NotFound, "the registry does not have this chart and version%s",
			nearestHint(ref.Version, r.listVersions(ctx)))
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, terminalError(RepositoryInvalid, "the manifest of the chart can't be parsed")
	}
	content, prov := findLayer(manifest, contentMediaType), findLayer(manifest, provenanceMediaType)
	if content == nil {
		return nil, terminalError(RepositoryInvalid,
			"the artifact in the registry is not a Helm chart: its manifest has no layer of type %s", contentMediaType)
	}
	sum := sha256.Sum256(data)
	manifestDigest := "sha256:" + hex.EncodeToString(sum[:])
	out := &resolvedChart{digest: content.Digest.String(), manifestDigest: manifestDigest, client: r.client,
		url: r.contentURL("blobs", content.Digest.String()), fileName: ref.Name + "-" + ref.Version + ".tgz"}
	if ref.Digest != "" && ref.Digest != out.digest && ref.Digest != manifestDigest {
		return nil, pinMismatchError(ref, manifestDigest)
	}
	out.fetchProvenance = func(ctx context.Context) ([]byte, bool, error) {
		if prov == nil {
			return nil, false, nil
		}
		data, gone, err := fetchURL(ctx, r.client, r.contentURL("blobs", prov.Digest.String()),
			"the .prov layer of the chart", maxProvenance)
		return data, !gone, err
	}
	return out, nil
}

func findLayer(m *v1.Manifest, mediaType types.MediaType) *v1.Descriptor {
	for i := range m.Layers {
		if m.Layers[i].MediaType == mediaType {
			return &m.Layers[i]
		}
	}
	return nil
}

// connect authenticates at the registry. It replaces the transport of client with one that sends
// the token.
func connect(ctx context.Context, client *http.Client, ref stacks.ChartRef, access *Access) (*ociRepository, error) {
	var options []name.Option
	if access.repo.Insecure {
		options = append(options, name.Insecure)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(ref.Repository, "oci://"), "/")
	repo, err := name.NewRepository(address+"/"+ref.Name, options...)
	if err != nil {
		return nil, terminalError(RepositoryInvalid,
			"the address of the repository or the name of the chart is invalid: want lower-case letters, digits, "+
				"dashes, dots and slashes")
	}
	auth := authn.Anonymous
	if access.auth != (authn.AuthConfig{}) {
		auth = authn.FromConfig(access.auth)
	}
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth,
		oci.NewCredentialGuard(client.Transport, repo.RegistryStr()), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, registryError(ctx, err)
	}
	client.Transport = rt
	base := url.URL{Scheme: "https", Host: repo.RegistryStr(), Path: "/v2/" + repo.RepositoryStr()}
	if access.repo.Insecure {
		base.Scheme = repo.Scheme()
	}
	return &ociRepository{client: client, base: base}, nil
}

// registryError is the *Error for a failed authentication. It does not quote the response, which
// can contain anything, including the credentials that were sent.
func registryError(ctx context.Context, err error) *Error {
	var answer *transport.Error
	if errors.As(err, &answer) && ctx.Err() == nil {
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			return transientError(AccessDenied, nil, "access to the registry is denied: it answered %d %s",
				answer.StatusCode, http.StatusText(answer.StatusCode))
		}
		return transientError(Unreachable, nil, "the registry answered %d %s", answer.StatusCode,
			http.StatusText(answer.StatusCode))
	}
	return requestError(ctx, err, "the registry")
}

func (r *ociRepository) contentURL(kind, identifier string) string {
	return r.base.JoinPath(kind, identifier).String()
}

// listVersions returns the versions that the registry lists, or nil if it fails: they only improve
// a message.
func (r *ociRepository) listVersions(ctx context.Context) []string {
	u := r.base.JoinPath("tags", "list")
	u.RawQuery = "n=1000"
	data, gone, err := fetchURL(ctx, r.client, u.String(), "the list of tags", maxTags)
	if err != nil || gone {
		return nil
	}
	var list struct {
		Tags []string `json:"tags"`
	}
	if json.Unmarshal(data, &list) != nil {
		return nil
	}
	for i := range list.Tags {
		list.Tags[i] = strings.ReplaceAll(list.Tags[i], "_", "+")
	}
	return list.Tags
}
