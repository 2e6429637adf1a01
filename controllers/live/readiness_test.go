package live

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

func decodeJSON(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

// object returns an object from apiVersion, kind and the rest of its JSON.
func object(t testing.TB, apiVersion, kind, rest string) *unstructured.Unstructured {
	t.Helper()
	if !strings.Contains(rest, `"metadata"`) {
		rest = `"metadata": {"name": "x", "namespace": "n", "generation": 2},` + rest
	}
	return &unstructured.Unstructured{Object: decodeJSON(t,
		fmt.Sprintf(`{"apiVersion": %q, "kind": %q, %s}`, apiVersion, kind, rest))}
}

func TestReadiness(t *testing.T) {
	conditions := func(pairs ...string) string {
		var c []string
		for i := 0; i < len(pairs); i += 2 {
			c = append(c, fmt.Sprintf(`{"type": %q, "status": %q}`, pairs[i], pairs[i+1]))
		}
		return `"conditions": [` + strings.Join(c, ",") + `]`
	}
	for _, tc := range []struct {
		name, apiVersion, kind, rest string
		want                         Readiness
		message                      string
		done                         bool
	}{
		{"a Job that has not started", "batch/v1", "Job", `"spec": {}`, InProgress, "not started", false},
		{"a Job that runs", "batch/v1", "Job", `"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}`,
			InProgress, "in progress", false},
		{"a Job that is suspended", "batch/v1", "Job", `"status": {"startTime": "2026-01-01T00:00:00Z", ` +
			conditions("Suspended", "True") + `}`, InProgress, "suspended", false},
		{"a Job about to complete", "batch/v1", "Job", `"status": {"startTime": "2026-01-01T00:00:00Z", ` +
			conditions("SuccessCriteriaMet", "True") + `}`, InProgress, "", false},
		{"a Job that is complete", "batch/v1", "Job", `"status": {` + conditions("Complete", "True") + `}`, Current,
			"Completed", true},
		{"a Job that failed", "batch/v1", "Job", `"status": {` + conditions("Failed", "True") + `}`, Failed, "Failed",
			true},
		{"a CronJob", "batch/v1", "CronJob", `"status": {}`, Current, "", false},
		{"a pending claim", "v1", "PersistentVolumeClaim", `"status": {"phase": "Pending"}`, Current, "first consumer",
			false},
		{"a bound claim", "v1", "PersistentVolumeClaim", `"status": {"phase": "Bound"}`, Current, "", false},
		{"a claim with a lost volume", "v1", "PersistentVolumeClaim", `"status": {"phase": "Lost"}`, InProgress, "Lost",
			false},
		{"an established CRD", crdVersion, crdKind.Kind,
			`"status": {` + conditions("NamesAccepted", "True", "Established", "True") + `}`, Current, "", false},
		{"a CRD without conditions", crdVersion, crdKind.Kind, `"spec": {}`, InProgress, "", false},
		{"a CRD with a name conflict", crdVersion, crdKind.Kind,
			`"status": {` + conditions("NamesAccepted", "False", "Established", "False") + `}`, Failed, "", false},
		{"a CRD without NamesAccepted", crdVersion, crdKind.Kind, `"status": {` + conditions("Established", "True") +
			`}`, InProgress, "names", false},
		{"an unschedulable Pod", "v1", "Pod",
			`"metadata": {"name": "x", "creationTimestamp": "2000-01-01T00:00:00Z"}, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]}`, InProgress, "no room", false},
		{"a Pod that failed", "v1", "Pod", `"status": {"phase": "Failed"}`, Failed, "", true},
		{"a Pod that succeeded", "v1", "Pod", `"status": {"phase": "Succeeded"}`, Current, "", true},
		{"a Deployment not observed yet", "apps/v1", "Deployment", `"status": {"observedGeneration": 1}`, InProgress,
			"generation", false},
		{"a custom resource without conditions", "x.io/v1", "Thing", `"spec": {}`, Current, "", false},
		{"a custom resource that is not ready", "x.io/v1", "Thing", `"status": {` + conditions("Ready", "False") + `}`,
			InProgress, "", false},
		{"a custom resource that stalled", "x.io/v1", "Thing", `"status": {` + conditions("Stalled", "True") + `}`,
			Failed, "", false},
		{"a custom resource not observed yet", "x.io/v1", "Thing", `"status": {"observedGeneration": 1, ` +
			conditions("Ready", "True") + `}`, InProgress, "generation", false},
		{"an object with a deletion timestamp", "batch/v1", "Job",
			`"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {` +
				conditions("Complete", "True") + `}`, Terminating, "", true},
		{"a Secret", "v1", "Secret", `"data": {}`, Current, "", false},
	} {
		o, err := Project(object(t, tc.apiVersion, tc.kind, tc.rest))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if o.Readiness != tc.want || !strings.Contains(o.Message, tc.message) || o.Finished != tc.done {
			t.Errorf("%s: %s, %q, done %v; want %s, …%s…, done %v", tc.name, o.Readiness, o.Message, o.Finished,
				tc.want, tc.message, tc.done)
		}
	}
}

const crdVersion = "apiextensions.k8s.io/v1"

func TestReadinessWithReadyExpr(t *testing.T) {
	annotated := func(expr string) string {
		return fmt.Sprintf(`"metadata": {"name": "x", "generation": 2, "annotations": {%q: %q}}`, ReadyExprAnnotation,
			expr)
	}
	for _, tc := range []struct {
		name, apiVersion, kind, rest string
		want                         Readiness
		message                      string
	}{
		{"true", "x.io/v1", "Thing", annotated("status.phase == 'Up'") + `, "status": {"phase": "Up"}`, Current,
			"true"},
		{"true while Ready is False", "x.io/v1", "Thing", annotated("status.phase == 'Up'") +
			`, "status": {"phase": "Up", "conditions": [{"type": "Ready", "status": "False"}]}`, Current, "true"},
		{"false", "x.io/v1", "Thing", annotated("status.phase == 'Up'") + `, "status": {"phase": "Down"}`, InProgress,
			"false"},
		{"false while the object is stalled", "x.io/v1", "Thing", annotated("false") +
			`, "status": {"conditions": [{"type": "Stalled", "status": "True", "message": "no way"}]}`, Failed,
			"no way"},
		{"no status yet", "x.io/v1", "Thing", annotated("status.phase == 'Up'"), InProgress, "status"},
		{"the generation is not observed yet", "x.io/v1", "Thing",
			annotated("true") + `, "status": {"observedGeneration": 1}`, InProgress, "generation 2"},
		{"invalid expression", "x.io/v1", "Thing", annotated("status..") + `, "status": {}`, InProgress, "readyExpr: "},
		{"Gateway API is not a built-in group", "gateway.networking.k8s.io/v1", "Gateway", annotated("false"),
			InProgress, "false"},
		{"not evaluated for built-in kinds", "networking.k8s.io/v1", "Ingress", annotated("false"), Current, ""},
		{"not evaluated for Secrets", "v1", "Secret", annotated("false"), Current, ""},
		{"not evaluated for CRDs", crdVersion, crdKind.Kind, annotated("true"), InProgress, ""},
		{"not evaluated for terminating objects", "x.io/v1", "Thing",
			fmt.Sprintf(`"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {%q: "true"}}`, ReadyExprAnnotation), Terminating, ""},
	} {
		o, err := Project(object(t, tc.apiVersion, tc.kind, tc.rest))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if o.Readiness != tc.want || !strings.Contains(o.Message, tc.message) {
			t.Errorf("%s: %s, %q; want %s, …%s…", tc.name, o.Readiness, o.Message, tc.want, tc.message)
		}
	}
}

func TestReadinessMessageIsTruncated(t *testing.T) {
	long := strings.Repeat("ä", 10_000)
	o, err := Project(object(t, "x.io/v1", "Thing",
		`"status": {"conditions": [{"type": "Ready", "status": "False", "message": "`+long+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Message) > maxMessageBytes || !strings.HasSuffix(o.Message, "ä…") {
		t.Errorf("%d bytes: %q", len(o.Message), o.Message)
	}
}

// kstatus panics on the first of these.
func TestReadinessOfMalformedStatus(t *testing.T) {
	for _, rest := range []string{
		`"status": {"phase": "Running", "containerStatuses": ["x"]}`,
		`"status": {"conditions": "x"}`,
		`"status": {"conditions": [1]}`,
		`"status": {"observedGeneration": "x"}`,
		`"status": []`,
	} {
		o, err := Project(object(t, "v1", "Pod", rest))
		if err != nil || o.Readiness != InProgress {
			t.Errorf("%s: %s, %v", rest, o.Readiness, err)
		}
	}
}
