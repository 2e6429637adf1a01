package stacks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// ReleaseRecord records the release of a chart component: its revision, as Helm counts it, and what
// it was rendered from.
type ReleaseRecord struct {
	// Revision is 1 for an install; later ones are upgrades.
	Revision int `json:"revision"`
	// Digest is a keyed hash of the chart, the merged values, the images, replicas and patches, and
	// the name and namespace of the release. An empty one equals any other.
	Digest string `json:"digest,omitempty"`
	// Complete is true once everything of the release was applied and its hooks are done.
	Complete bool `json:"complete,omitempty"`
	// Helm is the release of Helm that the component takes over, for its first render.
	Helm *HelmRelease `json:"helm,omitempty"`
}

// UnknownReleaseDigest is the digest of a release of which only the existence is known: the next
// render is an upgrade.
const UnknownReleaseDigest = "unknown"

// HelmRelease is what a release of Helm was rendered from.
type HelmRelease struct {
	Chart   string         `json:"chart"`
	Version string         `json:"version"`
	Values  map[string]any `json:"values,omitempty"`
}

// nextRelease returns the record of the release that is rendered now, with its digest. isSame
// reports whether it equals a release of Helm. It is a pure function.
func nextRelease(last ReleaseRecord, digest string, isSame func(*HelmRelease) bool) ReleaseRecord {
	switch {
	case last.Revision == 0, last.Revision == 1 && !last.Complete: // a failed install is mended as one
		return ReleaseRecord{Revision: 1, Digest: digest}
	case last.Helm != nil && isSame(last.Helm), last.Helm == nil && (last.Digest == "" || last.Digest == digest):
		return ReleaseRecord{Revision: last.Revision, Digest: digest, Complete: last.Complete}
	}
	return ReleaseRecord{Revision: last.Revision + 1, Digest: digest}
}

// release returns the record of the release of a chart component that is rendered now, and the
// record for the Secret with the values: its digest has the key of the values, so that it can be
// compared when everything else is lost.
func (r *renderRun) release(p *ResolvedComponent, values *generated.Values) (ReleaseRecord, *generated.Release, error) {
	raw, err := manifest.Canonical(struct {
		Chart    string
		Values   map[string]any
		Images   []Image
		Replicas []Replica
		Patches  []Patch
		Release  Release
		Fields   []any `json:",omitempty"`
		Changes  any   `json:",omitempty"`
	}{p.chart.Digest(), p.Values, p.Images, p.Replicas, p.Patches,
		Release{Namespace: p.Namespace, Name: p.releaseName}, digestedFields(p), p.digestedChanges()})
	if err != nil {
		return ReleaseRecord{}, nil, err
	}
	name := p.Component.Name
	digest, storedDigest := releaseDigest(r.randomSeed(p.Component), raw), releaseDigest(values.Key, raw)
	last, known := r.req.Releases[name]
	stored := r.req.Generate.Values[name]
	if !known && r.req.Releases != nil && stored != nil && stored.Release != nil {
		// The status was lost: what the Secret records was applied.
		last = ReleaseRecord{Revision: stored.Release.Revision, Complete: true}
		if stored.Release.Digest != storedDigest {
			last.Digest = UnknownReleaseDigest
		}
	}
	next := nextRelease(last, digest, func(h *HelmRelease) bool {
		return h.Chart == p.chart.Name() && h.Version == p.chart.Version() && p.chart.HasSameValues(p.Values, h.Values)
	})
	return next, &generated.Release{Revision: next.Revision, Digest: storedDigest}, nil
}

func releaseDigest(key, inputs []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(inputs)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:hashBytes])
}

// renderRevision renders a chart. A chart may refuse an upgrade that does not find its Secrets:
// while the answers are missing, and after a rotation, for which nothing is found, it is rendered
// as an install. A render with missing answers is never applied.
func (r *renderRun) renderRevision(p *ResolvedComponent, o helm.Options) (helm.Rendered, error) {
	rendered, err := p.chart.Render(r.ctx, o)
	values := rendered.Generated
	isMissing := func(l generated.Lookup) bool { return l.Asked || l.Emptied }
	if err == nil || o.Revision < 2 || values == nil ||
		!slices.ContainsFunc(slices.Collect(maps.Values(values.Lookups)), isMissing) {
		return rendered, err
	}
	o.Revision = 1
	if install, installErr := p.chart.Render(r.ctx, o); installErr == nil {
		return install, nil
	}
	return rendered, err
}

// addInitialFields marks the fields of a first release that the next one would not have. A chart
// that cannot be rendered as an upgrade now has none.
func (r *renderRun) addInitialFields(p *ResolvedComponent, o helm.Options, rendered helm.Rendered) {
	o.Revision = 2
	o.Generation.Stored = rendered.Generated
	if upgrade, err := p.chart.Render(r.ctx, o); err == nil {
		manifest.SetInitialFields(rendered.Objects, upgrade.Objects)
	}
}

// NextReleases returns the records for the next request: those of the result, and of the last
// request for components that were not rendered.
func (r *Result) NextReleases(last map[string]ReleaseRecord) map[string]ReleaseRecord {
	if last == nil {
		return nil
	}
	out := maps.Clone(last)
	for i := range r.Components {
		c := &r.Components[i]
		if c.Record.Revision == 0 {
			delete(out, c.Name) // it is not a chart
			continue
		}
		record := c.Record
		if l := last[c.Name]; l.Revision == record.Revision && (l.Digest == record.Digest || l.Digest == "") {
			record.Complete = l.Complete // the result may be a cached one
		}
		out[c.Name] = record
	}
	return out
}
