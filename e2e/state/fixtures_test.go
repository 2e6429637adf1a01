package state_test

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// lookUp follows a JSON pointer.
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

// ofStore is a fixture as ksctl's own store has it: the one that was exported from a MongoDB has
// an id, which is zero elsewhere.
func ofStore(name string) []byte {
	GinkgoHelper()
	data := string(fixture(name))
	if name == "v2_0_azure_selfmanaged.json" {
		data = replaced(data, "65f0c0ffee65f0c0ffee65f0", "000000000000000000000000")
	}
	return []byte(data)
}

// documents are the states of an export, canonical, and the credentials in it by cloud.
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

// cluster is the document of a cluster of Civo.
func document(name, words string) string {
	return `{"ID":"000000000000000000000000","cluster_name":"` + name + `","cluster_type":"ha","region":"LON1","cloud_provider":"civo","words":"` + words + `"}`
}

func keyOf(name string) string { return "civo.ha." + name + ".LON1" }

func encoded(doc string) string { return base64.StdEncoding.EncodeToString([]byte(doc)) }

// replaced is a text with something else in it, which has to be there.
func replaced(text, old, with string) string {
	GinkgoHelper()
	Expect(text).To(ContainSubstring(old))
	return strings.Replace(text, old, with, 1)
}
