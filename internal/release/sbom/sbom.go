// Package sbom lists what a Go binary is made of, as a CycloneDX document.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// MediaType is that of a document.
// https://www.iana.org/assignments/media-types/application/vnd.cyclonedx+json
const MediaType = "application/vnd.cyclonedx+json"

// Of reads what the linker wrote into the binary: its module, those that it was built
// with, and the version of Go. The same binary gives the same document.
func Of(name, version string, binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("%s was not built by Go: %w", name, err)
	}
	sum := sha256.Sum256(binary)
	subject := cyclonedx.Component{
		BOMRef: packageURL(info.Main.Path, version), PackageURL: packageURL(info.Main.Path, version),
		Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	components := []cyclonedx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		components = append(components, of(m))
	}
	refs := make([]string, 0, len(components))
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &subject, Properties: settings(info)}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: subject.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	// Not the newest: what reads documents is behind.
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// of is the module that was built, which is another than that required when it is replaced.
func of(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	return library(m.Path, m.Version, m.Sum)
}

func library(path, version, sum string) cyclonedx.Component {
	c := cyclonedx.Component{
		BOMRef: packageURL(path, version), PackageURL: packageURL(path, version),
		Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version,
	}
	if sum != "" {
		// A hash of a tree as go.sum has it, which is none of CycloneDX's algorithms.
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

// settings are how it was built, by the names of "go version -m".
func settings(info *debug.BuildInfo) *[]cyclonedx.Property {
	var out []cyclonedx.Property
	for _, s := range info.Settings {
		out = append(out, cyclonedx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &out
}

// packageURL names a module: https://github.com/package-url/purl-spec
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
