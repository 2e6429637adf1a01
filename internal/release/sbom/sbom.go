// Package sbom generates a CycloneDX SBOM of a Go binary.
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

// MediaType is the media type of an SBOM.
// https://www.iana.org/assignments/media-types/application/vnd.cyclonedx+json
const MediaType = "application/vnd.cyclonedx+json"

// Generate returns the SBOM of a binary, from the build information that the linker stored in it:
// the main module, its dependencies, and the version of Go. The same binary gives the same SBOM.
func Generate(name, version string, binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("reading the build information of %s: %w", name, err)
	}
	sum := sha256.Sum256(binary)
	url := packageURL(info.Main.Path, version)
	subject := cyclonedx.Component{
		BOMRef: url, PackageURL: url,
		Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	components := []cyclonedx.Component{libraryComponent("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, libraryComponent(m.Path, m.Version, m.Sum))
	}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &subject, Properties: buildSettings(info)}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: subject.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	// Not the newest version of the specification: many tools do not read it yet.
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).
		EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// libraryComponent returns the component of a module. sum is its hash in go.sum, or "".
func libraryComponent(path, version, sum string) cyclonedx.Component {
	url := packageURL(path, version)
	c := cyclonedx.Component{
		BOMRef: url, PackageURL: url,
		Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version,
	}
	if sum != "" {
		// The hash in go.sum covers a file tree, for which CycloneDX has no algorithm.
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

// buildSettings returns the build settings as properties, with the names of "go version -m".
func buildSettings(info *debug.BuildInfo) *[]cyclonedx.Property {
	var out []cyclonedx.Property
	for _, s := range info.Settings {
		out = append(out, cyclonedx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &out
}

// packageURL returns the package URL of a module: https://github.com/package-url/purl-spec
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
