package codec

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getsops/sops/v3/gcpkms"
	"github.com/getsops/sops/v3/keys"

	"github.com/ksctl/gitops/stacks/sops"
)

// The test server is both the KMS and its token service.
func TestDecryptWithGCP(t *testing.T) {
	const ring = "projects/p/locations/global/keyRings/r/cryptoKeys/"
	forbidden := false
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Host == "oauth2.googleapis.com" && r.URL.Path == "/token" && !forbidden &&
			strings.Count(r.FormValue("assertion"), ".") == 2:
			_ = json.NewEncoder(w).
				Encode(map[string]any{"access_token": "gcp-token-secret", "token_type": "Bearer", "expires_in": 3600})
		case r.Host == "cloudkms.googleapis.com" && r.Header.Get("Authorization") == "Bearer gcp-token-secret" &&
			r.URL.Path == "/v1/"+ring+"k:decrypt":
			var in struct{ Ciphertext string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			_ = json.NewEncoder(w).Encode(map[string]string{"plaintext": in.Ciphertext})
		case strings.HasSuffix(r.URL.Path, "/slow:decrypt"):
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "not with `+
				r.Header.Get("Authorization")+`"}}`)
		}
	})
	to := func(name string) []byte {
		return encryptedWith(t, func(key []byte) keys.MasterKey {
			return &gcpkms.MasterKey{ResourceID: ring + name, EncryptedKey: base64Of(key)}
		})
	}
	account := gcpJSON(t, "")
	credentials, secrets := mustKeys(t, GCPCredentials, account), []string{"gcp-token-secret", account[60:100]}
	if got := mustDecrypt(t, to("k"), sops.YAML, credentials, s.options()); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	_, err := decrypt(t.Context(), to("other"), sops.YAML, credentials, s.options())
	assertError(t, err, sops.ServiceFailed, "403 Forbidden", secrets...)
	o := s.options()
	o.requestTimeout = time.Second
	_, err = decrypt(t.Context(), to("slow"), sops.YAML, credentials, o)
	assertError(t, err, sops.ServiceFailed, "did not answer in time", secrets...)
	forbidden = true
	_, err = decrypt(t.Context(), to("k"), sops.YAML, credentials, s.options())
	assertError(t, err, sops.ServiceFailed, "403 Forbidden", secrets...)
	before := s.requests.Load()
	t.Setenv("GOOGLE_CREDENTIALS", account)
	_, err = decrypt(t.Context(), to("k"), sops.YAML, Keys{}, s.options())
	assertError(t, err, sops.KeyMissing, "no credentials for this key service (key sops.gcp-kms)")
	t.Setenv("SOPS_GCP_KMS_ENDPOINT", "https://demo.vault.azure.net")
	_, err = decrypt(t.Context(), to("k"), sops.YAML, credentials, s.options())
	assertError(t, err, sops.AddressRefused, "another host than that of the key", secrets...)
	if s.requests.Load() != before {
		t.Error("a request was sent")
	}
}
