package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/stacks"
)

// class is how the objects of two renders differ.
type class string

const (
	equal         class = "equal"
	random        class = "differs only in values that Helm generates in each render"
	newline       class = "differs only in newlines at the end of strings"
	different     class = "different"
	refusedByUs   class = "refused by us alone"
	refusedByHelm class = "refused by Helm alone"
	refusedByBoth class = "refused by both"
)

// comparison is the class of a case, with the reason or the first difference.
type comparison struct {
	class  class
	detail string
}

const (
	releaseName = "compare"
	namespace   = "compare"
)

func (c chartCase) compare(ctx context.Context) (result comparison) {
	in := install{release: releaseName, namespace: namespace}
	if c.values != "" {
		var err error
		if in.values, err = os.ReadFile(c.values); err != nil {
			return comparison{refusedByBoth, err.Error()}
		}
	}
	folder, err := newStackFolder(c.chart)
	if err != nil {
		return comparison{refusedByBoth, err.Error()}
	}
	defer func() {
		if err := folder.remove(); err != nil {
			result = comparison{refusedByBoth, err.Error()}
		}
	}()
	want, helmErr := folder.renderWithHelm(in)
	got, err := folder.renderWithUs(ctx, in)
	switch {
	case helmErr != nil && err != nil:
		return comparison{refusedByBoth, firstLine(err)}
	case helmErr != nil:
		return comparison{refusedByHelm, firstLine(helmErr)}
	case err != nil:
		return comparison{refusedByUs, firstLine(err)}
	}
	again, helmErr := folder.renderWithHelm(in)
	if helmErr != nil {
		return comparison{refusedByHelm, firstLine(helmErr)}
	}
	return classify(byName(got), byName(want), byName(again))
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// classify compares our objects with those of two renders of Helm.
func classify(got, want, again map[string]any) comparison {
	if reflect.DeepEqual(got, want) {
		return comparison{class: equal}
	}
	if reflect.DeepEqual(trimmed(got), trimmed(want)) {
		return comparison{newline, firstDifference("", got, want)}
	}
	got, want = masked(got, want, again).(map[string]any), masked(want, want, again).(map[string]any)
	if reflect.DeepEqual(got, want) {
		return comparison{class: random}
	}
	return comparison{different, firstDifference("", got, want)}
}

// renderWithUs renders an install of the chart as a stack.
func (f stackFolder) renderWithUs(ctx context.Context, in install) (objects []map[string]any, err error) {
	req, err := f.request(in)
	if err != nil {
		return nil, err
	}
	result, err := stacks.Render(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, c := range result.Components {
		for _, o := range c.Objects {
			var object map[string]any
			if err := json.Unmarshal(o.Manifest, &object); err != nil {
				return nil, err
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// runsAtRemoval matches the events of hooks that only run when a release is removed. We render
// their Jobs, suspended; Helm keeps them apart.
var runsAtRemoval = regexp.MustCompile(`^\s*(pre|post)-delete\s*(,\s*(pre|post)-delete\s*)*$`)

// byName returns objects by kind, namespace and name, without what the API server ignores.
func byName(objects []map[string]any) map[string]any {
	out := map[string]any{}
	for _, object := range objects {
		u := &unstructured.Unstructured{Object: object}
		if runsAtRemoval.MatchString(u.GetAnnotations()["helm.sh/hook"]) {
			continue
		}
		if u.GetNamespace() == namespace {
			u.SetNamespace("")
		}
		if status, _ := object["status"].(map[string]any); len(status) == 0 {
			delete(object, "status")
		}
		for _, field := range []string{"labels", "annotations", "creationTimestamp"} {
			if v, there, _ := unstructured.NestedFieldNoCopy(object, "metadata", field); there &&
				(v == nil || reflect.ValueOf(v).Kind() == reflect.Map && reflect.ValueOf(v).Len() == 0) {
				unstructured.RemoveNestedField(object, "metadata", field)
			}
		}
		out[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = object
	}
	return out
}

// trimmed returns a copy without newlines at the end of strings.
func trimmed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range v {
			out[k] = trimmed(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = trimmed(v[i])
		}
		return out
	case string:
		return strings.TrimRight(v, "\n")
	}
	return v
}

// masked returns a copy of v in which values are replaced that differ between a and b.
func masked(v, a, b any) any {
	switch v := v.(type) {
	case map[string]any:
		am, _ := a.(map[string]any)
		bm, _ := b.(map[string]any)
		out := map[string]any{}
		for k, item := range v {
			out[k] = masked(item, am[k], bm[k])
		}
		return out
	case []any:
		al, _ := a.([]any)
		bl, _ := b.([]any)
		if len(al) != len(v) || len(bl) != len(v) {
			return v
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = masked(v[i], al[i], bl[i])
		}
		return out
	}
	if !reflect.DeepEqual(a, b) {
		return "<generated>"
	}
	return v
}

// firstDifference returns the path of the first difference, with both values.
func firstDifference(path string, got, want any) string {
	gm, gok := got.(map[string]any)
	wm, wok := want.(map[string]any)
	if gok && wok {
		var keys []string
		for k := range gm {
			keys = append(keys, k)
		}
		for k := range wm {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			if !reflect.DeepEqual(gm[k], wm[k]) {
				return firstDifference(path+"/"+k, gm[k], wm[k])
			}
		}
	}
	gl, gok := got.([]any)
	wl, wok := want.([]any)
	if gok && wok && len(gl) == len(wl) {
		for i := range gl {
			if !reflect.DeepEqual(gl[i], wl[i]) {
				return firstDifference(fmt.Sprintf("%s/%d", path, i), gl[i], wl[i])
			}
		}
	}
	return fmt.Sprintf("%s: got %.80q, Helm has %.80q", path, fmt.Sprint(got), fmt.Sprint(want))
}
