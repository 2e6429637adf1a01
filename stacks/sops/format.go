package sops

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Format is how a file is written.
type Format string

// Formats that SOPS knows.
const (
	YAML   Format = "yaml"
	JSON   Format = "json"
	Dotenv Format = "dotenv"
	INI    Format = "ini"
	// Binary is any file as one value. Encrypted it is a JSON file.
	Binary Format = "binary"
)

// FormatOf is the format of a file by its name, as sops and Flux see it.
func FormatOf(name string) Format {
	if strings.HasSuffix(name, ".dockerconfigjson") {
		return JSON
	}
	switch path.Ext(name) {
	case ".yaml", ".yml":
		return YAML
	case ".json":
		return JSON
	case ".env":
		return Dotenv
	case ".ini":
		return INI
	}
	return Binary
}

// Encrypted tells whether a file is one of SOPS: whether it has its metadata. It
// looks closer only at files in which the word stands, and never fails: one that can't be
// read counts as encrypted if it has values of SOPS, so that who decrypts it says
// what is wrong.
func Encrypted(data []byte, f Format) bool {
	switch f {
	case Dotenv:
		return line(data, "sops_mac=") || line(data, "sops_lastmodified=")
	case INI:
		return line(data, "[sops]")
	}
	if !bytes.Contains(data, []byte("sops")) {
		return false
	}
	var top struct {
		Sops map[string]any `json:"sops" yaml:"sops"`
	}
	var err error
	if f == YAML {
		err = yaml.Unmarshal(data, &top)
	} else {
		err = json.Unmarshal(data, &top)
	}
	if err != nil {
		return bytes.Contains(data, []byte("ENC["))
	}
	_, mac := top.Sops["mac"]
	_, modified := top.Sops["lastmodified"]
	return mac || modified
}

// line tells whether one of the lines begins so.
func line(data []byte, prefix string) bool {
	return bytes.HasPrefix(data, []byte(prefix)) || bytes.Contains(data, []byte("\n"+prefix))
}
