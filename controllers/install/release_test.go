package install

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"maps"
	"reflect"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// The release of a component is forgotten with its last object, and not before its first one.
func TestForgetReleases(t *testing.T) {
	complete := stacks.ReleaseRecord{Revision: 3, Digest: "d", Complete: true}
	install := stacks.ReleaseRecord{Revision: 1, Digest: "d"}
	objects := []stacks.Object{{Ref: stacks.Ref{Kind: "ConfigMap", Name: "x"}}}
	for name, tc := range map[string]struct {
		record    stacks.ReleaseRecord
		rendered  []stacks.RenderedComponent
		hasEntry  bool
		takenOver bool
		want      stacks.ReleaseRecord
	}{
		"it has objects":    {record: complete, hasEntry: true, want: complete},
		"it left the stack": {record: complete},
		"a request removed it": {record: complete,
			rendered: []stacks.RenderedComponent{{Name: "web", Objects: objects}}, want: install},
		"it renders nothing": {record: complete, rendered: []stacks.RenderedComponent{{Name: "web"}},
			want: complete},
		"its install has not begun": {record: install,
			rendered: []stacks.RenderedComponent{{Name: "web", Objects: objects}}, want: install},
		"its take-over has not begun": {record: complete, takenOver: true,
			rendered: []stacks.RenderedComponent{{Name: "web", Objects: objects}}, want: complete},
	} {
		t.Run(name, func(t *testing.T) {
			inv := plan.NewInventory(nil, nil)
			if tc.hasEntry {
				inv.Put(appsv1.InventoryEntry{ID: "prod_x__ConfigMap", Component: "web", State: appsv1.EntryApplied})
			}
			v := generated.NewValues(nil)
			v.Release = &generated.Release{Revision: 3}
			before := map[string]*generated.Values{"web": v}
			o := &owner{inv: inv, releases: map[string]stacks.ReleaseRecord{"web": tc.record}, generated: before,
				takenOver: map[string]bool{"web": tc.takenOver}}
			o.rendered.components = tc.rendered
			o.forgetReleases()
			if got := o.releases["web"]; got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if kept := o.generated["web"].Release != nil; kept != (tc.want == tc.record) {
				t.Errorf("the generated values have the record: %t", kept)
			}
			if before["web"].Release == nil {
				t.Error("the values of an earlier request have changed")
			}
		})
	}
}

// helmRelease encodes a release as Helm does.
func helmRelease(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(b.Bytes())))
}

const aHelmRelease = `{"name":"web","version":7,"config":{"replicas":2},"chart":{"metadata":{"name":"web",` +
	`"version":"1.2.3"}}}`

func TestDecodeHelmRelease(t *testing.T) {
	got := decodeHelmRelease(helmRelease(t, aHelmRelease))
	want := &stacks.ReleaseRecord{Revision: 7, Complete: true, Helm: &stacks.HelmRelease{Chart: "web", Version: "1.2.3",
		Values: map[string]any{"replicas": int64(2)}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, data := range map[string]string{
		"nothing": "", "not base64": "!", "not base64 inside": base64.StdEncoding.EncodeToString([]byte("!")),
		"not compressed": base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte("{}")))),
		"not JSON":       helmRelease(t, "x"), "no revision": helmRelease(t, "{}"),
		"cut off": helmRelease(t, aHelmRelease[:20])} {
		if got := decodeHelmRelease(data); got != nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func FuzzDecodeHelmRelease(f *testing.F) {
	f.Add(helmRelease(f, aHelmRelease))
	f.Add(helmRelease(f, "{}"))
	f.Fuzz(func(t *testing.T, data string) {
		if r := decodeHelmRelease(data); r != nil && (r.Revision < 1 || r.Helm == nil) {
			t.Errorf("got %+v", r)
		}
	})
}

// An install from before there were records runs no hook.
func TestLoadReleases(t *testing.T) {
	inv := plan.NewInventory(nil, nil)
	inv.Put(appsv1.InventoryEntry{ID: "prod_x__ConfigMap", Component: "old", State: appsv1.EntryApplied})
	inv.Put(appsv1.InventoryEntry{ID: "prod_y__ConfigMap", Component: "new", State: appsv1.EntryIntended})
	in := &appsv1.KsctlInstall{}
	if got := loadReleases(in, inv); len(got) > 0 {
		t.Errorf("got %+v before the first install was ready", got)
	}
	in.Status.LastAppliedRevision = "main@sha1:1"
	in.Status.Components = []appsv1.ComponentStatus{{Name: "known",
		Release: &appsv1.ComponentRelease{Revision: 2, Digest: "d", Complete: true}}}
	want := map[string]stacks.ReleaseRecord{"old": {Revision: 1, Complete: true},
		"known": {Revision: 2, Digest: "d", Complete: true}}
	if got := loadReleases(in, inv); !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
