package bysource

import (
	"testing"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// An object to which the stack contributes is not the stack's: it is not even read.
func TestContributedObjectsAreNotFound(t *testing.T) {
	u, err := (&finder{}).get(t.Context(), &plan.Item{Contribute: true})
	if u != nil || err != nil {
		t.Errorf("found %v, %v", u, err)
	}
}
