package state

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/sops"
)

func TestSealLooksAtWhatItGot(t *testing.T) {
	const plain = `{"cluster_name":"demo","n":1.50,"k3s_token":"hunter2","list":[{"a":null}]}`
	for name, c := range map[string]struct {
		sealed string // of both tries
		says   string
	}{
		"fine":             {`{"cluster_name":"demo","n":1.5,"k3s_token":"ENC[x]","list":[{"a":null}],"sops":{"mac":"x"}}`, ""},
		"all encrypted":    {`{"cluster_name":"ENC[x]","n":"ENC[x]","k3s_token":"ENC[x]","list":[{"a":null}],"sops":{}}`, ""},
		"readable":         {plain, "a.json: a secret stays readable that can't be encrypted, at /k3s_token"},
		"another name":     {`{"cluster_name":"dem","n":1.5,"k3s_token":"ENC[x]","list":[{"a":null}]}`, "at /cluster_name"},
		"a field is gone":  {`{"cluster_name":"demo","k3s_token":"ENC[x]","list":[{"a":null}]}`, "encrypting changes what it says"},
		"another number":   {`{"cluster_name":"demo","n":1,"k3s_token":"ENC[x]","list":[{"a":null}]}`, "at /n"},
		"another list":     {`{"cluster_name":"demo","n":1.5,"k3s_token":"ENC[x]","list":[]}`, "at /list"},
		"deep in the list": {`{"cluster_name":"demo","n":1.5,"k3s_token":"ENC[x]","list":[{"a":"b"}]}`, "at /list/0/a"},
	} {
		var asked []string
		got, err := Seal(t.Context(), "a.json", []byte(plain), []string{"age1x"}, func(_ context.Context, r sops.EncryptRequest) ([]byte, error) {
			asked = append(asked, r.EncryptedRegex)
			return []byte(c.sealed), nil
		})
		if c.says == "" {
			if err != nil || string(got) != c.sealed || len(asked) != 1 || asked[0] != EncryptedRegex {
				t.Errorf("%s: got %s, %v after %v", name, got, err, asked)
			}
			continue
		}
		if bad, ok := errors.AsType[*SealError](err); !ok || !strings.Contains(bad.Error(), c.says) || strings.Contains(bad.Error(), "hunter2") || len(asked) != 2 || asked[1] != "" {
			t.Errorf("%s: got %v after %v", name, err, asked)
		}
	}
}
