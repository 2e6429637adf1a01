package generated

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func TestLiveFields(t *testing.T) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	v := &Values{Calls: map[string]Value{
		"password": {Text: "password-1", StaysLive: true}, "other": {Text: "password-2"},
		"special": {Text: "a<b&c>d", StaysLive: true}, "bytes": {Text: "cmFuZG9tIGJ5dGVz", StaysLive: true},
		"certificate": {Text: "certificate\n1", PrivateKey: "private\n1", StaysLive: true},
	}}
	secret := map[string]any{
		"data": map[string]any{"uri": encode("db://user:password-1@host"), "other": encode("password-2"),
			"tls.key": encode("private\n1"), "user/name": encode("user"), "text": "no base64",
			"special": encode("x:a<b&c>d@y"), "bytes": "cmFuZG9tIGJ5dGVz"},
		"stringData": map[string]any{"a/b": "x password-1", "plain": "user"},
	}
	other := map[string]any{"metadata": map[string]any{"name": "password-1"}, "webhooks": []any{
		map[string]any{"name": "a/b", "clientConfig": map[string]any{"caBundle": encode("certificate\n1")}},
		map[string]any{"clientConfig": map[string]any{"caBundle": encode("another")}},
		map[string]any{"text": "ca: certificate\n1"}}}
	for name, tc := range map[string]struct {
		values   *Values
		isSecret bool
		object   map[string]any
		want     string
	}{
		"keys of a Secret": {v, true, secret, "/data/a~1b, /data/bytes, /data/special, /data/tls.key, /data/uri"},
		"fields with a certificate": {v, false, other,
			"/webhooks/2/text, /webhooks/[name=a~1b]/clientConfig/caBundle"},
		"nothing without values": {nil, true, secret, ""},
		"nothing with values of this component": {&Values{Calls: map[string]Value{"x": {Text: "password-1"}}}, true,
			secret, ""},
	} {
		if got := strings.Join(tc.values.LiveFields(tc.isSecret, tc.object), ", "); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestHasOtherArguments(t *testing.T) {
	v := &Values{Calls: map[string]Value{"genCA#0#hash@a.yaml": {}, "randAlphaNum#0@a.yaml": {}}}
	var got []string
	for _, call := range []string{"genCA#1#other@a.yaml", "genCA#0#other@b.yaml", "genSignedCert#0#other@a.yaml",
		"randAlphaNum#1@a.yaml", "randAlphaNum#0#hash@a.yaml"} {
		if v.HasOtherArguments(call) {
			got = append(got, call)
		}
	}
	if want := []string{"genCA#1#other@a.yaml"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
