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

func sealedByHuawei(t *testing.T, id string) []byte {
	t.Helper()
	return sealedTo(t, func(key []byte) keys.MasterKey { return &hckms.MasterKey{KeyID: id, EncryptedKey: inBase64(key)} })
}

// huaweiMachine has credentials, and hosts of its own, of all kinds that the SDK looks for. It gives the home directory.
func huaweiMachine(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "HUAWEICLOUD_SDK_AK": "AMBIENT", "HUAWEICLOUD_SDK_SK": "ambient-secret", "HUAWEICLOUD_SDK_PROJECT_ID": "ambient",
		"HUAWEICLOUD_SDK_IAM_ENDPOINT": "https://ambient.example.com", "HUAWEICLOUD_SDK_REGION_KMS_TR_WEST_1": "https://ambient.example.com",
		"HTTPS_PROXY": "http://ambient.example.com:3128",
	} {
		t.Setenv(name, value)
	}
	return home
}

func TestHuawei(t *testing.T) {
	home := huaweiMachine(t)
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Text  string `json:"cipher_text"`
			KeyID string `json:"key_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if r.Host != "kms.tr-west-1.myhuaweicloud.com" && r.Host != "kms.eu-west-101.myhuaweicloud.eu" ||
			r.URL.Path != "/v1.0/0123456789abcdef0123456789abcdef/kms/decrypt-data" || in.KeyID != huaweiUUID ||
			r.Header.Get("X-Security-Token") != "huawei-session-secret" || !strings.HasPrefix(r.Header.Get("Authorization"), "SDK-HMAC-SHA256 Access=HUAWEIEXAMPLE,") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error_code": "KMS.0306", "error_msg": "not for `+r.Header.Get("Authorization")+r.Header.Get("X-Security-Token")+`"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"key_id": in.KeyID, "plain_text": in.Text})
	})
	credentials := keysOf(t, HuaweiCredentials, huaweiYML)
	for _, region := range []string{"tr-west-1", "eu-west-101"} {
		if got := decrypts(t, sealedByHuawei(t, region+":"+huaweiUUID), sops.YAML, credentials, s.options()); got != "a: value-secret\n" {
			t.Errorf("got %q", got)
		}
	}
	_, err := Decrypt(t.Context(), sealedByHuawei(t, "tr-west-1:1"+huaweiUUID[1:]), sops.YAML, credentials, s.options())
	refused(t, err, sops.ServiceFailed, "403 Forbidden", huaweiSecrets...)
	before := s.asked.Load()
	_, err = Decrypt(t.Context(), sealedByHuawei(t, "tr-west-1:"+huaweiUUID), sops.YAML, Keys{}, s.options())
	refused(t, err, sops.KeyMissing, "the Huawei Cloud KMS key tr-west-1:"+huaweiUUID+": the Secret has no credentials for it (key sops.hckms)", "ambient-secret")
	for _, hostile := range []string{
		"evil.example.com/#:" + huaweiUUID, "tr-west-1.evil:" + huaweiUUID, "TR-WEST-1:" + huaweiUUID, "obs:" + huaweiUUID, "tr-west-1@x:" + huaweiUUID,
		"-tr-west-1:" + huaweiUUID, "tr-west-1\n:" + huaweiUUID, "tr-west-1:" + huaweiUUID + "/x", "tr-west-1:1234", "tr-west-1:" + huaweiUUID + ":x",
	} {
		_, err := Decrypt(t.Context(), sealedByHuawei(t, hostile), sops.YAML, credentials, s.options())
		t.Log(hostile)
		refused(t, err, sops.AddressRefused, "no region and ID of a key", huaweiSecrets...)
	}
	if s.asked.Load() != before {
		t.Error("somebody was asked all the same")
	}
	if made, err := os.ReadDir(home); err != nil || len(made) != 0 {
		t.Errorf("the SDK left %v in the home directory (%v)", made, err)
	}
}

// Whatever the service answers, the error is ours, and one request was made.
func TestHuaweiThatMisbehaves(t *testing.T) {
	huaweiMachine(t)
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		says   string
	}{
		"leads elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://kms.eu-west-1.amazonaws.com/", http.StatusTemporaryRedirect)
		}, ""},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "does not decrypt"},
		"null":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "null") }, "does not decrypt"},
		"nothing":    {func(http.ResponseWriter, *http.Request) {}, "does not decrypt"},
		"no base64":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"plain_text": "!"}`) }, "does not decrypt"},
		"never ends": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "does not answer in time"},
		"is slow": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"plain_`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "does not answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				c.handle(w, r)
			})
			o := s.options()
			o.Limits.RequestTimeout = time.Second
			_, err := Decrypt(t.Context(), sealedByHuawei(t, "tr-west-1:"+huaweiUUID), sops.YAML, keysOf(t, HuaweiCredentials, huaweiYML), o)
			refused(t, err, sops.ServiceFailed, c.says, huaweiSecrets...)
			if s.asked.Load() != 1 {
				t.Errorf("asked %d times", s.asked.Load())
			}
			t.Log(err)
		})
	}
}
