package restapi

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/internal/restapi/repository"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
)

// expectDryRuns checks that nothing but dry runs and reads reached the API server.
func (e *endpoint) expectDryRuns(n int) {
	e.t.Helper()
	var dryRuns int
	requests := e.api.recorded()
	for line := range strings.Lines(requests) {
		if strings.Contains(line, "dryRun=All") {
			dryRuns++
		} else if !strings.HasPrefix(line, "GET ") {
			e.t.Errorf("a request changes the cluster: %s", line)
		}
	}
	if dryRuns != n {
		e.t.Errorf("%d dry runs, want %d:\n%s", dryRuns, n, requests)
	}
}

// expectCommits checks the number of commits, and returns the last one.
func (e *endpoint) expectCommits(n int) repository.Change {
	e.t.Helper()
	if len(e.repository.commits) != n {
		e.t.Fatalf("%d commits, want %d", len(e.repository.commits), n)
	}
	if n == 0 {
		return repository.Change{}
	}
	return e.repository.commits[n-1]
}

func TestChangeIsCommittedAfterDryRun(t *testing.T) {
	e := newEndpoint(t, newRepository(), realClock)
	created := e.expect(http.StatusCreated, `"greeting":"hi"`, "PUT", shops, shopJSON("hi"))
	commit := e.expectCommits(1)
	if commit.Message != "" || commit.Trailer != "Requested-by: alice" || commit.Author != "alice" ||
		commit.Email != "alice@users.cluster.local" {
		t.Errorf("commit %+v", commit)
	}
	if h := created.header; h.Get(commitHeader) != "commit-1" || h.Get(fileHeader) != "shop.yaml" ||
		h.Get("ETag") == "" || h.Get("Warning") == "" {
		t.Errorf("headers %v", h)
	}
	e.expectDryRuns(1)
	e.api.objects[livePath] = map[string]any{"apiVersion": "example.com/v1", "kind": "Shop",
		"metadata": map[string]any{"name": "web", "uid": "1", "resourceVersion": "5"}}
	e.expect(http.StatusOK, `"greeting":"hello"`, "PATCH", shops+"?message=Say%20hello",
		`{"spec": {"greeting": "hello"}, "status": {"x": 1}, "metadata": {"uid": "2"}}`)
	if commit := e.expectCommits(2); commit.Message != "Say hello" {
		t.Errorf("message %q", commit.Message)
	}
	read := e.expect(http.StatusOK, `"greeting":"hello"`, "GET", shops, "")
	for _, field := range []string{"status", "uid"} {
		if strings.Contains(read.body, field) {
			t.Errorf("the field %s is committed: %s", field, read.body)
		}
	}
	e.expectDryRuns(1)
	e.expect(http.StatusOK, "Success", "DELETE", shops, "", "If-Match", read.header.Get("ETag"))
	e.expectCommits(3)
	e.expectDryRuns(1)
}

// A dry run that the API server refuses, and a caller without permissions, cause no commit.
func TestRefusedChangeIsNotCommitted(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.expect(http.StatusUnprocessableEntity, `"fromAPIServer":true`, "PUT", shops, shopJSON(""))
	e.expect(http.StatusUnprocessableEntity, `"fromAPIServer":true`, "PATCH", shops, `{"spec": {"greeting": null}}`)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		e.expect(http.StatusForbidden, "forbidden", method, shops, shopJSON("x"), "Authorization",
			"Bearer "+strangersToken)
		e.expect(http.StatusUnauthorized, `"fromAPIServer":true`, method, shops, shopJSON("x"), "Authorization",
			"Bearer unknown")
	}
	e.expect(http.StatusBadRequest, "apiVersion", "PATCH", shops, `{"apiVersion": "example.com/v2"}`)
	e.expectCommits(0)
}

func TestPatchCannotRemoveIdentity(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.expect(http.StatusOK, `"name":"web","namespace":"team"`, "PATCH", shops, `{"metadata": null}`)
	for _, body := range []string{`{"kind": null}`, `{"apiVersion": null}`, `{"metadata": {"name": null}}`} {
		e.expect(http.StatusBadRequest, "", "PATCH", shops, body)
	}
	e.expectCommits(1)
}

// A push of another writer comes first.
func TestDryRunIsRepeatedIfObjectHasChanged(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.repository.lost = func() {} // another object has changed
	e.expect(http.StatusOK, "", "PATCH", shops, `{"metadata": {"labels": {"a": "b"}}}`)
	e.expectDryRuns(1)
	e.repository.lost = func() { e.repository.documents[shopKey] = shopDocument("changed by others") }
	e.expect(http.StatusOK, "changed by others", "PATCH", shops, `{"metadata": {"labels": {"c": "d"}}}`)
	e.expectDryRuns(2)
	tag := e.expect(http.StatusOK, "", "GET", shops, "").header.Get("ETag")
	e.repository.lost = func() { e.repository.documents[shopKey] = shopDocument("changed again") }
	e.expect(http.StatusPreconditionFailed, "the object has changed", "PUT", shops, shopJSON("lost"), "If-Match", tag)
	e.repository.lost = func() { delete(e.repository.documents, shopKey) }
	e.expect(http.StatusNotFound, "create it with PUT", "PATCH", shops, `{"metadata": {"labels": {"e": "f"}}}`)
	e.expectCommits(2)
}

