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

// Several key services that do not answer share one deadline. Without it, the decryption process
// would be killed for a slow file before it returns the error of the key services.
func TestKeyServiceRequestsShareDeadline(t *testing.T) {
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	o := s.options()
	o.requestTimeout, o.requestsTimeout = time.Second, 1500*time.Millisecond
	var group library.KeyGroup
	for range 8 {
		group = append(group, &hcvault.MasterKey{VaultAddress: "https://vault.example.com:8200", EnginePath: "transit",
			KeyName: "demo", EncryptedKey: "vault:v1:eA=="})
	}
	began := time.Now()
	_, err := dataKey(t.Context(), &library.Metadata{KeyGroups: []library.KeyGroup{group}},
		mustKeys(t, VaultToken, "hvs.token-secret"), o)
	assertError(t, err, sops.ServiceFailed, "did not answer in time", "hvs.token-secret")
	if took, asked := time.Since(began), s.requests.Load(); took > 5*time.Second || asked > 2 {
		t.Errorf("took %s and sent %d requests", took, asked)
	}
	if d := defaultOptions(); d.requestsTimeout > 45*time.Second { // of the minute that a process has
		t.Errorf("the default is %s", d.requestsTimeout)
	}
}
