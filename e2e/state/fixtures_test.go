package state_test

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// lookUp returns the value at a JSON pointer; nil if there is none.
func lookUp(v any, pointer string) any {
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		}
	}
	return v
}

// storeFixture returns a fixture like ksctl's store has it. The fixture that was exported from a
// MongoDB has an id, which is zero in the store.
func storeFixture(name string) []byte {
	GinkgoHelper()
	data := string(fixture(name))
	if name == "v2_0_azure_selfmanaged.json" {
		data = replaceOnce(data, "65f0c0ffee65f0c0ffee65f0", "000000000000000000000000")
	}
	return []byte(data)
}

// documents returns the states of an export in canonical form, and its credentials by cloud.
func documents(export []byte) (states []string, credentials map[string]string) {
	GinkgoHelper()
	var file struct{ Clusters, Credentials []json.RawMessage }
	Expect(json.Unmarshal(export, &file)).To(Succeed())
	for _, doc := range file.Clusters {
		states = append(states, canonical(doc))
	}
	credentials = map[string]string{}
	for _, doc := range file.Credentials {
		var of struct {
			Cloud string `json:"cloud_provider"`
		}
		Expect(json.Unmarshal(doc, &of)).To(Succeed())
		if of.Cloud != "" {
			credentials[of.Cloud] = canonical(doc)
		}
	}
	return states, credentials
}

// document returns the state of a Civo cluster.
func document(name, words string) string {
	return `{"ID":"000000000000000000000000","cluster_name":"` + name +
		`","cluster_type":"ha","region":"LON1","cloud_provider":"civo","words":"` + words + `"}`
}

func keyOf(name string) string { return "civo.ha." + name + ".LON1" }

func encoded(doc string) string { return base64.StdEncoding.EncodeToString([]byte(doc)) }

// replaceOnce replaces the first occurrence of a text, which must exist.
func replaceOnce(text, old, with string) string {
	GinkgoHelper()
	Expect(text).To(ContainSubstring(old))
	return strings.Replace(text, old, with, 1)
}