func TestErrorsOfRepository(t *testing.T) {
	conflict := &manifests.ConflictError{Key: shopKey, File: "base/shop.yaml", Reason: "the file has anchors"}
	for name, c := range map[string]struct {
		err      error
		code     int
		contains string
	}{
		"conflict": {conflict, 409, `"causes":[{"reason":"RepositoryConflict","message":"the file has anchors",` +
			`"field":"base/shop.yaml"}]`},
		"wrong ETag":  {&repository.PreconditionError{}, 412, "PreconditionFailed"},
		"push":        {&repository.RefusedError{Err: errors.New("a policy")}, 502, "a policy"},
		"Secret":      {gitsecret.NewNotFound("a", "b", "c"), 502, "Secret a/b does not exist"},
		"attempts":    {&repository.AttemptsError{Err: errors.New("lost")}, 503, "try again"},
		"another one": {errors.New("an error"), 500, "an error"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
			e.repository.err = c.err
			e.expect(c.code, c.contains, "PUT", shops, shopJSON("hello"))
		})
	}
}

func TestFailuresOfServersAreLogged(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.expect(http.StatusUnprocessableEntity, "", "PUT", shops, shopJSON(""))
	if log := e.output.String(); strings.Contains(log, "a request failed") {
		t.Errorf("a wrong request is logged as a failure:\n%s", log)
	}
	e.repository.err = &repository.RefusedError{Err: errors.New("the branch is protected")}
	e.expect(http.StatusBadGateway, "", "PUT", shops, shopJSON("hello"))
	line := regexp.MustCompile(`.*"msg"="a request failed".*`).FindString(e.output.String())
	if !strings.Contains(line, "the branch is protected") || !strings.Contains(line, shops) {
		t.Errorf("logged %s", line)
	}
}

func TestErrorOfBuildIsLoggedOnly(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.repository.err = &manifests.ConflictError{Key: shopKey, File: "kustomization.yaml", Reason: "cannot be built",
		Err: errors.New("private value")}
	r := e.expect(http.StatusConflict, "cannot be built", "PUT", shops, shopJSON("hello"))
	if strings.Contains(r.body, "private") || !strings.Contains(e.output.String(), "private value") {
		t.Errorf("answer %s, log:\n%s", r.body, e.output)
	}
}

func TestObjectThatIsNotInRepository(t *testing.T) {
	e := newEndpoint(t, newRepository(), realClock)
	for _, method := range []string{"PATCH", "DELETE"} {
		e.expect(http.StatusNotFound, "neither in the repository nor in the cluster", method, shops, "{}")
	}
	e.expect(http.StatusNotFound, "no file has it", "GET", shops, "")
	e.expect(http.StatusPreconditionFailed, "does not exist", "PUT", shops, shopJSON("hi"), "If-Match", "*")
	e.api.objects[livePath] = map[string]any{"apiVersion": "example.com/v1", "kind": "Shop"}
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		e.expect(http.StatusConflict, "no file in the repository has it", method, shops, shopJSON("hi"))
	}
	e.expectDryRuns(0)
	e.expectCommits(0)
}

// An owner is an object of one cluster.
func TestOwnersAreNotCommitted(t *testing.T) {
	e := newEndpoint(t, newRepository(), realClock)
	owned := `"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}`
	e.expect(http.StatusCreated, "", "PUT", shops, strings.Replace(shopJSON("hi"), `"spec"`, owned+`, "spec"`, 1))
	e.expect(http.StatusOK, "", "PATCH", shops, "{"+owned+"}")
	if r := e.expect(http.StatusOK, "", "GET", shops, ""); strings.Contains(r.body, "ownerReferences") {
		t.Errorf("committed %s", r.body)
	}
}

// Labels and annotations that others set in the cluster stay in the dry run.
func TestDryRunKeepsMetadataOfOthers(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Shop"}}
	live.SetLabels(map[string]string{"owner": "flux", "a": "old", "removed": "x"})
	live.SetAnnotations(map[string]string{"removed": "x", "kept": "x"})
	live.SetUID("1")
	live.SetResourceVersion("7")
	desired := shopDocument("hi").Object
	desired.SetLabels(map[string]string{"a": "new"})
	desired.SetFinalizers([]string{"example.com/b"})
	desired.SetNamespace("team")
	live.SetFinalizers([]string{"example.com/a", "example.com/removed"})
	present := shopDocument("hi")
	present.Object.SetLabels(map[string]string{"a": "old", "removed": "x"})
	present.Object.SetAnnotations(map[string]string{"removed": "x"})
	present.Object.SetFinalizers([]string{"example.com/removed"})
	e := &edit{call: &call{target: &target{resource: &resource{}, namespace: "team", name: "web"}}, desired: desired}
	sent := e.dryRun(live, present).body.(*unstructured.Unstructured)
	if l := sent.GetLabels(); l["owner"] != "flux" || l["a"] != "new" || sent.GetResourceVersion() != "7" ||
		sent.GetNamespace() != "team" || len(l) != 2 || len(sent.GetAnnotations()) != 1 ||
		!slices.Equal(sent.GetFinalizers(), []string{"example.com/a", "example.com/b"}) {
		t.Errorf("sent %v", sent.Object)
	}
	if desired.GetLabels()["owner"] != "" {
		t.Error("the label of others is committed")
	}
}
