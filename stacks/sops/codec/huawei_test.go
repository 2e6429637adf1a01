package codec

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/getsops/sops/v3/hckms"
	"github.com/getsops/sops/v3/keys"

	"github.com/ksctl/gitops/stacks/sops"
)

const huaweiUUID = "0d0466b0-e727-4d9c-b35d-f84bb474a37f"

var huaweiSecrets = []string{"HUAWEIEXAMPLE", "huawei-secret-key", "huawei-session-secret"}

func encryptedWithHuawei(t *testing.T, id string) []byte {
	t.Helper()
	return encryptedWith(t, func(key []byte) keys.MasterKey {
		return &hckms.MasterKey{KeyID: id, EncryptedKey: base64Of(key)}
	})
}

// setHuaweiEnvironment sets all credentials and hosts that the SDK can find in the environment, and
// returns the home directory.
func setHuaweiEnvironment(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "HUAWEICLOUD_SDK_AK": "AMBIENT", "HUAWEICLOUD_SDK_SK": "ambient-secret",
		"HUAWEICLOUD_SDK_PROJECT_ID":           "ambient",
		"HUAWEICLOUD_SDK_IAM_ENDPOINT":         "https://ambient.example.com",
		"HUAWEICLOUD_SDK_REGION_KMS_TR_WEST_1": "https://ambient.example.com",
		"HTTPS_PROXY":                          "http://ambient.example.com:3128",
	} {
		t.Setenv(name, value)
	}
	return home
}

func TestDecryptWithHuawei(t *testing.T) {
	home := setHuaweiEnvironment(t)
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Text  string `json:"cipher_text"`
			KeyID string `json:"key_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if r.Host != "kms.tr-west-1.myhuaweicloud.com" && r.Host != "kms.eu-west-101.myhuaweicloud.eu" ||
			r.URL.Path != "/v1.0/0123456789abcdef0123456789abcdef/kms/decrypt-data" || in.KeyID != huaweiUUID ||
			r.Header.Get("X-Security-Token") != "huawei-session-secret" ||
			!strings.HasPrefix(r.Header.Get("Authorization"), "SDK-HMAC-SHA256 Access=HUAWEIEXAMPLE,") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error_code": "KMS.0306", "error_msg": "not for `+r.Header.Get("Authorization")+
				r.Header.Get("X-Security-Token")+`"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"key_id": in.KeyID, "plain_text": in.Text})
	})
	credentials := mustKeys(t, HuaweiCredentials, huaweiYML)
	for _, region := range []string{"tr-west-1", "eu-west-101"} {
		if got := mustDecrypt(t, encryptedWithHuawei(t, region+":"+huaweiUUID), sops.YAML, credentials,
			s.options()); got != "a: value-secret\n" {
			t.Errorf("got %q", got)
		}
	}
	_, err := decrypt(t.Context(), encryptedWithHuawei(t, "tr-west-1:1"+huaweiUUID[1:]), sops.YAML, credentials,
		s.options())
	assertError(t, err, sops.ServiceFailed, "403 Forbidden", huaweiSecrets...)
	before := s.requests.Load()
	_, err = decrypt(t.Context(), encryptedWithHuawei(t, "tr-west-1:"+huaweiUUID), sops.YAML, Keys{}, s.options())
	assertError(t, err, sops.KeyMissing, "the Huawei Cloud KMS key tr-west-1:"+huaweiUUID+
		": the Secret has no credentials for this key service (key sops.hckms)", "ambient-secret")
	for _, hostile := range []string{
		"evil.example.com/#:" + huaweiUUID, "tr-west-1.evil:" + huaweiUUID, "TR-WEST-1:" + huaweiUUID,
		"obs:" + huaweiUUID, "tr-west-1@x:" + huaweiUUID,
		"-tr-west-1:" + huaweiUUID, "tr-west-1\n:" + huaweiUUID, "tr-west-1:" + huaweiUUID + "/x", "tr-west-1:1234",
		"tr-west-1:" + huaweiUUID + ":x",
	} {
		_, err := decrypt(t.Context(), encryptedWithHuawei(t, hostile), sops.YAML, credentials, s.options())
		t.Log(hostile)
		assertError(t, err, sops.AddressRefused, "not a region and a UUID", huaweiSecrets...)
	}
	if s.requests.Load() != before {
		t.Error("a request was sent")
	}
	if made, err := os.ReadDir(home); err != nil || len(made) != 0 {
		t.Errorf("the SDK created %v in the home directory (error %v)", made, err)
	}
}

// For any invalid response, the error is an *Error, and only one request is sent.
func TestHuaweiRefusesInvalidResponses(t *testing.T) {
	setHuaweiEnvironment(t)
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		says   string
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://kms.eu-west-1.amazonaws.com/", http.StatusTemporaryRedirect)
		}, ""},
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>")
		}, "can't decrypt"},
		"JSON null": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "null")
		}, "can't decrypt"},
		"empty": {func(http.ResponseWriter, *http.Request) {}, "can't decrypt"},
		"not base64": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"plain_text": "!"}`)
		}, "can't decrypt"},
		"no response": {func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, "did not answer in time"},
		"slow response": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"plain_`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "did not answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				c.handle(w, r)
			})
			o := s.options()
			o.requestTimeout = time.Second
			_, err := decrypt(t.Context(), encryptedWithHuawei(t, "tr-west-1:"+huaweiUUID), sops.YAML,
				mustKeys(t, HuaweiCredentials, huaweiYML), o)
			assertError(t, err, sops.ServiceFailed, c.says, huaweiSecrets...)
			if s.requests.Load() != 1 {
				t.Errorf("got %d requests, want 1", s.requests.Load())
			}
			t.Log(err)
		})
	}
}
