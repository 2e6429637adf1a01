package install

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// maxProbes is the maximum number of objects of a component that are read to find out if it was
// installed before. They cost a first install that many requests.
const maxProbes = 5

// formerReleases returns the records of rendered components that the status does not know, and that
// were installed nevertheless: by a Helm release that the install takes over, or by the install
// before its status was lost. found has the values of those whose Secret has the record. It sets
// o.former.
func (o *owner) formerReleases(ctx context.Context, c *engine.Client, res *stacks.Result,
	found map[string]*generated.Values) (records map[string]stacks.ReleaseRecord, warnings []string, err error) {
	o.former = map[string]bool{}
	policies := o.Policies()
	if o.takenOver == nil {
		o.takenOver = map[string]bool{}
	}
	for i := range res.Components {
		rc := &res.Components[i]
		_, known := o.releases[rc.Name]
		values := res.Generated[rc.Name]
		takesOver := policies.TakesOver()
		switch matters := values != nil && values.Release != nil; {
		case known || rc.Record.Revision == 0 || publishesOnly(o.req.Object) || !takesOver && !matters:
			continue
		case found[rc.Name] != nil && found[rc.Name].Release != nil:
			o.former[rc.Name], o.takenOver[rc.Name] = true, true
			continue
		}
		record, warning, err := o.formerRelease(ctx, c, rc, takesOver)
		if err != nil {
			return nil, nil, fmt.Errorf("component %q: looking for its earlier release: %w", rc.Name, err)
		}
		if record == nil {
			continue
		}
		if records == nil {
			records = map[string]stacks.ReleaseRecord{}
		}
		records[rc.Name], o.former[rc.Name], o.takenOver[rc.Name] = *record, true, true
		if warning != "" {
			warnings = append(warnings, fmt.Sprintf("component %q: %s", rc.Name, warning))
		}
	}
	return records, warnings, nil
}

// formerRelease returns the record of a component of which live objects exist, and a warning if the
// record is a guess; nil if there are no such objects.
func (o *owner) formerRelease(ctx context.Context, c *engine.Client, rc *stacks.RenderedComponent,
	takesOver bool) (*stacks.ReleaseRecord, string, error) {
	unknown := &stacks.ReleaseRecord{Revision: 1, Digest: stacks.UnknownReleaseDigest, Complete: true}
	probes, warning := maxProbes, ""
	var ofHelm *stacks.ReleaseRecord
	if takesOver && rc.Release != nil {
		var err error
		var unreadable *unreadableReleaseError
		switch ofHelm, err = readHelmRelease(ctx, c, rc.Release); {
		case errors.As(err, &unreadable):
			ofHelm, warning = unknown, err.Error()
		case err != nil:
			return nil, "", err
		case ofHelm != nil:
			probes = len(rc.Objects) // its record may have been left behind
		}
	}
	for i := range rc.Objects {
		obj := &rc.Objects[i]
		if obj.Hook != nil || obj.Generated || obj.Kind == "Namespace" || obj.Kind == "CustomResourceDefinition" {
			continue
		}
		if probes--; probes < 0 {
			break
		}
		u, err := o.probe(ctx, c, obj)
		switch {
		case err != nil:
			return nil, "", err
		case u == nil:
		case o.hasMark(u):
			return unknown, "", nil
		case ofHelm != nil && isOfRelease(u, rc.Release):
			return ofHelm, warning, nil
		}
	}
	return nil, "", nil
}

