package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/internal/version"
)

// schemas are the schemas of an OpenAPI document, by name.
type schemas map[string]json.RawMessage

// openAPI answers with the OpenAPI document of the endpoint. The schemas of the objects are those
// of the API server, read with the permissions of the caller.
func (h *handler) openAPI(ctx context.Context, _ http.ResponseWriter, r *http.Request) (*answer, time.Duration, error) {
	if r.Method != http.MethodGet {
		e := newError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s is not supported: use GET",
			r.Method)
		e.header.Set("Allow", http.MethodGet)
		return nil, 0, e
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := h.authenticate(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	all, err := h.resources.all(ctx)
	if err != nil {
		return nil, 0, err
	}
	paths, known := map[string]any{}, schemas{}
	for i := range all {
		name, err := known.add(ctx, c, &all[i])
		if err != nil {
			return nil, 0, err
		}
		paths[fmt.Sprintf("/v1/%s/{namespace}/{name}", all[i].GroupResource)] = pathItem(&all[i], name)
	}
	a, err := jsonAnswer(http.StatusOK, map[string]any{
		"openapi":  "3.0.3",
		"info":     map[string]any{"title": "ksctl gitops", "version": version.String()},
		"paths":    paths,
		"security": []any{map[string]any{"token": []any{}}},
		"components": map[string]any{"schemas": known, "securitySchemes": map[string]any{
			"token": map[string]any{"type": "http", "scheme": "bearer",
				"description": "A token of the cluster, such as that of a ServiceAccount."}}},
	})
	return a, 0, err
}

// statusSchema is the name of the schema of errors.
const statusSchema = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"

// add adds the schemas of the API version of a resource, and returns the name of that of its
// objects.
func (s schemas) add(ctx context.Context, c *caller, r *resource) (string, error) {
	a, err := c.do(ctx, apiRequest{method: http.MethodGet,
		path: fmt.Sprintf("/openapi/v3/apis/%s/%s", r.Group, r.versions[0])})
	if err != nil {
		return "", err
	}
	if !a.succeeded() {
		return "", &answerError{a}
	}
	var document struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(a.body, &document); err != nil {
		return "", fmt.Errorf("decoding the OpenAPI document of %s/%s: %w", r.Group, r.versions[0], err)
	}
	found := ""
	for name, content := range document.Components.Schemas {
		var schema struct {
			Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(content, &schema) == nil && len(schema.Kinds) == 1 && schema.Kinds[0].Kind == r.kind {
			found = name
		}
		s[name] = content
	}
	if found == "" {
		return "", newError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"the API server has no schema of %s yet: repeat the request later", r.GroupResource)
	}
	return found, nil
}

// jsonObject is a JSON object of the document.
type jsonObject = map[string]any

// pathItem describes the methods of a resource.
func pathItem(r *resource, schema string) jsonObject {
	content := func(mediaType, schema string) jsonObject {
		return jsonObject{mediaType: jsonObject{"schema": jsonObject{"$ref": "#/components/schemas/" + schema}}}
	}
	describe := func(verb string, codes []int) jsonObject {
		responses := jsonObject{"default": jsonObject{"description": "The request is refused.",
			"content": content(jsonType, statusSchema)}}
		for _, code := range codes {
			responses[strconv.Itoa(code)] = jsonObject{"description": descriptions[code],
				"content": content(jsonType, schema),
				"headers": jsonObject{"ETag": header("The version of the object.")}}
		}
		return jsonObject{"operationId": verb + r.kind, "tags": []string{r.String()}, "responses": responses}
	}
	get := describe("read", []int{http.StatusOK})
	put := describe("replace", []int{http.StatusOK, http.StatusCreated, http.StatusAccepted})
	put["requestBody"] = jsonObject{"required": true, "content": content(jsonType, schema)}
	put["parameters"] = append([]any{parameter("header", "If-None-Match", "With *, the object must not exist.")},
		changeParameters()...)
	patch := describe("patch", []int{http.StatusOK, http.StatusAccepted})
	patch["requestBody"] = jsonObject{"required": true,
		"content": jsonObject{mergePatchType: jsonObject{"schema": jsonObject{"type": "object"}}}}
	patch["parameters"] = changeParameters()
	remove := describe("delete", nil)
	for _, code := range []int{http.StatusOK, http.StatusAccepted} {
		remove["responses"].(jsonObject)[strconv.Itoa(code)] = jsonObject{"description": descriptions[code]}
	}
	remove["parameters"] = changeParameters()
	return jsonObject{"get": get, "put": put, "patch": patch, "delete": remove, "parameters": []any{
		required(parameter("path", "namespace", "The namespace of the object.")),
		required(parameter("path", "name", "The name of the object."))}}
}

// descriptions describe the codes of a success.
var descriptions = map[int]string{
	http.StatusOK:      "The request is done.",
	http.StatusCreated: "The object is created.",
	http.StatusAccepted: "The change is made, and the object was not Ready within the time of the parameter wait: " +
		"the header " + readyHeader + " has its condition.",
}

// changeParameters are the parameters of PUT, PATCH and DELETE.
func changeParameters() []any {
	return []any{
		parameter("header", "If-Match", "The ETag that the object must have."),
		parameter("query", "wait", "How long to wait until the object is Ready, such as 60s."),
		parameter("query", "message", "The commit message."),
	}
}

func parameter(in, name, description string) jsonObject {
	return jsonObject{"in": in, "name": name, "description": description, "schema": jsonObject{"type": "string"}}
}

func required(parameter jsonObject) jsonObject {
	parameter["required"] = true
	return parameter
}

func header(description string) jsonObject {
	return jsonObject{"description": description, "schema": jsonObject{"type": "string"}}
}
