package client

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestSecretsThatCannotBeUsed(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("agent", soon())
	_, other := a.issue("agent", soon())
	block, _ := pem.Decode(key)
	locked := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: block.Bytes})
	type secret map[string][]byte
	for what, c := range map[string]struct {
		secret secret
		key    string
		says   string
	}{
		"nothing":            {nil, CAKey, "it has no ca.crt"},
		"no authority":       {secret{CertKey: cert, KeyKey: key}, CAKey, "it has no ca.crt"},
		"an authority":       {secret{CAKey: a.ca()}, CertKey, "neither tls.crt and tls.key, nor token"},
		"a bad authority":    {secret{CAKey: key, TokenKey: []byte("t")}, CAKey, "its ca.crt holds no certificate"},
		"no key":             {secret{CAKey: a.ca(), CertKey: cert}, KeyKey, "add tls.key"},
		"no certificate":     {secret{CAKey: a.ca(), KeyKey: key}, CertKey, "add tls.crt"},
		"a bad certificate":  {secret{CAKey: a.ca(), CertKey: key, KeyKey: key}, CertKey, "its tls.crt holds no certificate"},
		"a bad key":          {secret{CAKey: a.ca(), CertKey: cert, KeyKey: cert}, KeyKey, "its tls.key holds no private key"},
		"a locked key":       {secret{CAKey: a.ca(), CertKey: cert, KeyKey: locked}, KeyKey, "that is not encrypted"},
		"another's key":      {secret{CAKey: a.ca(), CertKey: cert, KeyKey: other}, KeyKey, "that of another certificate"},
		"a token of lines":   {secret{CAKey: a.ca(), TokenKey: []byte("one\ntwo")}, TokenKey, "its token is none"},
		"a long token":       {secret{CAKey: a.ca(), TokenKey: bytes.Repeat([]byte("x"), maxToken+1)}, TokenKey, "its token is none"},
		"a token with signs": {secret{CAKey: a.ca(), TokenKey: []byte("s3cr3t–t0k3n")}, TokenKey, "its token is none"},
	} {
		_, err := Dial(appsv1.AgentEndpoint{Address: "agent.example:8080"}, c.secret)
		bad, ok := errors.AsType[*SecretError](err)
		if !ok || bad.Key != c.key || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q about %s", what, err, c.says, c.key)
			continue
		}
		for name, value := range c.secret {
			if len(value) > 8 && strings.Contains(err.Error(), string(value[:8])) {
				t.Errorf("%s: it quotes %s: %v", what, name, err)
			}
		}
	}
}

func TestAddressesThatAreNotDialled(t *testing.T) {
	for _, address := range []string{"", "agent", ":8080", "agent:", "agent:0", "agent:65536", "agent:http", "169.254.169.254:80", "[fe80::1]:80", "224.0.0.1:80", "[::ffff:169.254.169.254]:80"} {
		_, err := Dial(appsv1.AgentEndpoint{Address: address, Plaintext: true}, nil)
		if bad, ok := errors.AsType[*AddressError](err); !ok || bad.Error() == "" {
			t.Errorf("%q: got %v", address, err)
		}
	}
	for _, address := range []string{"agent.ksctl.svc.cluster.local:8080", "10.0.0.1:1", "[2001:db8::1]:65535"} {
		c, err := Dial(appsv1.AgentEndpoint{Address: address, Plaintext: true}, nil)
		if err != nil {
			t.Errorf("%q: %v", address, err)
			continue
		}
		c.Close()
	}
}
