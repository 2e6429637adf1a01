package client

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestDialRejectsInvalidSecrets(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("agent", inOneHour())
	_, other := a.issue("agent", inOneHour())
	block, _ := pem.Decode(key)
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: block.Bytes})
	type secret map[string][]byte
	for what, c := range map[string]struct {
		secret secret
		says   string
	}{
		"no Secret":      {nil, "key ca.crt is missing"},
		"no CA":          {secret{CertKey: cert, KeyKey: key}, "key ca.crt is missing"},
		"only a CA":      {secret{CAKey: a.ca()}, "add keys tls.crt and tls.key, or key token"},
		"invalid CA":     {secret{CAKey: key, TokenKey: []byte("t")}, "key ca.crt holds no PEM certificate"},
		"no key":         {secret{CAKey: a.ca(), CertKey: cert}, "key tls.key is missing"},
		"no certificate": {secret{CAKey: a.ca(), KeyKey: key}, "key tls.crt is missing"},
		"invalid certificate": {secret{CAKey: a.ca(), CertKey: key, KeyKey: key},
			"key tls.crt holds no PEM certificate"},
		"invalid key": {secret{CAKey: a.ca(), CertKey: cert, KeyKey: cert},
			"key tls.key holds no unencrypted PEM private key"},
		"encrypted key": {secret{CAKey: a.ca(), CertKey: cert, KeyKey: encrypted},
			"no unencrypted PEM private key"},
		"key of another cert": {secret{CAKey: a.ca(), CertKey: cert, KeyKey: other}, "does not match the certificate"},
		"multi-line token":    {secret{CAKey: a.ca(), TokenKey: []byte("one\ntwo")}, "key token is invalid"},
		"too long token": {secret{CAKey: a.ca(), TokenKey: bytes.Repeat([]byte("x"), maxTokenBytes+1)},
			"key token is invalid"},
		"token beyond ASCII": {secret{CAKey: a.ca(), TokenKey: []byte("s3cr3t–t0k3n")}, "key token is invalid"},
	} {
		_, err := Dial(appsv1.AgentEndpoint{Address: "agent.example:8080"}, c.secret)
		if _, ok := errors.AsType[*SecretError](err); !ok || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", what, err, c.says)
			continue
		}
		for name, value := range c.secret {
			if len(value) > 8 && strings.Contains(err.Error(), string(value[:8])) {
				t.Errorf("%s: the error quotes the value of key %s: %v", what, name, err)
			}
		}
	}
}

func TestDialRejectsInvalidAddresses(t *testing.T) {
	for _, address := range []string{"", "agent", ":8080", "agent:", "agent:0", "agent:65536", "agent:http",
		"169.254.169.254:80", "[fe80::1]:80", "224.0.0.1:80", "[::ffff:169.254.169.254]:80"} {
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
