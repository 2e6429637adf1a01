package bysource

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/stacks"
)

// maxRecord bounds the record of a release, unpacked.
const maxRecord = 64 << 20

// recordType is the type of the Secrets that Helm records releases in.
const recordType = "helm.sh/release.v1"

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// records looks for what Helm recorded of a release, all revisions of it. They are
// left while the release has objects that the stack does not render: without them
// nobody could tell whose those are.
func (l *looker) records(ctx context.Context, r *stacks.Release, c *engine.Component, known map[string]bool, out *found) error {
	selector := labels.Set{"owner": "helm", "name": r.Name}.String()
	list, err := l.client.Resource(secrets).Namespace(r.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("records of Helm release %s/%s: %w", r.Namespace, r.Name, err)
	}
	var all []*unstructured.Unstructured
	var newest *unstructured.Unstructured
	for i := range list.Items {
		if u := &list.Items[i]; u.Object["type"] == recordType {
			all = append(all, u)
			if newest == nil || revision(u) > revision(newest) {
				newest = u
			}
		}
	}
	if newest == nil {
		return nil // the release was recorded elsewhere, or never
	}
	more, err := l.beyond(ctx, r, newest, known, out)
	why := ""
	var unreadable *recordError
	switch {
	case errors.As(err, &unreadable):
		why = err.Error()
	case err != nil:
		return err
	case more > 0:
		why = fmt.Sprintf("Helm release %s/%s has %d objects that the stack does not render; helm uninstall removes those", r.Namespace, r.Name, more)
	}
	for _, u := range all {
		id := stacks.Ref{Kind: "Secret", Namespace: r.Namespace, Name: u.GetName()}.ID()
		if why != "" {
			out.leave(id, kept, why)
		} else {
			out.take(id, "v1", c.Name, c.Wave, u)
		}
	}
	return nil
}

func revision(u *unstructured.Unstructured) int {
	n, err := strconv.Atoi(u.GetLabels()["version"])
	if err != nil {
		return 0
	}
	return n
}

// beyond leaves the objects that a release has by its record and its marks, and the
// stack does not render, and counts them.
func (l *looker) beyond(ctx context.Context, r *stacks.Release, record *unstructured.Unstructured, known map[string]bool, out *found) (int, error) {
	refs, err := recorded(record)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, x := range refs {
		m, err := l.discovery.Resolve(ctx, x.Group, x.version, x.Kind)
		var unserved *engine.NotServedError
		if errors.As(err, &unserved) {
			continue
		}
		if err != nil {
			return 0, err
		}
		switch {
		case m.Scope.Name() == meta.RESTScopeNameRoot:
			x.Namespace = ""
		case x.Namespace == "":
			x.Namespace = r.Namespace
		}
		if known[x.ID()] {
			continue
		}
		u, err := read(ctx, l.client, m, x.Ref)
		if err != nil {
			return 0, err
		}
		if u == nil {
			continue
		}
		if of := engine.ReleaseOf(u); of != nil && *of == *r {
			out.leave(x.ID(), notMatched, fmt.Sprintf("Helm release %s/%s has it, and the stack does not render it: was it installed with other values?", r.Namespace, r.Name))
			n++
		}
	}
	return n, nil
}

// recordError says that the record of a release can't be read.
type recordError struct{ name string }

func (e *recordError) Error() string {
	return "the record " + e.name + " can't be read, so that it may have objects that the stack does not render"
}

// versionedRef names an object in a version of its API.
type versionedRef struct {
	stacks.Ref
	version string
}

// recorded are the objects that a release has by its record.
func recorded(u *unstructured.Unstructured) ([]versionedRef, error) {
	bad := &recordError{name: u.GetNamespace() + "/" + u.GetName()}
	text, _, err := unstructured.NestedString(u.Object, "data", "release")
	if err != nil {
		return nil, bad
	}
	// Once for the Secret, once by Helm.
	outer, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, bad
	}
	inner, err := base64.StdEncoding.DecodeString(string(outer))
	if err != nil {
		return nil, bad
	}
	zipped, err := gzip.NewReader(bytes.NewReader(inner))
	if err != nil {
		return nil, bad
	}
	raw, err := io.ReadAll(io.LimitReader(zipped, maxRecord+1))
	if err != nil || len(raw) > maxRecord {
		return nil, bad
	}
	var release struct {
		Manifest string `json:"manifest"`
	}
	if err := json.Unmarshal(raw, &release); err != nil {
		return nil, bad
	}
	refs, err := parse(release.Manifest)
	if err != nil {
		return nil, bad
	}
	return refs, nil
}

// parse names the objects of a manifest.
func parse(manifest string) ([]versionedRef, error) {
	var out []versionedRef
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewBufferString(manifest)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return nil, err
		}
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		if err != nil {
			return nil, err
		}
		if o.Kind != "" && o.Name != "" {
			out = append(out, versionedRef{stacks.Ref{Group: gv.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, gv.Version})
		}
	}
}
