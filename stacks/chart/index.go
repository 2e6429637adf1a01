package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"
)

// indexEntry has the fields of a chart version in an index.yaml that are needed to fetch it.
type indexEntry struct {
	Version string   `json:"version" yaml:"version"`
	Digest  string   `json:"digest" yaml:"digest"`
	URLs    []string `json:"urls" yaml:"urls"`
	Removed bool     `json:"removed" yaml:"removed"`
}

// maxIndexNames limits the chart names of an index that are kept to suggest a similar one.
const maxIndexNames = 10_000

var errNoEntries = errors.New("no entries")

// readIndex returns the versions of one chart in an index.yaml, which is YAML or JSON. If the index
// has no chart of that name, it returns the names of the other charts instead.
func readIndex(data []byte, name string) (versions []indexEntry, names []string, err error) {
	defer func() {
		if v := recover(); v != nil {
			versions, names, err = nil, nil, fmt.Errorf("the parser panicked: %v", v)
		}
	}()
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(data) {
		if len(data) > maxJSONIndex {
			return nil, nil, errJSONTooLarge
		}
		var index struct {
			Entries map[string]json.RawMessage `json:"entries"`
		}
		if err := json.Unmarshal(data, &index); err != nil {
			return nil, nil, err
		}
		raw, there := index.Entries[name]
		if !there {
			names, err = entryNames(index.Entries)
			return nil, names, err
		}
		return versions, nil, json.Unmarshal(raw, &versions)
	}
	if items, names, found, ok := scanIndex(data, name); ok {
		if !found {
			return nil, names, nil
		}
		versions, err = parseEntries(items)
		return versions, nil, err
	}
	if len(data) > maxParsedIndex {
		return nil, nil, errIndexForm
	}
	var index struct {
		Entries map[string]yaml.Node `yaml:"entries"`
	}
	if err := yaml.Unmarshal(data, &index); err != nil {
		return nil, nil, err
	}
	node, there := index.Entries[name]
	if !there {
		names, err = entryNames(index.Entries)
		return nil, names, err
	}
	err = node.Decode(&versions)
	return versions, nil, err
}

func entryNames[T any](entries map[string]T) ([]string, error) {
	if entries == nil {
		return nil, errNoEntries
	}
	names := slices.Sorted(maps.Keys(entries))
	return names[:min(len(names), maxIndexNames)], nil
}

// nearestPerSide is the number of existing versions to list below, and above, a missing one.
const nearestPerSide = 2

// nearestVersions lists the existing versions next to a missing one, in ascending order. It is
// empty if wanted is not a semantic version.
func nearestVersions(wanted string, have []string) string {
	want, err := semver.NewVersion(wanted)
	if err != nil || len(have) == 0 {
		return ""
	}
	var known []*semver.Version
	for _, s := range have {
		if v, err := semver.NewVersion(s); err == nil && len(s) <= maxVersionLength {
			known = append(known, v)
		}
	}
	slices.SortFunc(known, func(a, b *semver.Version) int { return a.Compare(b) })
	at, _ := slices.BinarySearchFunc(known, want, func(v, w *semver.Version) int { return v.Compare(w) })
	var names []string
	for _, v := range known[max(0, at-nearestPerSide):min(len(known), at+nearestPerSide)] {
		names = append(names, v.Original())
	}
	return strings.Join(slices.Compact(names), ", ")
}

// maxVersionLength is the maximum length of a version to list in a message: repositories are not
// trusted.
const maxVersionLength = 128

// nearestHint ends the message about a missing version.
func nearestHint(wanted string, have []string) string {
	if names := nearestVersions(wanted, have); names != "" {
		return "; nearest versions: " + names
	}
	return ""
}
