package build_test

import (
	"net/http"
	"testing"

	"github.com/ksctl/gitops/internal/workers/build"
)

func TestBuildOfExistingImageRecordsUse(t *testing.T) {
	for name, platforms := range map[string][]string{"image": nil, "index": {"linux/amd64", "linux/arm64"}} {
		t.Run(name, func(t *testing.T) {
			s, b := newServer(t), newBuilder()
			from := base(t, s, platforms...)
			first := map[string]build.Result{}
			for _, tag := range []string{"a", "b", "c"} {
				out, err := b.Build(t.Context(), from, s.host+"/shop/acme:"+tag, nil)
				if err != nil {
					t.Fatal(err)
				}
				first[tag] = out
			}
			before := must(t, pull(t, s.host+"/shop/acme:a").Manifest)
			uploads := s.count("POST")
			again, err := b.Build(t.Context(), from, s.host+"/shop/acme:a", nil)
			if err != nil || again.Built || again.Digest == first["a"].Digest || s.count("POST") != uploads {
				t.Errorf("%+v, %v, %d uploads", again, err, s.count("POST")-uploads)
			}
			after := must(t, pull(t, s.host+"/shop/acme:a").Manifest)
			if after.Config.Digest != before.Config.Digest || len(after.Layers) != len(before.Layers) {
				t.Errorf("the content differs: %+v, %+v", before, after)
			}
			s.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPut && refuseWith(w, http.StatusConflict, "DENIED")
			}
			refused, err := b.Build(t.Context(), from, s.host+"/shop/acme:a", nil)
			if err != nil || refused.Digest != again.Digest || refused.Message == "" {
				t.Errorf("immutable tag: %+v, %v", refused, err)
			}
			s.refuse = nil
			if out, err := b.Purge(t.Context(), s.host+"/shop/acme", "c", 1); err != nil || out.Deleted != 1 {
				t.Errorf("%+v, %v", out, err)
			}
			if got := pull(t, s.host+"/shop/acme:a"); must(t, got.Manifest).Config.Digest != before.Config.Digest {
				t.Error("the image that was used last differs")
			}
		})
	}
}
