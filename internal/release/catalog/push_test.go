package catalog

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/stacks/artifact/oci"
	stackcatalog "github.com/ksctl/gitops/stacks/catalog"
)

func TestPushPublishesEachVersionOnce(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	pushed, err := Push(t.Context(), host+"/catalog", map[string]string{"org.opencontainers.image.version": "1"})
	if err != nil || len(pushed) == 0 {
		t.Fatalf("%v, %v", pushed, err)
	}
	stack := stackcatalog.Names()[0]
	version := stackcatalog.Versions(stack)[0]

	t.Run("the controller resolves it", func(t *testing.T) {
		r, err := oci.NewClient(oci.Options{}).Repository("oci://"+host+"/catalog/"+stack, oci.Access{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		target, err := r.Resolve(t.Context(), oci.Ref{Tag: version})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(pushed[0].String(), target.Digest) {
			t.Errorf("resolved %s, pushed %s", target.Digest, pushed)
		}
	})
	t.Run("a later release keeps it", func(t *testing.T) {
		again, err := Push(t.Context(), host+"/catalog", map[string]string{"org.opencontainers.image.version": "2"})
		if err != nil || again[0] != pushed[0] {
			t.Errorf("pushed %v, then %v, %v", pushed, again, err)
		}
	})
	t.Run("other content is an error", func(t *testing.T) {
		tag, err := name.NewTag(host + "/catalog/" + stack + ":" + version)
		if err != nil {
			t.Fatal(err)
		}
		other, err := random.Image(10, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(tag, other); err != nil {
			t.Fatal(err)
		}
		if _, err := Push(t.Context(), host+"/catalog", nil); err == nil ||
			!strings.Contains(err.Error(), "increase the version") {
			t.Errorf("got %v", err)
		}
	})
}
