package v1alpha1

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ksctl/gitops/internal/golden"
)

// Clusters, repositories and users rely on these values. A constant may be renamed, but its value
// must not change.
func TestGoldenNames(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		name  string
		value any
	}{
		{"ExportCredentials", ExportCredentials}, {"KeepCredentials", KeepCredentials},
		{"ExportInSync", ExportInSync}, {"ExportCreate", ExportCreate}, {"ExportUpdate", ExportUpdate},
		{"ExportRestore", ExportRestore}, {"ExportRemove", ExportRemove}, {"ExportLeft", ExportLeft},
		{"ExportTaken", ExportTaken}, {"ExportByAnother", ExportByAnother}, {"ExportInvalid", ExportInvalid},
		{"StateInSync", StateInSync}, {"StateCreate", StateCreate}, {"StateUpdate", StateUpdate},
		{"StateChangedSince", StateChangedSince}, {"StateRemovedSince", StateRemovedSince},
		{"StateConflict", StateConflict}, {"StateLeft", StateLeft}, {"StateInvalid", StateInvalid},
		{"StateExternal", StateExternal}, {"StateFull", StateFull}, {"StateSent", StateSent},
		{"ImportCredentials", ImportCredentials}, {"SkipCredentials", SkipCredentials},
		{"RefuseConflict", RefuseConflict}, {"OverwriteConflict", OverwriteConflict}, {"KeepState", KeepState},
		{"DeleteState", DeleteState},
	} {
		fmt.Fprintf(&out, "%s = %v\n", c.name, c.value)
	}
	golden.Equal(t, "names.txt", out.Bytes())
}