// probe reads an object with the permissions of the account; nil if it does not exist or cannot be
// read.
func (o *owner) probe(ctx context.Context, c *engine.Client,
	obj *stacks.Object) (*unstructured.Unstructured, error) {
	m, err := o.target.Discovery.Resolve(ctx, obj.Group, obj.Version, obj.Kind)
	if notServed := (*plan.NotServedError)(nil); errors.As(err, &notServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	namespace := obj.Namespace
	if m.Scope.Name() == "root" {
		namespace = ""
	}
	u, err := c.Resource(m.Resource).Namespace(namespace).Get(ctx, obj.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return u, err
}

// hasMark reports whether an object has the mark of the install.
func (o *owner) hasMark(u *unstructured.Unstructured) bool {
	mark, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	return err == nil && mark.Owner == o.key.String()
}

func isOfRelease(u *unstructured.Unstructured, r *stacks.Release) bool {
	of := engine.HelmReleaseOf(u)
	return of != nil && *of == *r
}

// isFormer reports whether an object belongs to a component that was installed before, see
// formerReleases. res has the components.
func (o *owner) isFormer(u *unstructured.Unstructured, res *stacks.Result) bool {
	for i := range res.Components {
		rc := &res.Components[i]
		if o.former[rc.Name] && (o.hasMark(u) || rc.Release != nil && isOfRelease(u, rc.Release)) {
			return true
		}
	}
	return false
}

// maxHelmReleaseBytes bounds an unpacked Helm release: one with large charts has a few MiB.
const maxHelmReleaseBytes = 64 << 20

// unreadableReleaseError is the error of a Helm release that no retry can read.
type unreadableReleaseError struct {
	release *stacks.Release
	why     string
}

func (e *unreadableReleaseError) Error() string {
	return fmt.Sprintf("the Helm release %s/%s that is taken over cannot be read (%s): the first revision here "+
		"is 2, an "+
		"upgrade", e.release.Namespace, e.release.Name, e.why)
}

// readHelmRelease returns the record of a Helm release; nil if it has no deployed revision. The
// error is an *unreadableReleaseError if a retry cannot help. The format of its Secrets is that of
// helm.sh/helm/v4/pkg/storage/driver: base64 of gzip of JSON.
func readHelmRelease(ctx context.Context, c *engine.Client, r *stacks.Release) (*stacks.ReleaseRecord, error) {
	list, err := c.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(r.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: "owner=helm,status=deployed,name=" + r.Name})
	switch {
	case apierrors.IsForbidden(err):
		return nil, &unreadableReleaseError{release: r, why: "the account may not list Secrets there"}
	case err != nil:
		return nil, err
	}
	var last *stacks.ReleaseRecord
	for i := range list.Items {
		encoded, _, err := unstructured.NestedString(list.Items[i].Object, "data", "release")
		if err != nil {
			encoded = ""
		}
		record := decodeHelmRelease(encoded)
		if record == nil {
			return nil, &unreadableReleaseError{release: r,
				why: "Secret " + list.Items[i].GetName() + " is not in the format of Helm"}
		}
		if last == nil || record.Revision > last.Revision {
			last = record
		}
	}
	return last, nil
}

// decodeHelmRelease decodes the data of the Secret of a Helm release; nil if it has another format.
func decodeHelmRelease(data string) *stacks.ReleaseRecord {
	packed := []byte(data)
	for range 2 { // of the Secret, and of Helm
		text, err := base64.StdEncoding.AppendDecode(nil, packed)
		if err != nil {
			return nil
		}
		packed = text
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(unpack, maxHelmReleaseBytes))
	if err != nil {
		return nil
	}
	var release struct {
		Version int            `json:"version"`
		Config  map[string]any `json:"config"`
		Chart   struct {
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
		} `json:"chart"`
	}
	if err := utiljson.Unmarshal(raw, &release); err != nil || release.Version < 1 {
		return nil
	}
	return &stacks.ReleaseRecord{Revision: release.Version, Complete: true, Helm: &stacks.HelmRelease{
		Chart: release.Chart.Metadata.Name, Version: release.Chart.Metadata.Version, Values: release.Config}}
}

// withFormer returns a request with the records and the values of components that were installed
// before, and with the answers to what their templates looked up in a first render: a chart may
// refuse an upgrade that does not find its objects.
func (o *owner) withFormer(ctx context.Context, c *engine.Client, req stacks.Request, res *stacks.Result,
	found map[string]*generated.Values, records map[string]stacks.ReleaseRecord, render func(context.Context,
		stacks.Request) (stacks.Result, error)) (stacks.Request, error) {
	first := res
	installs := map[string]*generated.Values{} // the keys of the answers are those of the values
	for component, v := range found {
		if o.former[component] && len(res.Generated[component].AskedQueries()) > 0 {
			installs[component] = v.Clone()
			installs[component].Release = nil
		}
	}
	if len(installs) > 0 {
		again := req
		again.Generate = req.Generate.With(installs)
		asked, err := render(ctx, again)
		if err != nil {
			return req, err
		}
		first = &asked
	}
	req.Generate = req.Generate.With(found)
	req.Releases = maps.Clone(req.Releases)
	maps.Copy(req.Releases, records)
	for component := range o.former {
		answered, err := o.answerLookups(ctx, c, component, first)
		if err != nil {
			return req, err
		}
		if answered == nil {
			continue
		}
		answered.Release = nil // that of the first render
		if v := found[component]; v != nil {
			answered.Release = v.Release
		}
		req.Generate = req.Generate.With(map[string]*generated.Values{component: answered})
	}
	return req, nil
}
