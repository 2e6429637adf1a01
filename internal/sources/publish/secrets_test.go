package publish

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
)

// statusOf returns the HTTP status of a GET request.
func statusOf(t *testing.T, url string) int {
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

func TestArtifactWithSecretsIsReplaced(t *testing.T) {
	r := newPublisherTest(t)
	r.secrets = true
	r.expectRequests("a token", 1, map[string]int{"create": 1, "status": 1})
	url := r.object().Status.Artifact.URL
	r.start() // drops the state of the process
	r.secrets = false
	revision := r.expectRequests("no token", 1, map[string]int{"status": 1})
	r.expectArtifact(revision, "no token")
	if got := statusOf(t, url); got != http.StatusNotFound {
		t.Errorf("the artifact with Secrets: status %d", got)
	}
	url = r.object().Status.Artifact.URL
	r.expectRequests("another", 1, map[string]int{"status": 1})
	if got := statusOf(t, url); got != http.StatusOK {
		t.Errorf("the previous artifact without Secrets: status %d", got)
	}
}

func TestWithdrawSecrets(t *testing.T) {
	for _, secrets := range []bool{false, true} {
		r := newPublisherTest(t)
		r.secrets = secrets
		r.expectRequests("1", 1, map[string]int{"create": 1, "status": 1})
		url := r.object().Status.Artifact.URL
		if err := r.WithdrawSecrets(t.Context(), r.owner, &r.state); err != nil {
			t.Fatal(err)
		}
		err := r.api.Get(t.Context(), client.ObjectKeyFromObject(r.owner), &sourcev1.ExternalArtifact{})
		if gone := apierrors.IsNotFound(err); gone != secrets || (statusOf(t, url) == http.StatusNotFound) != secrets {
			t.Errorf("with Secrets %v: %v", secrets, err)
		}
		if err := r.WithdrawSecrets(t.Context(), r.owner, &r.state); err != nil {
			t.Errorf("second call: %v", err)
		}
	}
}
