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

// Media types of what "helm push" makes.
const (
	contentMediaType    types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	provenanceMediaType types.MediaType = "application/vnd.cncf.helm.chart.provenance.v1.prov"
)

// Limits of what a registry says beside archives.
const (
	maxManifest = 4 << 20
	maxTags     = 4 << 20
)

// ociRepository is one repository of an OCI registry.
type ociRepository struct {
	repo   name.Repository
	client *http.Client
	base   url.URL
}

// fromRegistry finds a chart in an OCI registry.
func (f *Fetcher) fromRegistry(ctx context.Context, client *http.Client, ref stacks.ChartRef, access *Access) (*found, error) {
	r, err := dial(ctx, client, ref, access)
	if err != nil {
		return nil, err
	}
	// A tag can't have a plus; Helm writes it so.
	tag := strings.ReplaceAll(ref.Version, "+", "_")
	data, gone, err := read(ctx, r.client, r.at("manifests", tag), "its manifest", maxManifest,
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2))
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, fail(NotFound, "the registry does not have it%s", withNearest(ref.Version, r.versions(ctx)))
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, fail(RepositoryInvalid, "its manifest in the registry can't be read")
	}
	content, prov := layer(manifest, contentMediaType), layer(manifest, provenanceMediaType)
	if content == nil {
		return nil, fail(RepositoryInvalid, "what the registry has under this name is no Helm chart: it has no layer of type %s", contentMediaType)
	}
	sum := sha256.Sum256(data)
	manifestDigest := "sha256:" + hex.EncodeToString(sum[:])
	out := &found{digest: content.Digest.String(), manifest: manifestDigest, client: r.client,
		url: r.at("blobs", content.Digest.String()), file: ref.Name + "-" + ref.Version + ".tgz"}
	if ref.Digest != "" && ref.Digest != out.digest && ref.Digest != manifestDigest {
		return nil, pinMismatch(ref, manifestDigest)
	}
	out.provenance = func(ctx context.Context) ([]byte, bool, error) {
		if prov == nil {
			return nil, false, nil
		}
		data, gone, err := read(ctx, r.client, r.at("blobs", prov.Digest.String()), "its .prov layer", maxProvenance)
		return data, !gone, err
	}
	return out, nil
}

func layer(m *v1.Manifest, mediaType types.MediaType) *v1.Descriptor {
	for i := range m.Layers {
		if m.Layers[i].MediaType == mediaType {
			return &m.Layers[i]
		}
	}
	return nil
}

// dial asks the registry for a way in.
func dial(ctx context.Context, client *http.Client, ref stacks.ChartRef, access *Access) (*ociRepository, error) {
	var options []name.Option
	if access.repo.Insecure {
		options = append(options, name.Insecure)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(ref.Repository, "oci://"), "/")
	repo, err := name.NewRepository(address+"/"+ref.Name, options...)
	if err != nil {
		return nil, fail(RepositoryInvalid, "the address of the repository, or the name of the chart, is nothing that a registry can have: lower case letters, digits, dashes, dots and slashes are expected")
	}
	auth := authn.Anonymous
	if access.auth != (authn.AuthConfig{}) {
		auth = authn.FromConfig(access.auth)
	}
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth, oci.NewGuard(client.Transport, repo.RegistryStr()), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	client.Transport = rt
	base := url.URL{Scheme: "https", Host: repo.RegistryStr(), Path: "/v2/" + repo.RepositoryStr()}
	if access.repo.Insecure {
		base.Scheme = repo.Scheme()
	}
	return &ociRepository{repo: repo, client: client, base: base}, nil
}

// refusedBy is why a registry let nobody in. What it wrote is not repeated: it can
// hold anything, what was sent to it too.
func refusedBy(ctx context.Context, err error) *Error {
	var answer *transport.Error
	if errors.As(err, &answer) && ctx.Err() == nil {
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			return retry(AccessDenied, nil, "the registry refuses access: it answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
		}
		return retry(Unreachable, nil, "the registry answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return unreached(ctx, err, "the registry")
}

func (r *ociRepository) at(kind, identifier string) string {
	return r.base.JoinPath(kind, identifier).String()
}

// versions are those that the registry lists, as far as it does.
func (r *ociRepository) versions(ctx context.Context) []string {
	u := r.base.JoinPath("tags", "list")
	u.RawQuery = "n=1000"
	data, gone, err := read(ctx, r.client, u.String(), "the list of versions", maxTags)
	if err != nil || gone {
		return nil // it helps, and is not needed
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
