package argocd_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/config/argocd"
	"github.com/ksctl/gitops/config/argocd/lua"
)

// An object of a kind that a stack serves has the conditions of an install, other ones beside them,
// and any spec.
func TestHealthOfServedObjects(t *testing.T) {
	const (
		shop  = "apiVersion: shops.example.com/v1alpha1\nkind: Shop\nmetadata: {name: corner, namespace: team-a, "
		other = "{type: Available, status: 'False', reason: Closed, message: closed, observedGeneration: 2}"
	)
	ready := func(status, message string) string {
		return "status: {url: http://10.0.0.1, observedGeneration: 2, conditions: [" + other +
			", {type: Ready, status: '" + status + "', reason: Reason, message: '" + message +
			"', observedGeneration: 2}]}\n"
	}
	for name, tc := range map[string]struct {
		object string
		want   lua.Health
	}{
		"ready": {shop + "generation: 2}\nspec: {host: corner}\n" + ready("True", "applied"),
			lua.Health{Status: "Healthy", Message: "applied"}},
		"waits": {shop + "generation: 2}\nspec: {host: corner}\n" + ready("Unknown", "0 of 1 updated"),
			lua.Health{Status: "Progressing", Message: "0 of 1 updated"}},
		"fails": {shop + "generation: 2}\nspec: {host: corner}\n" + ready("False", "quota exceeded"),
			lua.Health{Status: "Degraded", Message: "quota exceeded"}},
		"changed": {shop + "generation: 3}\nspec: {host: corner}\n" + ready("True", "applied"),
			lua.Health{Status: "Progressing", Message: "The controller has not seen this spec yet"}},
		"new": {shop + "generation: 1}\nspec: {host: corner}\nstatus: {observedGeneration: -1}\n",
			lua.Health{Status: "Progressing", Message: "The controller has not seen this spec yet"}},
		"without spec and status": {shop + "generation: 1}\n",
			lua.Health{Status: "Progressing", Message: "The controller has not seen this spec yet"}},
		"deleted": {shop + "generation: 2, deletionTimestamp: '2026-05-01T12:10:00Z'}\n" +
			ready("Unknown", "1 objects are left to remove"),
			lua.Health{Status: "Progressing", Message: "1 objects are left to remove"}},
		"suspended": {shop + "generation: 2}\nspec: {suspend: true}\n" + ready("True", "applied"),
			lua.Health{Status: "Suspended", Message: "spec.suspend is set"}},
	} {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(tc.object), &object); err != nil {
				t.Fatal(err)
			}
			if got, err := lua.RunHealth(argocd.Health, object); err != nil || got != tc.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
