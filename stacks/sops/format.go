package sops

import (
	"path"
	"strings"
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
