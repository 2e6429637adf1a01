package manager

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/setup"
	"github.com/ksctl/gitops/internal/golden"
)

// During an upgrade two releases run at the same time. They must compete for the same Lease and
// manage the same fields and objects.
func TestLeaseAndFieldManagerNamesAreStable(t *testing.T) {
	t.Setenv("RUNTIME_NAMESPACE", "")
	o := parseFlags(t)
	golden.Equal(t, "names.txt", []byte(strings.Join([]string{
		"Lease: " + leaderElectionID,
		"field manager of objects: " + live.FieldManager,
		"field manager of statuses: " + setup.FieldOwner,
		"owner id: " + o.OwnerID,
		"namespace: " + o.RuntimeNamespace,
	}, "\n")+"\n"))
}
