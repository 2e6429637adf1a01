package sops

import "testing"

func TestEncrypted(t *testing.T) {
	for _, c := range []struct {
		data   string
		format Format
		want   bool
	}{
		{`{"a":"ENC[AES256_GCM,data:x]","sops":{"mac":"ENC[x]","lastmodified":"2026-01-01T00:00:00Z"}}`, JSON, true},
		{`{"data":"ENC[AES256_GCM,data:x]","sops":{"mac":"ENC[x]"}}`, Binary, true},
		{"a: ENC[AES256_GCM,data:x]\nsops:\n  mac: ENC[x]\n", YAML, true},
		{"a: 1\nsops: {version: 3}\n", YAML, false},
		{`{"sops":"a word"}`, JSON, false},
		{`{"about":"sops"}`, JSON, false},
		{`{"sops": ENC[`, JSON, true},
		{`{"sops": `, JSON, false},
		{"A=b\nsops_mac=ENC[x]\n", Dotenv, true},
		{"A=sops_mac=\n", Dotenv, false},
		{"[a]\nb = c\n[sops]\nmac = x\n", INI, true},
		{"[a]\nb = [sops]\n", INI, false},
		{"plain", Binary, false},
	} {
		if got := Encrypted([]byte(c.data), c.format); got != c.want {
			t.Errorf("%s %s: got %v", c.format, c.data, got)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{"a/b.yaml": YAML, "b.yml": YAML, "x.enc.json": JSON, "x.env": Dotenv, "x.ini": INI, "x": Binary,
		"config.dockerconfigjson": JSON} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestTerminal(t *testing.T) {
	for reason, want := range map[Reason]bool{KeyMissing: true, IntegrityFailed: true, ServiceFailed: false, Unavailable: false, Interrupted: false} {
		if got := (&Error{Reason: reason}).Terminal(); got != want {
			t.Errorf("%s: got %v", reason, got)
		}
	}
}
