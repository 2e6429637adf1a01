package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// indexEntry is what matters of one version of a chart in an index.yaml.
type indexEntry struct {
	Version string   `json:"version" yaml:"version"`
	Digest  string   `json:"digest" yaml:"digest"`
	URLs    []string `json:"urls" yaml:"urls"`
	Removed bool     `json:"removed" yaml:"removed"`
}

// maxIndexNames bounds what is kept of an index to name what was meant.
const maxIndexNames = 10_000

var errNoEntries = errors.New("it has no entries")

// readIndex takes the versions of one chart out of an index.yaml, which is YAML or
// JSON, and the names of the others when there is none of that name.
func readIndex(data []byte, name string) (versions []indexEntry, names []string, err error) {
	defer func() {
		if v := recover(); v != nil {
			versions, names, err = nil, nil, fmt.Errorf("the parser gave up: %v", v)
		}
	}()
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(data) {
		if len(data) > maxJSONIndex {
			return nil, nil, errJSON
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
	if items, names, found, ok := cutIndex(data, name); ok {
		if !found {
			return nil, names, nil
		}
		versions, err = readVersions(items)
		return versions, nil, err
	}
	if len(data) > maxWholeIndex {
		return nil, nil, errForm
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
