package state

import "testing"

func TestQuotes(t *testing.T) {
	const doc = `{"cluster_name":"demo-in-the-east","cluster_type":"ha","region":"LON1","cloud_provider":"civo","ssh_key_pair":{"private_key":"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ\n"},"k3s_token":"hunter2","list":[{"etcd_key":"k"}]}`
	for text, want := range map[string]bool{
		"": false,
		"json: cannot unmarshal number into Go struct field StorageDocument.cluster_name": false,
		"cluster demo-in-the-east: invalid cluster type k":                                false,
		"invalid token hunter2": true,
		`"private_key":"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ"`: true,
		"MC4C AQAw BQYD K2Vw": true,
		"MC4CAQAwBQYDK2V":     false, // 15 of them tell little
	} {
		if got := Quotes(text, []byte(doc)); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
	if !Quotes("anything", []byte("{")) {
		t.Error("what can't be read may hold anything")
	}
}
