package state

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

// clusterCounts are the numbers of clusters in an export. An encrypted export of 500 clusters has
// about the maximum size of a file.
var clusterCounts = []int{200, 500}

// newExport returns an export of many clusters, in the dialect with the most values.
func newExport(b *testing.B, clusters int) []byte {
	b.Helper()
	data, err := os.ReadFile("testdata/v1_azure_ha_k3s.json")
	if err != nil {
		b.Fatal(err)
	}
	var one, all struct{ Clusters []map[string]any }
	if err := json.Unmarshal(data, &one); err != nil {
		b.Fatal(err)
	}
	for i := range clusters {
		c := map[string]any{}
		for key, value := range one.Clusters[0] {
			c[key] = value
		}
		c["cluster_name"] = fmt.Sprintf("c%d", i)
		all.Clusters = append(all.Clusters, c)
	}
	if data, err = json.Marshal(all); err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkEncrypt measures the encryption of an export.
func BenchmarkEncrypt(b *testing.B) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range clusterCounts {
		data := newExport(b, n)
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encrypt(b.Context(), "a.json", data, []string{id.Recipient().String()},
					codec.Encrypt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecryptAndParse measures decrypting and parsing an export.
func BenchmarkDecryptAndParse(b *testing.B) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range clusterCounts {
		sealed, err := Encrypt(b.Context(), "a.json", newExport(b, n), []string{id.Recipient().String()}, codec.Encrypt)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plain, err := codec.Decrypt(b.Context(),
					sops.Request{Data: sealed, Format: sops.JSON,
						Secret: map[string][]byte{"a.agekey": []byte(id.String())}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Parse("a.json", plain); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
