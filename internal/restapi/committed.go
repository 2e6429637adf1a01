package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/internal/restapi/repository"
)

// Repository is the branch of a Git repository that contains the objects.
type Repository interface {
	// Get returns the document of an object. It is a *manifests.ConflictError if there is not
	// exactly one that can be changed.
	Get(ctx context.Context, key manifests.Key) (*manifests.Document, error)
	// Apply commits a change of a document and pushes it. It does so again if others push at the
	// same time. An error of Change.Edit is returned.
	Apply(ctx context.Context, change repository.Change) (repository.Result, error)
}

// gitBackend commits changes to a repository.
type gitBackend struct{ repository Repository }

// read implements backend.
func (b *gitBackend) read(ctx context.Context, c *call) (*answer, error) {
	if err := c.authorize(ctx, "get"); err != nil {
		return nil, err
	}
	document, err := b.repository.Get(ctx, c.key())
	if err != nil {
		return nil, err
	}
	return documentAnswer(http.StatusOK, document)
}

// documentAnswer returns an answer with an object of the repository.
func documentAnswer(code int, document *manifests.Document) (*answer, error) {
	a, err := jsonAnswer(code, document.Object)
	if err != nil {
		return nil, err
	}
	a.header.Set("ETag", `"`+document.Hash+`"`)
	a.header.Set(fileHeader, headerValue(document.File))
	return a, nil
}

// change implements backend.
func (b *gitBackend) change(ctx context.Context, c *call) (*outcome, error) {
	// Strangers must not cause requests to the Git server, nor learn about files.
	if err := c.authorize(ctx, "get"); err != nil {
		return nil, err
	}
	e := &edit{call: c}
	change := repository.Change{Key: c.key(), IfMatch: c.ifMatch, Edit: e.apply, Message: c.message,
		Trailer: "Requested-by: " + strings.Join(strings.Fields(c.user), " ")}
	change.Author, change.Email = author(c.user)
	result, err := b.repository.Apply(ctx, change)
	if err != nil {
		return nil, err
	}
	return e.outcome(&result)
}

// edit computes a document, and lets the API server check it in a dry run.
type edit struct {
	*call
	// checked is true after a successful dry run of the change from the document with the hash
	// from, which is empty if there was none.
	checked bool
	from    string
	// desired is the new content; nil if the document is removed.
	desired *unstructured.Unstructured
	created bool
	// version is the API version of the object, and tried its content after defaulting and
	// admission. former is the content of the document before the change.
	version       string
	tried, former map[string]any
	// warnings are those of the API server.
	warnings []string
}

// apply is the Edit of a repository.Change.
func (e *edit) apply(ctx context.Context, present *manifests.Document) (*unstructured.Unstructured, error) {
	from := ""
	if present != nil {
		from = present.Hash
	}
	if e.checked && e.from == from { // others have changed other objects
		return e.desired, nil
	}
	if err := e.checkConditions(present != nil, from); err != nil {
		return nil, err
	}
	e.checked, e.from, e.created = false, from, present == nil
	var err error
	if e.desired, err = e.desiredObject(present); err != nil {
		return nil, err
	}
	if err := e.check(ctx, present); err != nil {
		return nil, err
	}
	e.checked = true
	return e.desired, nil
}

