package state

import "testing"

func TestLeaksSecret(t *testing.T) {
	const doc = `{"cluster_name":"demo-in-the-east","cluster_type":"ha","region":"LON1","cloud_provider":"civo","ssh_key_pair":{"private_key":"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ\n"},"k3s_token":"hunter2","list":[{"etcd_key":"k"}]}`
	for text, want := range map[string]bool{
		"": false,
		"json: cannot unmarshal number into Go struct field StorageDocument.cluster_name": false,
		"cluster demo-in-the-east: invalid cluster type k":                                false,
		"invalid token hunter2": true,
		`"private_key":"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ"`: true,
		"MC4C AQAw BQYD K2Vw": true,
		"MC4CAQAwBQYDK2V":     false, // 15 characters, one less than minLeakRun
	} {
		if got := LeaksSecret(text, []byte(doc)); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
	if !LeaksSecret("anything", []byte("{")) {
		t.Error("got false for a file that can't be parsed, want true")
	}
}
