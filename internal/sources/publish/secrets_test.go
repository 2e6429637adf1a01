package publish

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
)

// answers is how the server answers for what was offered.
func answers(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestSecretsAreTakenBack(t *testing.T) {
	r := newRig(t)
	r.secrets = true
	r.costs("a token", 1, map[string]int{"create": 1, "status": 1})
	url := r.object().Status.Artifact.URL
	r.start() // and nothing is remembered
	r.secrets = false
	revision := r.costs("no token", 1, map[string]int{"status": 1})
	r.offers(revision, "no token")
	if got := answers(t, url); got != http.StatusNotFound {
		t.Errorf("what had Secrets: %d", got)
	}
	url = r.object().Status.Artifact.URL
	r.costs("another", 1, map[string]int{"status": 1})
	if got := answers(t, url); got != http.StatusOK {
		t.Errorf("what had none, and somebody may be about to download: %d", got)
	}
}

func TestRetracts(t *testing.T) {
	for _, secrets := range []bool{false, true} {
		r := newRig(t)
		r.secrets = secrets
		r.costs("1", 1, map[string]int{"create": 1, "status": 1})
		url := r.object().Status.Artifact.URL
		if err := r.Retract(t.Context(), r.owner, &r.kept); err != nil {
			t.Fatal(err)
		}
		err := r.api.Get(t.Context(), client.ObjectKeyFromObject(r.owner), &sourcev1.ExternalArtifact{})
		if gone := apierrors.IsNotFound(err); gone != secrets || (answers(t, url) == http.StatusNotFound) != secrets {
			t.Errorf("with Secrets %v: %v", secrets, err)
		}
		if err := r.Retract(t.Context(), r.owner, &r.kept); err != nil {
			t.Errorf("once more: %v", err)
		}
	}
}
