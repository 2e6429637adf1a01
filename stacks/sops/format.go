package sops

import (
	"path"
	"strings"
)

// Format is the file format.
type Format string

// Formats that SOPS supports.
const (
	YAML   Format = "yaml"
	JSON   Format = "json"
	Dotenv Format = "dotenv"
	INI    Format = "ini"
	// Binary is any other file, encrypted as one value. The encrypted file is JSON.
	Binary Format = "binary"
)

// FormatOf returns the format for a file name, by the rules of sops and Flux.
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
