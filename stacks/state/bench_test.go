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

// sizes of exports: encrypted, 500 clusters are as many bytes as a file may have.
var sizes = []int{200, 500}

// export is a file of so many clusters, of the dialect with the most values.
func export(b *testing.B, clusters int) []byte {
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

// BenchmarkSeal is what encrypting an export takes.
func BenchmarkSeal(b *testing.B) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range sizes {
		data := export(b, n)
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Seal(b.Context(), "a.json", data, []string{id.Recipient().String()}, codec.Encrypter(codec.Limits{})); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen is what decrypting and reading it takes.
func BenchmarkOpen(b *testing.B) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range sizes {
		sealed, err := Seal(b.Context(), "a.json", export(b, n), []string{id.Recipient().String()}, codec.Encrypter(codec.Limits{}))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plain, err := codec.Decrypter(codec.Options{})(b.Context(), sops.Request{Data: sealed, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(id.String())}})
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