// desiredObject returns the content that the document is to have; nil if it is to be removed.
func (e *edit) desiredObject(present *manifests.Document) (*unstructured.Unstructured, error) {
	switch {
	case e.method == http.MethodDelete:
		return nil, nil
	case e.method == http.MethodPut:
		return committable(e.body), nil
	case present == nil:
		return nil, nil // check returns the error
	}
	document, err := json.Marshal(present.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", e.target, err)
	}
	patch, err := json.Marshal(e.body)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of %s: %w", e.target, err)
	}
	merged, err := jsonpatch.MergePatch(document, patch)
	if err != nil {
		return nil, badRequest("the merge patch can't be applied: %s", err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(merged, &content); err != nil {
		return nil, badRequest("the merge patch can't be applied: %s", err)
	}
	desired := committable(content)
	desired.SetNamespace(e.namespace) // a patch may remove the metadata
	desired.SetName(e.name)
	return desired, nil
}

// committable returns a copy of an object without the fields that the API server and controllers
// set. Owners are objects of one cluster.
func committable(object map[string]any) *unstructured.Unstructured {
	out := withoutServerFields(object)
	unstructured.RemoveNestedField(out.Object, "metadata", "ownerReferences")
	return out
}

// check lets the API server check the change with the permissions of the caller. It changes
// nothing.
func (e *edit) check(ctx context.Context, present *manifests.Document) error {
	e.version = e.requestVersion()
	if object := e.desired; object != nil {
		version, err := e.call.version(object.GetAPIVersion())
		if err != nil {
			return err
		}
		e.version = version
	}
	live, _, err := e.get(ctx, e.target.path(e.version))
	if err != nil {
		return err
	}
	if present == nil && live != nil {
		return e.conflict("the object is in the cluster, but no file in the repository has it: add it to the " +
			"repository, or delete it")
	}
	if present == nil && e.method != http.MethodPut {
		return newStatusError(http.StatusNotFound, metav1.StatusReasonNotFound,
			&metav1.StatusDetails{Group: e.Group, Kind: e.kind, Name: e.name},
			"%s is neither in the repository nor in the cluster: create it with PUT", e.target)
	}
	if e.desired == nil && live == nil { // there is nothing to try it with
		return e.authorize(ctx, "delete")
	}
	a, err := e.do(ctx, e.dryRun(live, present))
	if err != nil {
		return err
	}
	if !a.succeeded() {
		return &answerError{a}
	}
	e.warnings = a.header["Warning"]
	e.tried, e.former = nil, nil
	if e.desired != nil {
		object, err := a.object()
		if err != nil {
			return err
		}
		e.tried = contentOf(object.Object)
	}
	if present != nil {
		e.former = contentOf(present.Object.Object)
	}
	return nil
}

// dryRun returns the request that makes the change in the cluster, as a dry run.
func (e *edit) dryRun(live *unstructured.Unstructured, present *manifests.Document) apiRequest {
	r := apiRequest{path: e.target.path(e.version), query: strictDryRun}
	switch {
	case e.desired == nil:
		r.method, r.query = http.MethodDelete, map[string][]string{"dryRun": {"All"}}
	case live == nil:
		r.method, r.path, r.body = http.MethodPost, e.collection(e.version, e.namespace), e.desired
	default:
		r.method, r.body = http.MethodPut, replacedByCommit(live, present, e.desired)
	}
	return r
}

// replacedByCommit returns the object in the cluster after a source controller has applied a
// commit. Metadata that others have set in the cluster stays.
func replacedByCommit(live *unstructured.Unstructured, present *manifests.Document,
	desired *unstructured.Unstructured) *unstructured.Unstructured {
	former := &unstructured.Unstructured{}
	if present != nil {
		former = present.Object
	}
	out := replaced(live, desired.Object)
	out.SetLabels(merge(live.GetLabels(), former.GetLabels(), desired.GetLabels()))
	out.SetAnnotations(merge(live.GetAnnotations(), former.GetAnnotations(), desired.GetAnnotations()))
	finalizers := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool {
		return slices.Contains(former.GetFinalizers(), f) || slices.Contains(desired.GetFinalizers(), f)
	})
	out.SetFinalizers(append(finalizers, desired.GetFinalizers()...))
	return out
}

// merge returns the entries of live without those of former, and with those of desired.
func merge(live, former, desired map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range live {
		if _, removed := former[k]; !removed {
			out[k] = v
		}
	}
	maps.Copy(out, desired)
	return out
}

// outcome returns the outcome of a commit.
func (e *edit) outcome(result *repository.Result) (*outcome, error) {
	out := &outcome{version: e.version, deleted: e.desired == nil}
	var err error
	if out.deleted {
		out.answer, err = jsonAnswer(http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status",
			APIVersion: "v1"}, Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: e.name,
			Group: e.Group, Kind: e.kind}})
	} else {
		code := http.StatusOK
		if e.created {
			code = http.StatusCreated
		}
		out.answer, err = documentAnswer(code, result.Document)
		out.expected = expectedFields(contentOf(result.Document.Object.Object), e.former, e.tried)
	}
	if err != nil {
		return nil, err
	}
	if result.Commit != "" { // nothing differs otherwise
		out.answer.header.Set(commitHeader, result.Commit)
	}
	if len(e.warnings) > 0 {
		out.answer.header["Warning"] = e.warnings
	}
	return out, nil
}
