package sourceref

import (
	"encoding/json"
	"errors"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// FuzzOfferedArtifact: for any status, offeredArtifact returns exactly the artifact of the source
// or an error that explains why there is none.
func FuzzOfferedArtifact(f *testing.F) {
	kinds := []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind,
		sourcev1.ExternalArtifactKind, appsv1.KsctlSourceKind}
	for i := range kinds {
		f.Add(uint8(i),
			`{"metadata":{"generation":2},"status":{"artifact":{"url":"http://x/a.tgz","revision":"main@sha1:a","digest":"sha256:b","metadata":{"a":"b"}},"conditions":[{"type":"Ready","status":"True","observedGeneration":2}]}}`)
		f.Add(uint8(i),
			`{"status":{"artifact":null,"conditions":[{"type":"Ready","status":"False","message":"no"},{"type":"Ready","status":"True"}]}}`)
		f.Add(uint8(i), `{"metadata":{"generation":-1},"status":{"artifact":{},"conditions":[]}}`)
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		kind := kinds[int(which)%len(kinds)]
		obj, _, ok := NewObject(kind)
		if !ok {
			t.Fatal(kind)
		}
		if json.Unmarshal([]byte(text), obj) != nil {
			t.Skip()
		}
		s, err := offeredArtifact(obj, kind, types.NamespacedName{Namespace: "n", Name: "x"})
		a := obj.GetArtifact()
		if err != nil {
			var e *Error
			if a != nil || !errors.As(err, &e) || e.Reason != NotReady || e.Message == "" {
				t.Fatalf("artifact %v: %v", a, err)
			}
			return
		}
		if a == nil || s.URL != a.URL || s.Digest != a.Digest || s.Revision != a.Revision {
			t.Fatalf("got %+v from artifact %+v", s, a)
		}
	})
}
