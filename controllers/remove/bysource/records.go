package bysource

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// maxRecordBytes bounds the record of a release after decompression, in bytes.
const maxRecordBytes = 64 << 20

// recordType is the type of the Secrets with Helm release records.
const recordType = "helm.sh/release.v1"

var secretGVR = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// findRecords finds the Helm release records of all revisions of a release. They are kept while the
// release has objects that the stack does not render, because only the records list these objects.
func (l *finder) findRecords(ctx context.Context, r *stacks.Release, c *plan.Component, known map[string]bool,
	out *findings) error {
	selector := labels.Set{"owner": "helm", "name": r.Name}.String()
	list, err := l.client.Resource(secretGVR).Namespace(r.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("listing records of Helm release %s/%s: %w", r.Namespace, r.Name, err)
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
		return nil // Helm uses another storage driver, or did not install the release
	}
	keepReason := ""
	if refs, err := parseRecord(newest); err != nil {
		keepReason = fmt.Sprintf("release record %s/%s can't be read, so the release may have objects that the stack "+
			"does not render", newest.GetNamespace(), newest.GetName())
	} else if unrendered, err := l.findUnrendered(ctx, r, refs, known, out); err != nil {
		return err
	} else if unrendered > 0 {
		keepReason = fmt.Sprintf("Helm release %s/%s has %d objects that the stack does not render; helm uninstall "+
			"removes them", r.Namespace, r.Name, unrendered)
	}
	for _, u := range all {
		id := stacks.Ref{Kind: "Secret", Namespace: r.Namespace, Name: u.GetName()}.ID()
		if keepReason != "" {
			out.leave(id, reasonKept, keepReason)
		} else {
			out.add(id, "v1", c.Name, c.Wave, u)
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

// findUnrendered adds the objects that are recorded in and marked by a release, but not rendered by
// the stack, to the objects that are left. It returns their number.
func (l *finder) findUnrendered(ctx context.Context, r *stacks.Release, recorded []versionedRef, known map[string]bool,
	out *findings) (int, error) {
	n := 0
	for _, x := range recorded {
		m, err := l.discovery.Resolve(ctx, x.Group, x.version, x.Kind)
		var unserved *plan.NotServedError
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
		u, err := readObject(ctx, l.client, m, x.Ref)
		if err != nil {
			return 0, err
		}
		if u == nil {
			continue
		}
		if of := engine.HelmReleaseOf(u); of != nil && *of == *r {
			out.leave(x.ID(), reasonNotMatched,
				fmt.Sprintf("part of Helm release %s/%s, but not rendered by the stack: the release may have been "+
					"installed with other values", r.Namespace, r.Name))
			n++
		}
	}
	return n, nil
}

// versionedRef is a reference to an object, with its API version.
type versionedRef struct {
	stacks.Ref
	version string
}

// parseRecord returns the objects in a release record.
func parseRecord(u *unstructured.Unstructured) ([]versionedRef, error) {
	text, _, err := unstructured.NestedString(u.Object, "data", "release")
	if err != nil {
		return nil, err
	}
	// The data is base64-encoded twice: by Helm, and as Secret data.
	secretData := base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))
	zipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, secretData))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(zipped, maxRecordBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxRecordBytes {
		return nil, errors.New("the record is too large")
	}
	var release struct {
		Manifest string `json:"manifest"`
	}
	if err := json.Unmarshal(raw, &release); err != nil {
		return nil, err
	}
	return parseManifest(release.Manifest)
}

// parseManifest returns the objects of a manifest.
func parseManifest(manifest string) ([]versionedRef, error) {
	var out []versionedRef
	docs := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
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
			out = append(out,
				versionedRef{stacks.Ref{Group: gv.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
					gv.Version})
		}
	}
}
