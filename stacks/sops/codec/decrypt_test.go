package codec

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/sops"
)

func TestDecryptRefusesTamperedFiles(t *testing.T) {
	id := newAge(t)
	const plain = "password: hunter2-secret\nother: value-secret\nkind: Secret\nlist: [one, two]\n"
	file := mustEncrypt(t, plain, sops.YAML, sops.EncryptRequest{EncryptedRegex: "^(password|other)$"},
		id.Recipient().String())
	all := regexp.MustCompile(`ENC\[[^]]*\]`).FindAll(file, -1)
	password, other := string(all[0]), string(all[1])
	mac := regexp.MustCompile(`\n    mac: .*`)
	date := regexp.MustCompile(`lastmodified: .*`)
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"a plain value is changed": {replaceFirst(t, file, "kind: Secret", "kind: ConfigMap"),
			"does not match the values"},
		"a plain value is added":   {append([]byte("more: x\n"), file...), "does not match the values"},
		"a plain value is removed": {replaceFirst(t, file, "kind: Secret\n", ""), "does not match the values"},
		"a secret is plain text":   {replaceFirst(t, file, password, "hunter3-secret"), "can't be decrypted"},
		"values are swapped":       {replaceFirst(t, file, password, other), "can't be decrypted"},
		"a value is damaged":       {replaceFirst(t, file, password[:30], password[:28]+"!!"), "can't be decrypted"},
		"the MAC is missing":       {mac.ReplaceAll(file, nil), "no MAC"},
		"the MAC is empty":         {mac.ReplaceAll(file, []byte("\n    mac: \"\"")), "no MAC"},
		"the MAC is another value": {mac.ReplaceAll(file, []byte("\n    mac: "+password)), "can't be decrypted"},
		"lastmodified is changed": {date.ReplaceAll(file, []byte(`lastmodified: "2020-01-01T00:00:00Z"`)),
			"can't be decrypted"},
	} {
		out, err := decrypt(t.Context(), c.file, sops.YAML, ageKeys(t, id), defaultOptions())
		t.Log(name)
		assertError(t, err, sops.IntegrityFailed, c.says, "hunter2-secret", "hunter3-secret", "value-secret",
			id.String())
		if out != nil || !toError(err).Terminal() {
			t.Errorf("%s: got output %q or a transient error, want none and a terminal one", name, out)
		}
	}
}

func TestDecryptReportsMissingKeys(t *testing.T) {
	id, other := newAge(t), newAge(t)
	file := mustEncrypt(t, plainYAML, sops.YAML, sops.EncryptRequest{}, id.Recipient().String())
	_, err := decrypt(t.Context(), file, sops.YAML, Keys{}, defaultOptions())
	assertError(t, err, sops.KeyMissing, "encrypted for the age recipients "+id.Recipient().String()+
		", and the Secret has no age identity (key *.agekey)", id.String())
	_, err = decrypt(t.Context(), file, sops.YAML, ageKeys(t, other), defaultOptions())
	assertError(t, err, sops.KeyMissing, "the Secret has the identities of "+other.Recipient().String(), other.String())
}

func TestDecryptRefusesInvalidFiles(t *testing.T) {
	id := newAge(t)
	for name, c := range map[string]struct {
		file string
		f    Format
		says string
	}{
		"not YAML":       {"a: [hunter2-secret", sops.YAML, "not a valid SOPS file in yaml format"},
		"not JSON":       {`{"a": hunter2-secret}`, sops.JSON, "not a valid SOPS file in json format"},
		"not encrypted":  {"a: b\n", sops.YAML, "not a valid SOPS file in yaml format"},
		"empty":          {"", sops.JSON, "not a valid SOPS file in json format"},
		"unknown format": {"a", "toml", "unknown format toml"},
		"no key":         {"a: 1\nsops: {mac: x, lastmodified: 2026-11-01T12:00:00Z}\n", sops.YAML, ""},
		"many keys": {"sops:\n    lastmodified: \"2026-11-01T12:00:00Z\"\n    mac: ENC[x]\n    version: 3.9.0\n   " +
			" age:\n" +
			strings.Repeat("        - recipient: age1x\n          enc: x\n", 300) + "a: b\n", sops.YAML,
			"encrypted for 300 keys"},
		"an alias bomb": {aliasBomb(), sops.YAML, "expand beyond the limit"},
		"large":         {strings.Repeat("x", 6<<20), sops.YAML, "at most 5242880"},
	} {
		out, err := decrypt(t.Context(), []byte(c.file), c.f, ageKeys(t, id), defaultOptions())
		t.Log(name)
		want := sops.FileInvalid
		if name == "no key" {
			want = toError(err).Reason
		}
		assertError(t, err, want, c.says, "hunter2-secret", id.String())
		if out != nil {
			t.Errorf("%s: got output %q", name, out)
		}
	}
}

// aliasBomb returns nine levels of lists, each with nine aliases of the level before.
func aliasBomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := '1'; i <= '9'; i++ {
		before := string(i - 1)
		text += "a" + string(i) + ": &a" + string(i) + " [" +
			strings.TrimSuffix(strings.Repeat("*a"+before+", ", 9), ", ") + "]\n"
	}
	return text
}
