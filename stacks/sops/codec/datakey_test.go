package codec

import (
	"io"
	"net/http"
	"testing"
	"time"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/hcvault"

	"github.com/ksctl/gitops/stacks/sops"
)

// Several services that do not answer take no longer together than a file may: else the program that
// asks them is ended before it can say so, and the file counts as a slow one.
func TestRequestsHaveADeadlineTogether(t *testing.T) {
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	o := s.options()
	o.Limits = Limits{RequestTimeout: time.Second, RequestsTimeout: 1500 * time.Millisecond}.WithDefaults()
	var group library.KeyGroup
	for range 8 {
		group = append(group, &hcvault.MasterKey{VaultAddress: "https://vault.example.com:8200", EnginePath: "transit", KeyName: "demo", EncryptedKey: "vault:v1:eA=="})
	}
	began := time.Now()
	_, err := dataKey(t.Context(), &library.Metadata{KeyGroups: []library.KeyGroup{group}}, keysOf(t, VaultToken, "hvs.token-secret"), o)
	refused(t, err, sops.ServiceFailed, "does not answer in time", "hvs.token-secret")
	if took, asked := time.Since(began), s.asked.Load(); took > 5*time.Second || asked > 2 {
		t.Errorf("took %s, and asked %d times", took, asked)
	}
	if d := DefaultLimits(); d.RequestsTimeout > 45*time.Second { // of a minute
		t.Errorf("by default they may take %s", d.RequestsTimeout)
	}
}
